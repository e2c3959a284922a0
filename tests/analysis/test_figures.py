from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from dnlnet import AttentionMaps, NonLocalBlock
from dnlnet.analysis.figures import attention_figure, interior_points, save_figure
from dnlnet.data.classes import Classes

TWO = Classes(["left", "right"], [(255, 0, 0), (0, 0, 255)])
LABELS = torch.zeros(24, 32, dtype=torch.int64)
LABELS[:, 20:] = 1
QUERIES = [(4, 6), (12, 28)]


def maps_of(variant: str) -> AttentionMaps:
    return NonLocalBlock(8, variant).attention_maps(torch.rand(1, 8, 6, 8), [(1, 1), (3, 7)])


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


@pytest.mark.parametrize(("variant", "panels"), [("dnl", 3), ("nl", 3), ("nl_pairwise", 2), ("gc", 1)])
def test_each_term_of_the_variant_has_its_panels(variant: str, panels: int) -> None:
    figure = attention_figure(torch.rand(3, 24, 32), maps_of(variant), QUERIES, TWO)
    assert len(titles(figure)) == 1 + panels


def test_labels_and_prediction_are_drawn_when_given() -> None:
    figure = attention_figure(
        torch.rand(3, 24, 32), maps_of("dnl"), QUERIES, TWO, labels=LABELS, prediction=LABELS, title="all"
    )
    assert titles(figure)[:3] == ["image and query points", "ground truth", "prediction"]
    assert figure.get_suptitle() == "all"


def test_the_share_on_the_query_class_is_the_attention_there() -> None:
    attention = torch.zeros(1, 1, 6, 8)
    attention[..., 0, 0], attention[..., 0, 7] = 0.75, 0.25
    maps = AttentionMaps(attention, None, attention)
    figure = attention_figure(torch.rand(3, 24, 32), maps, [(4, 6)], TWO, labels=LABELS)
    assert "75% of it on left (62% of image)" in titles(figure)[-1]


def test_a_constant_map_and_a_zero_map_can_be_drawn(tmp_path: Path) -> None:
    flat = AttentionMaps(torch.zeros(1, 1, 6, 8), torch.full((1, 6, 8), 1 / 48), torch.zeros(1, 1, 6, 8))
    save_figure(attention_figure(torch.rand(3, 24, 32), flat, [(0, 0)], TWO), tmp_path / "flat.png")


def test_the_picture_opens_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "attention.png"
    save_figure(attention_figure(torch.rand(3, 24, 32), maps_of("dnl"), QUERIES, TWO), path)
    with Image.open(path) as picture:
        picture.load()
        assert min(picture.size) > 300
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attention.png"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_interior_points_are_of_different_classes() -> None:
    points = interior_points(LABELS, count=3)
    assert [int(LABELS[point]) for point in points] == [0, 1]


def test_input_that_does_not_fit_is_refused() -> None:
    image, maps = torch.rand(3, 24, 32), maps_of("dnl")
    with pytest.raises(ValueError, match=r"the image must be \(3, H, W\)"):
        attention_figure(image[:1], maps, QUERIES, TWO)
    with pytest.raises(ValueError, match="1 query points but pairwise maps of 2"):
        attention_figure(image, maps, QUERIES[:1], TWO)
    with pytest.raises(ValueError, match=r"query point \(24, 0\) is outside the image"):
        attention_figure(image, maps, [(0, 0), (24, 0)], TWO)
    with pytest.raises(ValueError, match="labels are"):
        attention_figure(image, maps, QUERIES, TWO, labels=LABELS[1:])
