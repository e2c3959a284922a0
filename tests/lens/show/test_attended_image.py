import numpy as np
import pytest
import torch

from dnlnet import NonLocalBlock
from dnlnet.attention import Terms
from dnlnet.attention.terms import Logits
from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import IGNORE, Classes
from dnlnet.lens.show.attend_files import describe_image
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, interior_points
from dnlnet.segmentation.inference import Inference
from dnlnet.segmentation.predictor import SegmentationModel
from dnlnet.segmentation.tiny import TinySegmentor

CLASSES = Classes(["a", "b"], [(0, 0, 0), (9, 9, 9)])
PIXELS = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)


def terms(variant: str = "dnl", size: tuple[int, int] = (8, 12)):
    return NonLocalBlock(4, variant).terms(torch.randn(1, 4, *size))


def test_a_point_belongs_to_its_cell() -> None:
    view = AttentionView("v", terms())
    image = AttendedImage("p", PIXELS, [view])
    for point, position in {(0, 0): (0, 0), (3, 4): (0, 1), (4, 3): (1, 0), (31, 47): (7, 11)}.items():
        assert view.position(point, image) == position


def test_an_upsampled_map_keeps_its_values_at_cell_centres() -> None:
    view = AttentionView("v", terms(size=(4, 6)))
    attention = torch.rand(4, 6)
    over = view.over_image(attention, AttendedImage("p", np.zeros((20, 30, 3), np.uint8), [view]))
    torch.testing.assert_close(over[2::5, 2::5], attention)


def test_views_of_a_segmentation_model_come_from_one_pass_over_the_whole_image() -> None:
    torch.manual_seed(0)
    network = TinySegmentor(2).eval()
    model = SegmentationModel(network, CLASSES, Inference(scales=(0.5, 1.0), flip=True))
    (view,) = model.attention_views("tiny", PIXELS)
    images = normalised(torch.from_numpy(PIXELS).permute(2, 0, 1)[None])
    with torch.no_grad():
        expected = network(images).logits.argmax(dim=1)[0]
        maps = network.block.attention_maps(network.features(images), [(3, 4)])
    assert np.array_equal(view.prediction, expected.numpy())
    torch.testing.assert_close(view.terms.maps([(3, 4)]).pairwise, maps.pairwise)


def test_a_record_contains_the_maps_and_the_cell_of_each_query() -> None:
    labels = np.zeros((32, 48), np.uint8)
    labels[:, 24:] = IGNORE
    view = AttentionView("mine", terms(), prediction=np.ones((32, 48), np.uint8))
    content, maps = describe_image(
        AttendedImage("p", PIXELS, [view, AttentionView("other", terms("gc"))], labels, CLASSES), [(5, 7), (0, 40)]
    )
    first, second = content["views"][0]["queries"]
    assert first == {"x": 7, "y": 5, "row": 1, "column": 1, "true": "a", "predicted": "b"}
    assert second["true"] is None
    assert set(maps) == {"0/pairwise", "0/unary", "0/combined", "1/unary", "1/combined"}
    np.testing.assert_array_equal(maps["0/pairwise"], view.terms.maps([(1, 1), (0, 10)]).pairwise[0].numpy())


def test_interior_points_have_different_classes_and_avoid_void() -> None:
    labels = np.zeros((24, 32), dtype=np.uint8)
    labels[:, 20:] = 1
    assert [int(labels[point]) for point in interior_points(labels, count=3)] == [0, 1]
    labels[:, :20] = IGNORE
    assert [int(labels[point]) for point in interior_points(labels, count=3)] == [1]
    labels[:] = IGNORE
    assert interior_points(labels) == [(12, 16)]


def test_the_default_point_without_classes_is_the_centre() -> None:
    assert AttendedImage("p", PIXELS, [AttentionView("v", terms())]).interior_points() == [(16, 24)]


@pytest.mark.parametrize("labelled", [True, False])
def test_a_page_starts_at_a_point_whose_map_is_neither_uniform_nor_a_dot(labelled: bool) -> None:
    """The upper third attends to one cell of its class, the middle third to all cells, the lower one to its class."""
    size, count = (6, 12), 72
    rows = torch.zeros(count, count)
    rows[:24] = -60.0
    rows[:24, 0] = 0.0
    rows[48:, :48] = -60.0
    labels = np.zeros((24, 48), np.uint8)
    labels[16:] = 1
    terms = Terms(Logits(rows[None], torch.eye(count)[None]), None, None, size, size)
    view = AttentionView("v", terms, labels if labelled else None)
    image = AttendedImage("p", np.zeros((24, 48, 3), np.uint8), [view], classes=CLASSES)
    assert image.start_point()[0] >= 16


def test_mismatched_images_and_views_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pixels must be \(H, W, 3\) of uint8"):
        AttendedImage("p", PIXELS[0], [AttentionView("v", terms())])
    with pytest.raises(ValueError, match=r"labels: .*\(32, 48\).*\(31, 48\)"):
        AttendedImage("p", PIXELS, [AttentionView("v", terms())], np.zeros((31, 48), np.uint8), CLASSES)
    with pytest.raises(ValueError, match=r"v: .*classes"):
        AttendedImage("p", PIXELS, [AttentionView("v", terms(), prediction=np.zeros((32, 48), np.uint8))])
    with pytest.raises(ValueError, match="has no views"):
        AttendedImage("p", PIXELS, [])
    with pytest.raises(ValueError, match=r"v: .*2d block.*\(9,\)"):
        AttentionView("v", NonLocalBlock(4, dims=1).terms(torch.randn(1, 4, 9)))
    with pytest.raises(ValueError, match=r"v: covered .*0\.\.1.*\(0\.0, 1\.0\)"):
        AttentionView("v", terms(), covered=(0.0, 1.0))


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 5), (20, 31)])
def test_interior_points_are_the_farthest_from_any_border(size: tuple[int, int]) -> None:
    """Compare with the distance of every pixel to the nearest outside pixel, the larger of rows and columns."""
    labels = torch.randint(3, size, generator=torch.Generator().manual_seed(0))
    labels[: size[0] // 2, : size[1] // 2] = 1
    expected = []
    for label in labels.unique().tolist():
        outside = [
            (row, column)
            for row in range(-1, size[0] + 1)
            for column in range(-1, size[1] + 1)
            if not (0 <= row < size[0] and 0 <= column < size[1]) or labels[row, column] != label
        ]
        depths = {
            (row, column): min(max(abs(row - y), abs(column - x)) for y, x in outside)
            for row, column in (labels == label).nonzero().tolist()
        }
        deepest = max(depths.values())
        expected.append((-deepest, min(point for point, depth in depths.items() if depth == deepest)))
    assert interior_points(labels.numpy(), count=3, classes=3) == [point for _, point in sorted(expected)]


def test_padding_of_a_one_row_image_is_never_a_query() -> None:
    model = SegmentationModel(TinySegmentor(2, width=4), CLASSES)
    pixels = PIXELS[:1]
    (view,) = model.attention_views("v", pixels)
    assert view.terms.size == (2, 12)
    image = AttendedImage("p", pixels, [view], classes=CLASSES)
    assert [view.position((0, column), image) for column in (0, 47)] == [(0, 0), (0, 11)]
    assert view.over_image(view.terms.maps([(0, 0)]).combined[0, 0], image).shape == (1, 48)
