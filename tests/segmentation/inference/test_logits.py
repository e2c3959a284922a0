from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.errors import TooMuchWorkError
from dnlnet.registry import RECIPES
from dnlnet.segmentation.inference import Inference
from dnlnet.segmentation.recipe import SegmentationRecipe
from dnlnet.segmentation.tiny import TinySegmentor


def network(images: Tensor) -> Tensor:
    return torch.cat([images[:, :1] ** 2, images[:, 1:2].cumsum(dim=3)], dim=1)


IMAGE = torch.rand(1, 3, 13, 18, dtype=torch.float64)


def resized(x: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(x, (height, width), mode="bilinear", align_corners=True)


def test_the_default_is_the_network_itself() -> None:
    assert torch.equal(Inference()(network, IMAGE), network(IMAGE))


def test_scales_and_flips_are_averaged_as_in_a_plain_loop() -> None:
    total = torch.zeros(1, 2, 13, 18, dtype=torch.float64)
    for height, width in ((7, 9), (13, 18), (20, 27)):  # halves are rounded up
        image = resized(IMAGE, height, width)
        total += resized(network(image), 13, 18)
        total += resized(network(image.flip(-1)).flip(-1), 13, 18)
    ours = Inference(scales=(0.5, 1.0, 1.5), flip=True)(network, IMAGE)
    torch.testing.assert_close(ours, total / 6)


def test_resizing_aligns_corners_like_the_network() -> None:
    ours = Inference(short_side=26, align_corners=False)(network, IMAGE)
    larger = F.interpolate(IMAGE, (26, 36), mode="bilinear", align_corners=False)
    torch.testing.assert_close(ours, F.interpolate(network(larger), (13, 18), mode="bilinear", align_corners=False))


def test_the_short_side_is_applied_before_the_scales() -> None:
    sizes = []

    def recorded(images: Tensor) -> Tensor:
        sizes.append(tuple(images.shape[-2:]))
        return network(images)

    out = Inference(short_side=26, scales=(0.5, 1.0))(recorded, IMAGE)
    assert sizes == [(13, 18), (26, 36)]
    assert out.shape == (1, 2, 13, 18)


def never(images: Tensor) -> Tensor:
    raise AssertionError("the network was asked")


@pytest.mark.parametrize(
    "settings",
    [
        {"window": (8, 8), "stride": (1, 1)},
        {"scales": (20.0,) * 50},
        {"scales": (20.0,)},  # attention is quadratic in the size of the input
        {"short_side": 65_536},
        {"divisor": 65_536},
        {"window": (65_536, 65_536), "stride": (1, 1), "scales": (20.0,), "short_side": 65_536},
    ],
)
def test_excessive_work_is_refused_before_it_starts(settings: dict[str, Any]) -> None:
    image = torch.zeros(1, 3, 600, 800)
    for look in (Inference(**settings), Inference(**settings).labels):
        with pytest.raises(TooMuchWorkError, match="800 x 600") as error:
            look(never, image)
        assert "\n" not in str(error.value)


def test_the_work_counts_the_inputs_of_the_network() -> None:
    seen = []

    def recorded(images: Tensor) -> Tensor:
        seen.append(images[:, :1].numel())
        return images[:, :1]

    image = torch.zeros(1, 3, 300, 401)
    for settings in (
        {"scales": (0.5, 1.0, 1.5), "flip": True},
        {"window": (128, 200), "stride": (70, 150), "scales": (1.0, 1.3), "divisor": 32},
        {"short_side": 500, "long_side": 600},
    ):
        seen.clear()
        Inference(**settings)(recorded, image)
        assert Inference(**settings).work((300, 401)) == sum(seen)
    assert Inference().work((3, 3)) == 128 * 128  # each pass has a minimum cost


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (375, 500), (1024, 2048), (30, 900), (3000, 40)])
def test_every_recipe_is_far_below_the_limit(size: tuple[int, int]) -> None:
    for recipe in RECIPES.values():
        if isinstance(recipe, SegmentationRecipe):
            inference = recipe.evaluation.inference(recipe.model)
            assert 4 * inference.work(size) <= inference.most_work(size), recipe.name


