from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dnlnet import NonLocalBlock
from dnlnet.attention import Terms
from dnlnet.attention.terms import Logits
from dnlnet.data.classes import Classes
from dnlnet.lens.measure.consistency import RANDOM, TABLE_1, Average
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView
from dnlnet.lens.show.block_figure import block_figure
from dnlnet.lens.show.charts import confusion_figure, consistency_figure
from dnlnet.lens.show.clip_figure import clip_figure
from dnlnet.lens.show.layer_figure import layer_figure
from dnlnet.lens.show.map_figure import maps_figure
from dnlnet.lens.show.panels import overlay_heat, save_figure
from dnlnet.runs.report import loss_figure, score_figure

TWO = Classes(["left", "right"], [(255, 0, 0), (0, 0, 255)])
LABELS = np.zeros((24, 32), dtype=np.uint8)
LABELS[:, 20:] = 1
POINTS = [(4, 6), (12, 28)]
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)


def view_of(variant: str, **options: object) -> AttentionView:
    torch.manual_seed(0)
    return AttentionView(variant, NonLocalBlock(8, variant).terms(200 * torch.rand(1, 8, 6, 8)), **options)


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for part in figure.subfigs for axes in part.axes if axes.get_title()]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("dnl", ["unary: one map for all queries", "pairwise of 1", "pairwise of 2", "pairwise + unary of 1"]),
        ("nl", ["unary: one map for all queries", "pairwise of 1", "pairwise of 2", "attention of 1"]),
        ("nl_pairwise", ["pairwise of 1", "pairwise of 2"]),
        ("gc", ["unary: one map for all queries"]),
    ],
)
def test_each_term_of_the_variant_has_its_panels(variant: str, expected: list[str]) -> None:
    figure = block_figure(AttendedImage("p", PIXELS, [view_of(variant)]), POINTS)
    assert titles(figure)[: 1 + len(expected)] == ["p and query points", *expected]


def test_a_nearly_uniform_map_is_labelled_and_drawn_dark() -> None:
    terms = NonLocalBlock(8, "dnl").terms(torch.full((1, 8, 6, 8), 0.5))
    figure = block_figure(AttendedImage("p", PIXELS, [AttentionView("dnl", terms)]), POINTS)
    assert titles(figure)[1:3] == [
        "unary: one map for all queries\nnearly uniform: this block\nhas learnt little yet",
        "pairwise of 1\nnearly uniform: this block\nhas learnt little yet",
    ]
    white = np.full((6, 8, 3), 255, dtype=np.uint8)
    flat, peak = torch.ones(6, 8), torch.ones(6, 8)
    peak[0] = 400.0
    assert overlay_heat(white, flat).max() < 0.6
    assert overlay_heat(white, peak).max() > 0.9


def test_the_same_strength_has_the_same_colour_in_every_figure() -> None:
    """Two cells of a row attend to the left half of the map at twice the uniform strength, or to all of it alike."""
    half = torch.full((6, 8), 1e-30)
    half[:, :4] = 1.0
    rows = torch.cat([half.flatten().log().expand(24, 48), torch.zeros(24, 48)])  # of the upper and the lower half
    pixels = np.zeros((24, 32, 3), np.uint8)
    flat, clip = (
        Terms(Logits(rows[None], torch.eye(48)[None]), None, None, size, size) for size in ((6, 8), (1, 6, 8))
    )
    points = [(4, 6), (20, 6)]
    image = AttendedImage("p", pixels, [AttentionView("v", flat)])
    found = {
        "block": [axes for part in block_figure(image, points).subfigs for axes in part.axes],
        "layer": layer_figure(image, points).axes,
        "maps": maps_figure(flat.maps([(1, 1), (5, 1)]), over=pixels).axes,
        "clip": clip_figure(pixels[None], {"v": clip}, [(0, *point) for point in points]).axes,
    }
    inferno = matplotlib.colormaps["inferno"]
    twice, once = (0.6 * 0.85 * share * np.array(inferno(share)[:3]) for share in (1 / 2, 1 / 3))
    for name, axes in found.items():
        drawn = [
            np.asarray(one.images[0].get_array()) for one in axes if one.images and one.get_label() != "<colorbar>"
        ]
        strong, uniform, *_ = (heat for heat in drawn if heat.dtype == np.float32 and heat.max() > 0)
        np.testing.assert_allclose(strong[4, 2], twice, atol=0.005, err_msg=name)
        np.testing.assert_allclose(uniform[4, 30], once, atol=0.005, err_msg=name)


