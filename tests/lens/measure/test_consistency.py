import pytest
import torch

import equations
from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import Terms, blocked
from dnlnet.attention.terms import Logits
from dnlnet.data.classes import IGNORE
from dnlnet.lens.measure.consistency import (
    RANDOM,
    Average,
    Overlaps,
    average_overlaps,
    measure_overlaps,
    overlaps_of_heads,
    uniform_overlaps,
)
from dnlnet.lens.measure.ground_truth import GroundTruth
from dnlnet.lens.trace.capture import capture_blocks

GRID = (4, 6)
CELL = 8  # pixels per cell


def labels_of(cells: list[str]) -> torch.Tensor:
    """Return a label map with one class per cell; a dot is void."""
    grid = torch.tensor([[IGNORE if c == "." else int(c) for c in row] for row in cells])
    return grid.repeat_interleave(CELL, 0).repeat_interleave(CELL, 1)


def terms_of(pairwise: torch.Tensor | None, unary: torch.Tensor | None = None) -> Terms:
    """Return terms with these maps: (N, M) and (M,)."""
    eye = torch.eye(GRID[0] * GRID[1], dtype=torch.float64)[None]
    return Terms(
        None if pairwise is None else Logits(pairwise.double().clamp(min=1e-300).log()[None], eye),
        None if unary is None else Logits(unary.double().clamp(min=1e-300).log()[None, None], eye),
        None,
        GRID,
        GRID,
    )


def find_overlaps(terms: Terms, truth: GroundTruth) -> Overlaps:
    (found,) = overlaps_of_heads(terms, truth)
    return found


THREE = labels_of(["000111", "000111", "002222", "002222"])


def test_a_map_equal_to_the_region_has_overlap_one() -> None:
    truth = GroundTruth.of(THREE, classes=3)
    of_cell = truth.query_classes(GRID)
    same = (of_cell[:, None] == of_cell).double()
    found = find_overlaps(terms_of(same / same.sum(1, keepdim=True)), truth)
    assert found.pair_within == pytest.approx(1)
    assert found.pair_void == pytest.approx(0)


def test_a_map_equal_to_the_other_regions_has_overlap_zero() -> None:
    truth = GroundTruth.of(THREE, classes=3)
    of_cell = truth.query_classes(GRID)
    other = (of_cell[:, None] != of_cell).double()
    assert find_overlaps(terms_of(other / other.sum(1, keepdim=True)), truth).pair_within == pytest.approx(0)


def test_the_overlap_of_a_uniform_map_is_the_share_of_the_area() -> None:
    truth = GroundTruth.of(THREE, classes=3)
    found = uniform_overlaps(GRID, GRID, truth)
    every = torch.ones(24, 24) / 24
    assert vars(find_overlaps(terms_of(every, every[0]), truth)) == pytest.approx(vars(found), abs=1e-6)
    shares = torch.tensor([10 / 24, 6 / 24, 8 / 24])
    assert found.pair_within == pytest.approx(float((shares**2).sum()))
    edge = float(truth.boundary.float().mean())
    assert found.pair_boundary == pytest.approx(edge)
    assert found.unary_boundary == pytest.approx(edge)


def test_the_boundary_overlap_of_a_single_cell_is_its_share_of_boundary_pixels() -> None:
    truth = GroundTruth.of(THREE, classes=3, width=3)
    on_one = torch.zeros(24)
    on_one[2] = 1  # columns 16..23, the right edge on a contour: 3 of 8 columns are near it
    assert find_overlaps(terms_of(None, on_one), truth).unary_boundary == pytest.approx(3 / 8)


def test_void_queries_are_dropped_and_void_mass_is_reported() -> None:
    labels = labels_of(["000...", "000...", "000...", "000..."])
    truth = GroundTruth.of(labels, classes=1)
    left = torch.tensor([0.0, 0, 0, 1, 1, 1]).repeat(4)  # 1 at void cells
    rows = torch.where(left[:, None] > 0, left / 12, (1 - left) / 12 * 0.75 + left / 12 * 0.25)
    found = find_overlaps(terms_of(rows, left / 12), truth)
    assert found.pair_within == pytest.approx(0.75)  # the void queries, which attend only to void, do not count
    assert found.pair_void == pytest.approx(0.25)
    assert found.unary_void == pytest.approx(1)
    assert found.pair_boundary == pytest.approx(0)  # an edge with void is not a boundary