def test_windows_are_used_at_every_scale() -> None:
    sizes = set()

    def recorded(images: Tensor) -> Tensor:
        sizes.add(tuple(images.shape[-2:]))
        return network(images)

    Inference(window=(8, 8), stride=(5, 5), scales=(1.0, 2.0))(recorded, IMAGE)
    assert sizes == {(8, 8)}


def test_the_image_is_not_modified() -> None:
    before = IMAGE.clone()
    Inference(scales=(1.0, 0.5), flip=True)(lambda x: x, IMAGE)
    assert torch.equal(IMAGE, before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": (4, 4)}, "windows need a size and a stride"),
        ({"window": (4, 4), "stride": (4, 5)}, "a stride of 5 leaves gaps between windows of 4"),
        ({"scales": ()}, r"scales\n.*at least 1 item"),
        ({"scales": (1.0, -1.0)}, r"scales\.1\n.*greater than or equal to 0\.05"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Inference(**settings)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (3, 2)])
@pytest.mark.parametrize(
    "inference",
    [
        Inference(),
        Inference(scales=(0.25, 1.0), flip=True),
        Inference(window=(16, 16), stride=(8, 8)),
        Inference(window=(1, 1), stride=(1, 1)),
        Inference(short_side=24),
    ],
)
def test_the_smallest_images_have_logits(inference: Inference, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    model = TinySegmentor(3, width=4).eval()
    with torch.no_grad():
        logits = inference(lambda images: model(images).logits, torch.rand(1, 3, *size))
    assert logits.shape == (1, 3, *size)
    assert logits.isfinite().all()


def test_the_border_of_a_small_image_is_repeated() -> None:
    image = torch.arange(6.0).view(1, 1, 3, 2).expand(1, 3, 3, 2)
    seen = []

    def network(images: torch.Tensor) -> torch.Tensor:
        seen.append(images[0, 0])
        return images

    torch.testing.assert_close(Inference()(network, image), image)
    assert seen[0].tolist() == [[0, 1, 1, 1, 1], [2, 3, 3, 3, 3], *[[4, 5, 5, 5, 5]] * 3]


def test_a_narrow_image_is_not_enlarged_without_limit() -> None:
    seen = []

    def network(images: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(images.shape[-2:]))
        return images

    assert Inference(short_side=20)(network, torch.rand(1, 3, 2, 1000)).shape == (1, 3, 2, 1000)
    Inference(short_side=20)(network, torch.rand(1, 3, 10, 70))  # an ordinary image keeps its shape
    assert seen == [(5, 160), (20, 140)]


@pytest.mark.parametrize("size", [(9, 30), (5, 5), (64, 40)])
@pytest.mark.parametrize(
    "inference",
    [
        Inference(flip=True),
        Inference(window=(16, 12), stride=(8, 8), scales=(0.5, 1.0, 1.75), flip=True, batch=3),
        Inference(window=(16, 16), stride=(16, 16), short_side=30),
    ],
)
def test_passes_are_counted_in_advance(inference: Inference, size: tuple[int, int]) -> None:
    passes = []
    inference(lambda images: passes.append(images) or images, torch.rand(1, 3, *size))
    assert inference.passes(size) == len(passes)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [(40, 31), (41, 1), (2, 90)])
def test_labels_computed_in_strips_equal_those_of_the_logits(
    size: tuple[int, int], align_corners: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnlnet.segmentation.inference.logits._STRIP", 7 * size[1])
    torch.manual_seed(0)
    image = torch.rand(1, 3, *size, dtype=torch.float64)
    inference = Inference(scales=(0.3, 0.6), flip=True, align_corners=align_corners)
    expected = inference(lambda x: x, image)
    labels = inference.labels(lambda x: x, image)
    assert labels.dtype == torch.uint8
    assert torch.equal(labels, expected.argmax(dim=1)[0].to(torch.uint8))