def test_labels_edges_and_predictions_are_drawn_when_given() -> None:
    image = AttendedImage("p", PIXELS, [view_of("dnl", prediction=LABELS), view_of("gc")], LABELS, TWO)
    figure = block_figure(image, POINTS, title="all")
    assert titles(figure)[:3] == ["p and query points", "ground truth", "class boundaries"]
    assert "prediction" in titles(figure)
    assert [part.get_suptitle() for part in figure.subfigs] == ["", "dnl", "gc"]
    assert figure.get_suptitle() == "all"


def test_cells_without_an_image_stay_blank() -> None:
    figure = block_figure(AttendedImage("p", PIXELS, [view_of("dnl"), view_of("dnl")]), POINTS)
    scale = "<colorbar>"
    empty = [a for part in figure.subfigs for a in part.axes if not a.images and a.get_label() != scale]
    assert empty
    for axes in empty:
        assert not axes.get_frame_on()
        assert not len(axes.get_xticks()) + len(axes.get_yticks())


def test_a_figure_of_one_view_has_no_empty_cells() -> None:
    image = AttendedImage("p", PIXELS, [view_of("dnl", prediction=LABELS)], classes=TWO)
    (part,) = block_figure(image, POINTS).subfigs
    places = [axes for axes in part.axes if axes.get_label() != "<colorbar>"]
    assert len(places) == 2 * (2 + len(POINTS))
    assert all(axes.images or axes.get_legend() for axes in places)


@pytest.mark.parametrize("shape", [(48, 48), (48, 96), (96, 48)])
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("labelled", [True, False])
def test_titles_are_not_cut_off(shape: tuple[int, int], views: int, labelled: bool) -> None:
    labels = np.zeros(shape, np.uint8) if labelled else None
    pixels = np.zeros((*shape, 3), np.uint8)
    image = AttendedImage("p", pixels, [view_of("dnl", prediction=labels) for _ in range(views)], labels, TWO)
    figure = block_figure(image, [(10, 10), (20, 20), (30, 30)])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in (axes for part in figure.subfigs for axes in part.axes if axes.get_title()):
        box = axes.title.get_window_extent(canvas.get_renderer())
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width, axes.get_title()
        assert 0 <= box.y0 < box.y1 <= figure.bbox.height, axes.get_title()


def test_a_figure_of_a_long_clip_fits_on_a_screen() -> None:
    terms = NonLocalBlock(8, "dnl", dims=3).terms(torch.randn(1, 8, 32, 3, 5))
    figure = clip_figure(np.zeros((64, 12, 20, 3), np.uint8), {"a": terms, "b": terms}, [(0, 6, 10), (7, 0, 19)])
    width, height = figure.get_size_inches()
    assert width <= 13
    assert height <= 9
    many = {str(number): terms for number in range(5)}  # as many blocks as in the paper's network
    tall = clip_figure(np.zeros((8, 15, 20, 3), np.uint8), many, [(0, 6, 10), (7, 0, 19)])
    assert tall.get_size_inches()[1] <= 8


def test_scores_fill_their_axis() -> None:
    axes = score_figure([{"iteration": 10, "miou": 0.04}, {"iteration": 20, "miou": 0.05}]).axes[0]
    assert axes.get_ylim() == pytest.approx((0, 0.055))


def test_an_absent_prediction_is_not_drawn() -> None:
    nothing = np.full_like(LABELS, 255)
    figure = block_figure(AttendedImage("p", PIXELS, [view_of("dnl", prediction=nothing)], classes=TWO), POINTS)
    assert "prediction" not in titles(figure)


def test_the_share_on_the_query_class_is_its_attention() -> None:
    attention = torch.full((6, 8), 1e-30)
    attention[0, 0], attention[0, 7] = 0.75, 0.25
    logits = Logits(attention.flatten().log().expand(1, 48, 48), torch.eye(48)[None])
    image = AttendedImage("p", PIXELS, [AttentionView("v", Terms(logits, None, None, (6, 8), (6, 8)))], LABELS, TWO)
    assert "75% of it on left (62% of image)" in titles(block_figure(image, [(4, 6)]))[-1]


def test_queries_snap_to_the_grid_and_their_cell_is_marked() -> None:
    figure = block_figure(AttendedImage("p", PIXELS, [view_of("nl_pairwise")]), [(5, 7)])
    axes = next(a for a in figure.subfigs[0].axes if a.get_title() == "pairwise of 1")
    (cell,) = axes.patches
    assert (cell.get_x(), cell.get_y(), cell.get_width(), cell.get_height()) == (3.5, 3.5, 4, 4)
    assert [float(line.get_xdata()[0]) for line in axes.lines] == [5.5]  # the centre of columns 4..7


def test_padding_is_cropped_and_positions_count_from_the_padded_map() -> None:
    view = view_of("dnl", covered=(0.5, 0.75))
    image = AttendedImage("p", PIXELS, [view])
    assert view.position((23, 31), image) == (2, 5)
    ramp = torch.arange(8.0).expand(6, 8)
    over = view.over_image(ramp, image)
    assert over.shape == (24, 32)
    assert float(over.max()) < 6  # columns 6 and 7 are padding, except for interpolation to the centre of column 6


