"""Selection of a transformer's layers and heads, and notes about the rest."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from matplotlib.figure import Figure

from dnlnet import NonLocalBlock
from dnlnet.lens.show.attend_files import describe_image
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView
from dnlnet.lens.show.layer_figure import layer_figure
from dnlnet.lens.show.layer_views import layer_views, left_out, with_few_layers
from dnlnet.lens.trace.capture import Captured, capture
from dnlnet.lens.trace.layout import Layout
from dnlnet.lens.trace.recorded import LayerChoice, RecordedAttention

PIXELS = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def captured() -> Captured:
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224", img_size=(32, 48), embed_dim=24, depth=9, num_heads=3).eval()
    with capture(vit) as attention, torch.no_grad():
        vit(torch.rand(1, 3, 32, 48))
    return attention


def image_of(captured: Captured, choice: LayerChoice, *views: AttentionView) -> AttendedImage:
    return AttendedImage("sea", PIXELS, [*layer_views("vit", captured, choice), *views])


def layers_of(image: AttendedImage) -> list[int]:
    return [int(view.place.layer.split()[0]) for view in image.views if view.place is not None]


@pytest.mark.parametrize(
    ("heads", "most", "most_layers", "shown"),
    [
        ("mean", 12, 4, [1, 3, 5, 8]),
        ("mean", 12, None, list(range(9))),
        ("mean", 5, None, [0, 2, 4, 6, 8]),
        ("all", 12, 4, [2] * 4 + [5] * 4 + [8] * 4),
        ("all", 3, None, [8] * 4),  # all heads of a layer stay together
    ],
)
def test_a_few_layers_are_spread_over_the_depth_and_include_the_last(
    captured: Captured, heads: str, most: int, most_layers: int | None, shown: list[int]
) -> None:
    image = image_of(captured, LayerChoice(heads=heads))  # type: ignore[arg-type]
    assert layers_of(with_few_layers(image, most, most_layers)) == shown


def test_views_of_dnlnet_blocks_all_stay(captured: Captured) -> None:
    ours = AttentionView("dnl", NonLocalBlock(8, "dnl").terms(torch.rand(1, 8, 4, 6)))
    few = with_few_layers(image_of(captured, LayerChoice(), ours), 2)
    assert few.views[-1] is ours
    assert layers_of(few) == [3, 8]


def test_omissions_are_noted(captured: Captured) -> None:
    image = image_of(captured, LayerChoice())
    few = with_few_layers(image, 2)
    means = "the mean over heads is shown; select one with --heads 3, or all with --heads all"
    assert left_out(image.views, few.views) == (
        f"layers 3, 8 of the 9 of vit are shown; select others with --layers; {means}"
    )
    assert left_out(image.views, image.views) == means
    every = image_of(captured, LayerChoice(heads="all"))
    assert left_out(every.views, every.views) == ""


def test_layers_without_image_maps_are_skipped(captured: Captured) -> None:
    layer = captured["blocks.0.attn"]
    assert isinstance(layer, RecordedAttention)
    row, one = Layout((6,), (6,), 1, 1), Layout((1, 1), (2, 3), 6, 1)  # text, and the class token's own attention
    found = Captured(a=layer, b=layer.laid_out(row), c=layer.laid_out(one), d=replace(layer, layout="windows"))
    assert list(LayerChoice().of(found)) == [0]
    assert list(LayerChoice([3, 0]).of(found)) == [3, 0]


def titles_of(figure: Figure) -> list[str]:
    """Return titles. Drop the note below them that maps of random weights are nearly uniform."""
    return [axes.get_title().partition("nearly uniform")[0].strip() for axes in figure.axes]


def names_of_rows(figure: Figure) -> list[str]:
    return [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]


def test_a_figure_has_one_row_per_view_and_one_column_per_term(captured: Captured) -> None:
    figure = layer_figure(image_of(captured, LayerChoice([0, 5])), [(3, 4), (20, 40)], title="a vit")
    assert figure.axes[-1].get_label() == "<colorbar>"
    columns = ["attention of 1", "attention of 2", "unary, for all queries", "pairwise of 1", "pairwise of 2"]
    assert [title for title in titles_of(figure) if title] == ["sea", *columns]
    assert names_of_rows(figure) == [f"layer {number}\n(blocks.{number}.attn)\nmean of 3 heads" for number in (0, 5)]


@pytest.mark.parametrize("layers", [[0], [0, 5], [0, 2, 5, 8]])
@pytest.mark.parametrize("points", [[(3, 4)], [(3, 4), (20, 40)]])
def test_no_cell_of_a_figure_is_empty(captured: Captured, layers: list[int], points: list[tuple[int, int]]) -> None:
    """Images and text fill the grid, except below the column that holds the image and the text."""
    figure = layer_figure(image_of(captured, LayerChoice(layers)), points)
    *places, _ = figure.axes
    assert all(axes.images or axes.texts for axes in places)
    spans = [axes.get_subplotspec() for axes in places]
    taken = sum(len(span.rowspan) * len(span.colspan) for span in spans if span is not None)
    rows, columns = spans[0].get_gridspec().get_geometry()  # type: ignore[union-attr]
    beside = columns > 1 + 2 * len(points)
    assert rows * columns - taken == (max(0, rows - 2) if beside else 0)
    assert beside == (len(layers) < 1 + 2 * len(points))


@pytest.mark.parametrize(("layers", "shape"), [([0, 5], (32, 48)), ([0, 5], (48, 32)), (None, (32, 48))])
def test_all_heads_of_layers_make_no_endless_figure(
    captured: Captured, layers: list[int] | None, shape: tuple[int, int]
) -> None:
    views = layer_views("vit", captured, LayerChoice(layers, "all"))
    figure = layer_figure(AttendedImage("sea", np.zeros((*shape, 3), np.uint8), views), [(3, 4)])
    width, height = figure.get_size_inches()
    assert 0.5 * width <= height <= 2.2 * width
    heads = [name.split("\n")[-1] for name in names_of_rows(figure)]
    assert heads == ["mean of 3 heads", "head 0", "head 1", "head 2"] * (len(views) // 4)


def test_a_layer_is_found_by_the_number_that_the_command_takes(captured: Captured) -> None:
    for number in (0, 8):
        (by_choice,) = LayerChoice([number]).of(captured).values()
        assert captured[number] is by_choice is captured[f"blocks.{number}.attn"]
    with pytest.raises(ValueError, match=r"layer 9; the model has 9"):
        captured[9]


def test_a_figure_of_several_models_names_them_and_accepts_dnlnet_blocks(captured: Captured) -> None:
    ours = AttentionView("mine", NonLocalBlock(8, "gc").terms(torch.rand(1, 8, 4, 6)))
    views = [*layer_views("one", captured, LayerChoice([0])), *layer_views("two", captured, LayerChoice([0])), ours]
    figure = layer_figure(AttendedImage("sea", PIXELS, views), [(3, 4)])
    assert [name.split("\n")[0] for name in names_of_rows(figure)] == ["one", "two", "mine"]
    assert not figure.axes[-2].images  # this block has no pairwise term
    with pytest.raises(ValueError, match="no query points"):
        layer_figure(AttendedImage("sea", PIXELS, views), [])


def test_layer_and_head_are_written_to_the_record(captured: Captured) -> None:
    content, maps = describe_image(image_of(captured, LayerChoice([8], 2)), [(0, 0)])
    (view,) = content["views"]
    assert (view["layer"], view["head"]) == ("8 (blocks.8.attn)", "head 2")
    expected = captured["blocks.8.attn"].maps([(0, 0)], 2).pairwise  # type: ignore[union-attr]
    np.testing.assert_array_equal(maps["0/pairwise"], expected[0])
