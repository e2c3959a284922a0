"""Results that draw themselves: predictions, detections, actions, attention maps and attended images."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageShow

from dnlnet import AttentionMaps, NonLocalBlock
from dnlnet.data.classes import Classes
from dnlnet.detection.predictor import Detections
from dnlnet.lens.show.drawable import Drawable
from dnlnet.segmentation.predictor import Prediction
from dnlnet.video.predictor import Action

TWO = Classes(["sky", "<b>road</b>"], [(0, 90, 255), (90, 90, 90)])
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
LABELS = np.zeros((24, 32), dtype=np.uint8)
LABELS[18:] = 1
MASKS = np.stack([LABELS == 0, LABELS == 1, LABELS == 1])
BOXES = np.array([[0, 0, 31, 17], [0, 18, 31, 23], [0, 18, 31, 23]], np.float32)

RESULTS: dict[str, tuple[Drawable, str]] = {
    "prediction": (Prediction(PIXELS, LABELS, TWO), "Prediction(32 x 24: sky 75%, <b>road</b> 25%)"),
    "detections": (
        Detections(PIXELS, BOXES, np.array([0, 1, 1]), np.array([0.9, 0.8, 0.7], np.float32), MASKS, TWO),
        "Detections(32 x 24: 2 <b>road</b>, 1 sky)",
    ),
    "action": (Action(np.array([0.3, 0.7], np.float32), TWO), "Action(<b>road</b> 70%, sky 30%)"),
}


def maps_of(dims: int, variant: str = "dnl", batch: int = 1) -> AttentionMaps:
    size = (5, 6, 4)[:dims]
    return NonLocalBlock(8, variant, dims=dims).attention_maps(
        torch.rand(batch, 8, *size), [(1,) * dims, (3,) * dims]
    )


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_can_be_shown_saved_and_described(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, text = RESULTS[name]
    assert repr(result) == text
    with Image.open(BytesIO(result._repr_png_())) as image:
        assert min(image.size) > 50
    assert len(result.plot().axes) == 1
    result.save(tmp_path / "result.png")
    with Image.open(tmp_path / "result.png") as image:
        image.load()
        if name != "action":
            assert image.size == (32, 24)  # the overlay, in pixels of the image
    shown: list[Image.Image] = []
    monkeypatch.setattr(ImageShow, "_viewers", [])
    with pytest.raises(ValueError, match=r"no image viewer.*save\(path\)"):
        result.show()
    monkeypatch.setattr(ImageShow, "show", lambda image: shown.append(image) or True)
    result.show()
    assert len(shown) == 1


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_maps_of_any_dimension_can_be_plotted(dims: int, tmp_path: Path) -> None:
    maps = maps_of(dims)
    assert repr(maps).startswith("AttentionMaps(1 x 2 queries over 5")
    titles = [axes.get_title() for axes in maps.plot().axes if axes.get_title()]
    assert titles == ["pairwise", "unary", "pairwise + unary"]
    maps.save(tmp_path / "maps.png")
    with Image.open(BytesIO(maps._repr_png_())) as image:
        assert min(image.size) > 100


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("nl", ["pairwise", "unary", "attention"]), ("gc", ["unary"]), ("nl_pairwise", ["pairwise"])],
)
def test_maps_have_a_column_for_each_term(variant: str, expected: list[str]) -> None:
    assert [axes.get_title() for axes in maps_of(2, variant).plot().axes if axes.get_title()] == expected


def test_maps_are_drawn_over_an_image_with_their_queries_marked() -> None:
    maps = NonLocalBlock(8, "nl_pairwise").attention_maps(torch.rand(1, 8, 6, 8), [(0, 0), (3, 7)])
    assert maps.queries == ((0.5 / 6, 0.5 / 8), (3.5 / 6, 7.5 / 8))
    first, second, _ = maps.plot(over=Image.fromarray(PIXELS)).axes
    assert first.images[0].get_array().shape == (24, 32, 3)
    (mark,) = second.lines
    assert (float(mark.get_xdata()[0]), float(mark.get_ydata()[0])) == (7.5 * 4 - 0.5, 3.5 * 4 - 0.5)


def test_maps_are_drawn_over_the_tensor_that_a_network_takes() -> None:
    images = torch.rand(1, 3, 24, 32)
    maps = NonLocalBlock(8, "nl_pairwise").attention_maps(torch.rand(1, 8, 6, 8), [(0, 0)])
    drawn, same = (maps.plot(over=one).axes[0].images[0].get_array() for one in (images, images[0]))
    np.testing.assert_array_equal(drawn, same)
    with pytest.raises(ValueError, match=r"\(2, 3, 24, 32\)"):
        maps.plot(over=torch.rand(2, 3, 24, 32))


def test_heads_are_counted_from_zero() -> None:
    names = [axes.get_ylabel() for axes in maps_of(2, "nl_pairwise", batch=3).plot().axes if axes.get_ylabel()]
    assert sorted(name.split()[-1] for name in names) == ["0", "0", "1", "1", "2", "2"]


def test_only_image_maps_are_drawn_over_an_image() -> None:
    with pytest.raises(ValueError, match=r"2d maps.* 3 dimensions"):
        maps_of(3).plot(over=PIXELS)


def test_many_queries_do_not_make_an_endless_figure() -> None:
    figure = maps_of(2, "nl_pairwise", batch=40).plot()
    assert len([axes for axes in figure.axes if axes.get_ylabel().startswith("query")]) == 12
    width, height = figure.get_size_inches()
    assert height <= 2 * width