@pytest.mark.parametrize("value", [0.0, 1 / 48])
def test_a_constant_map_can_be_drawn(value: float) -> None:
    assert np.isfinite(overlay_heat(PIXELS, torch.full((24, 32), value))).all()


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_the_figure_is_written_completely_without_leftovers(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"attention.{ending}"
    save_figure(block_figure(AttendedImage("p", PIXELS, [view_of("dnl")]), POINTS), path)
    if ending == "png":
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 300
    else:
        content = path.read_bytes()
        assert content.startswith(b"%PDF")
        assert b"/Type3" not in content  # printers reject such fonts
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attention.png"
    path.write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_points_outside_are_refused() -> None:
    image = AttendedImage("p", PIXELS, [view_of("dnl")])
    with pytest.raises(ValueError, match=r"x=0, y=24 is outside p.* 32 x 24 pixels"):
        block_figure(image, [(0, 0), (24, 0)])
    with pytest.raises(ValueError, match="no query points"):
        block_figure(image, [])


CLIP = np.random.default_rng(1).integers(0, 256, (8, 12, 20, 3), dtype=np.uint8)


@pytest.mark.parametrize(("variant", "rows"), [("dnl", 4), ("nl_pairwise", 3), ("gc", 2)])
def test_a_clip_has_one_row_per_map_and_one_column_per_time(variant: str, rows: int, tmp_path: Path) -> None:
    terms = NonLocalBlock(8, variant, dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    figure = clip_figure(CLIP, {variant: terms}, [(0, 6, 10), (7, 0, 19)])
    assert len(figure.axes) == 4 * rows + 1  # one more for the colour bar
    assert [axes.get_title() for axes in figure.axes[:4]] == ["frame 2", "frame 4", "frame 6", "frame 8"]
    marked = [len(axes.lines) for axes in figure.axes[:4]]
    assert marked == [1, 0, 0, 1]  # each query appears in its frame
    save_figure(figure, tmp_path / "clip.png")


def test_mismatched_clips_are_refused() -> None:
    terms = NonLocalBlock(8, dims=3).terms(torch.randn(1, 8, 4, 3, 5))
    with pytest.raises(ValueError, match=r"\(8, 0, 0\) is outside the clip of \(8, 12, 20\)"):
        clip_figure(CLIP, {"a": terms}, [(8, 0, 0)])
    with pytest.raises(ValueError, match=r"a: expected a 3d block.*\(3, 5\)"):
        clip_figure(CLIP, {"a": NonLocalBlock(8).terms(torch.randn(1, 8, 3, 5))}, [(0, 0, 0)])
    with pytest.raises(ValueError, match=r"frames must be \(T, H, W, 3\)"):
        clip_figure(CLIP[0], {"a": terms}, [(0, 0, 0)])


def test_bars_omit_terms_that_a_variant_lacks() -> None:
    bar = Average(0.5, 0.1, 3)
    rows = {"gc": dict.fromkeys(TABLE_1) | {"unary_boundary": bar}, RANDOM: dict.fromkeys(TABLE_1, bar)}
    assert len(consistency_figure(rows).axes[0].patches) == 1


@pytest.mark.parametrize("name", ["$x^$", "_background_", "a\nb\x1b\udcff", "道路", "<b>", "n" * 300, "\\frac$$"])
def test_any_name_can_appear_in_a_figure(name: str, tmp_path: Path) -> None:
    """Matplotlib parses text between dollar signs as a formula, and fails if it is not one."""
    classes = Classes([name, "road"], [(255, 0, 0), (0, 0, 255)])
    labels = np.zeros(PIXELS.shape[:2], np.uint8)
    image = AttendedImage(name, PIXELS, [replace(view_of("dnl"), title=name)], labels, classes)
    clip = NonLocalBlock(8, dims=3).terms(torch.randn(1, 8, 2, 3, 5))
    bar = Average(0.5, 0.1, 3)
    step = {"event": "train", "iteration": 1, "lr": 0.1, name: 1.0}
    figures = (
        block_figure(image, [(3, 4)], title=name),
        clip_figure(CLIP, {name: clip}, [(0, 6, 10)], title=name),
        confusion_figure(torch.eye(2), classes),
        consistency_figure({name: dict.fromkeys(TABLE_1, bar)}),
        loss_figure([step]),
        score_figure([{"event": "evaluation", "iteration": 1, name: 0.5}]),
    )
    for number, figure in enumerate(figures):
        save_figure(figure, tmp_path / f"{number}.png", 40)