def test_an_image_without_labels_has_no_pairwise_statistics() -> None:
    truth = GroundTruth.of(labels_of(["......"] * 4), classes=2)
    found = find_overlaps(terms_of(torch.full((24, 24), 1 / 24), torch.full((24,), 1 / 24)), truth)
    assert (found.pair_within, found.pair_boundary) == (None, None)
    assert found.unary_void == pytest.approx(1)


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_overlaps_equal_a_plain_loop(variant: str, pool: int) -> None:
    block = equations.randomise(NonLocalBlock(6, variant, pool=pool), std=0.4)
    x = torch.randn(1, 6, *GRID, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.randint(0, 4, GRID, generator=torch.Generator().manual_seed(2))
    labels = labels.repeat_interleave(7, 0).repeat_interleave(5, 1)  # cells do not match the pooled grid
    labels[labels == 3] = IGNORE
    truth = GroundTruth.of(labels, classes=3, width=2)
    with torch.no_grad():
        maps = equations.attention(block, x[0])
    maps["pairwise"] = maps["pairwise"] if block.variant.pairwise else None
    maps["unary"] = maps["unary"] if block.variant.unary else None
    expected = naive(maps, labels, truth.boundary, pool)
    found = find_overlaps(block.terms(x), truth)
    for name, value in expected.items():
        ours = getattr(found, name)
        assert (ours is None) == (value is None), name
        assert value is None or ours == pytest.approx(value, abs=1e-6), name


def naive(maps: dict, labels: torch.Tensor, boundary: torch.Tensor, pool: int) -> dict[str, float | None]:
    """Compute the definitions, one query and one key at a time."""
    keys = [n // pool for n in GRID]
    cell = [[labels[r * 7 : (r + 1) * 7, c * 5 : (c + 1) * 5].flatten() for c in range(6)] for r in range(4)]
    per = [length // count for length, count in zip(labels.shape, keys, strict=True)]

    def share(mask: torch.Tensor, j: int) -> float:
        row, column = divmod(j, keys[1])
        part = mask[row * per[0] : (row + 1) * per[0], column * per[1] : (column + 1) * per[1]]
        return float(part.double().mean())

    out: dict[str, list[float]] = {"pair_within": [], "pair_boundary": [], "pair_void": []}
    count = keys[0] * keys[1]
    if maps["pairwise"] is not None:
        for i in range(24):
            values = cell[i // 6][i % 6]
            own = int(values.mode().values)
            if own == IGNORE:
                continue
            for name, mask in (
                ("pair_within", labels == own),
                ("pair_boundary", boundary),
                ("pair_void", labels == IGNORE),
            ):
                out[name].append(sum(float(maps["pairwise"][i, j]) * share(mask, j) for j in range(count)))
    result = {name: sum(values) / len(values) if values else None for name, values in out.items()}
    for name, mask in (("unary_boundary", boundary), ("unary_void", labels == IGNORE)):
        unary = maps["unary"]
        result[name] = None if unary is None else sum(float(unary[0, j]) * share(mask, j) for j in range(count))
    return result


def test_no_tensor_of_queries_times_keys_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "MIN_LOGITS", 1)
    monkeypatch.setattr(blocked, "MAX_LOGITS", 32 * 500)
    x = torch.randn(1, 4, 20, 25)
    terms = NonLocalBlock(4, "dnl").terms(x)
    truth = GroundTruth.of(torch.randint(0, 3, (40, 50)), classes=3)
    with LargestTensor() as recorder:
        find_overlaps(terms, truth)
    assert "dnlnet.attend.default" in recorder.operators
    assert recorder.elements < 500 * 500 / 10


class Net(torch.nn.Module):
    """Two blocks on averages of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = NonLocalBlock(3, "dnl"), NonLocalBlock(3, "gc")

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(torch.nn.functional.avg_pool2d(image, CELL)))


def test_every_block_of_an_image_and_a_uniform_map_are_measured() -> None:
    torch.manual_seed(0)
    net = Net()
    image, truth = torch.rand(1, 3, *THREE.shape), GroundTruth.of(THREE, 3)
    with capture_blocks(net) as blocks:
        net(image)
    found = measure_overlaps(blocks, truth)
    assert list(found) == ["first", "second", RANDOM]
    assert found["first"] == find_overlaps(net.first.terms(torch.nn.functional.avg_pool2d(image, CELL)), truth)
    assert found[RANDOM] == uniform_overlaps(GRID, GRID, truth)
    rows = average_overlaps([found["second"]] * 3)
    assert rows["pair_within"] is None
    assert rows["unary_boundary"].images == 3


def test_error_is_the_standard_error_over_images() -> None:
    values = [0.1, 0.4, 0.7, 0.2]
    average = Average.of(values)
    assert average.mean == pytest.approx(0.35)
    assert average.error == pytest.approx(float(torch.tensor(values).std() / 2))
    assert Average.of([0.3]).error is None  # the spread of one value is unknown
    assert average_overlaps([Overlaps()])["pair_within"] is None
