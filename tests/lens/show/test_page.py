"""The explorer's page in Python: content, precision, and independence from other files."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from typing import Any
from zlib import decompress

import matplotlib
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from cost import LargestTensor
from dnlnet import VARIANTS, NonLocalBlock
from dnlnet.attention import Terms
from dnlnet.data.classes import Classes
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, LayerHead
from dnlnet.lens.show.page.fit import fit_maps
from dnlnet.lens.show.page.grid import Grid, coarse_maps, quantise
from dnlnet.lens.show.page.html import attention_page

CLASSES = Classes(["sky", "road"], [(0, 0, 255), (90, 90, 90)])


def terms_of(variant: str, size: tuple[int, int] = (9, 13), pool: int = 1, scale: float = 40.0) -> Terms:
    torch.manual_seed(3)
    block = NonLocalBlock(8, variant, pool=pool)
    return block.terms(scale * torch.randn(1, 8, *size))


def image_of(*views: AttentionView, size: tuple[int, int] = (36, 52), name: str = "street.jpg") -> AttendedImage:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    return AttendedImage(name, pixels, views)


def content_of(page: str) -> Any:
    found = re.search(r'<script id="content" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def naive_means(attention: Tensor, factor: int) -> NDArray[np.float64]:
    """Compute means cell by cell, from the definition."""
    height, width = attention.shape
    cells = [
        [
            attention[top : top + factor, left : left + factor].double().mean().item()
            for left in range(0, width, factor)
        ]
        for top in range(0, height, factor)
    ]
    return np.array(cells)


def test_the_colours_are_matplotlibs() -> None:
    stored = content_of(attention_page([image_of(AttentionView("v", terms_of("gc")))]))["colours"]
    assert list(stored) == ["inferno", "magma", "viridis", "turbo", "greys"]
    for name, text in stored.items():
        colours = matplotlib.colormaps["gray" if name == "greys" else name](np.arange(256), bytes=True)[:, :3]
        found = np.frombuffer(decompress(b64decode(text)), np.uint8).reshape(256, 3)
        assert np.abs(found.astype(int) - colours).max() <= 1  # rounded in a different way


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 20])
def test_cells_are_means_even_at_the_border(factor: int) -> None:
    maps = torch.rand(2, 9, 13)
    means = Grid((9, 13), factor).means(maps)
    assert tuple(means.shape[1:]) == Grid((9, 13), factor).cells
    for mean, attention in zip(means, maps, strict=True):
        np.testing.assert_allclose(mean, naive_means(attention, factor), rtol=1e-6)


def test_the_query_of_a_cell_is_its_centre() -> None:
    assert Grid((7, 5), 3).centres().tolist() == [1 * 5 + 1, 1 * 5 + 3, 4 * 5 + 1, 4 * 5 + 3, 6 * 5 + 1, 6 * 5 + 3]


def test_codes_are_within_a_255th_of_the_range() -> None:
    maps = torch.rand(5, 7, 11) ** 8 + torch.tensor([0, 0.1, 1, 10, 100])[:, None, None]
    error = (torch.from_numpy(quantise(maps).values()) - maps).abs().amax(dim=(1, 2))
    # Codes of maps that vary little relative to their values are limited by the digits of float32.
    assert (error <= (maps.amax(dim=(1, 2)) - maps.amin(dim=(1, 2))) / 255 + 1e-7 * maps.amax(dim=(1, 2))).all()


def test_a_constant_map_and_a_single_peak_are_kept() -> None:
    maps = torch.zeros(2, 3, 4)
    maps[0], maps[1, 1, 2] = 0.25, 1
    np.testing.assert_array_equal(quantise(maps).values(), maps)


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_stored_maps_equal_those_of_their_queries_within_the_stated_loss(variant: str, pool: int) -> None:
    terms = terms_of(variant, pool=pool)
    h, w = terms.key_size
    coarse = coarse_maps(terms, Grid((9, 13), 4), Grid((h, w), 3))
    queries = [(row, column) for row in (1, 5, 8) for column in (1, 5, 9, 12)]
    maps = terms.maps(queries)
    shown = {name: codes.values() for name, codes in coarse.parts.items()}
    shown.setdefault("combined", sum(shown.values(), start=np.zeros(1, np.float32)))
    exact = {"pairwise": maps.pairwise, "unary": maps.unary, "combined": maps.combined}
    errors = []
    for name, part in exact.items():
        assert (part is None) == (name not in shown)
        if part is not None:
            wanted = np.stack([naive_means(each, 3) for each in part.reshape(-1, h, w)])
            errors.append((np.abs(shown[name] - wanted) / wanted.max(axis=(1, 2), keepdims=True)).max())
    assert max(errors) <= coarse.loss + 1e-6
    assert coarse.loss < 0.01


def test_combined_maps_are_stored_only_if_they_are_not_a_sum() -> None:
    stored = {name: sorted(coarse_maps(terms_of(name), Grid((9, 13)), Grid((9, 13))).parts) for name in VARIANTS}
    assert stored["nl"] == stored["dnl_star"] == ["combined", "pairwise", "unary"]
    assert stored["dnl"] == stored["dnl_dagger"] == ["pairwise", "unary"]
    assert stored["gc"] == stored["nl_unary"] == ["unary"]
    assert stored["nl_pairwise"] == ["pairwise"]


def test_smaller_budgets_give_coarser_maps() -> None:
    terms = terms_of("dnl", (24, 24))
    fine, _ = fit_maps(terms, 400_000)
    coarse, parts = fit_maps(terms, 40_000)
    assert fine.keys.factor == fine.queries.factor == 1
    assert coarse.keys.factor > 1
    assert sum(len(text) for part in parts.values() for text in part.values()) <= 40_000
    with pytest.raises(ValueError, match="allow a larger page"):
        fit_maps(terms, 10)


def test_sharp_attention_is_not_stored_finer_than_a_browser_can_load() -> None:
    maps, _ = fit_maps(terms_of("nl_pairwise", (64, 64), scale=1000), 10_000_000)
    assert maps.queries.count * maps.keys.count <= 12_000_000


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_a_page(variant: str) -> None:
    (image,) = content_of(attention_page([image_of(AttentionView(variant, terms_of(variant)))]))["images"]
    (view,) = image["views"]
    assert view["coupled"] == VARIANTS[variant].coupled
    assert ("pairwise" in view["parts"]) == VARIANTS[variant].pairwise


def test_a_page_of_two_views_of_97_by_97_positions_fits_its_budget() -> None:
    views = [AttentionView(name, terms_of(name, (97, 97), scale=20)) for name in ("nl", "dnl")]
    image = image_of(*views, size=(97, 97))
    with LargestTensor() as largest:
        page = attention_page([image], budget=1_500_000)
    assert 500_000 < len(page.encode()) <= 1_500_000
    assert largest.elements < 97**4 // 30
    for view in content_of(page)["images"][0]["views"]:
        assert "8 bits per cell: values are within" in view["statement"]


def test_many_images_share_the_budget() -> None:
    images = [image_of(AttentionView("dnl", terms_of("dnl", (20, 20))), size=(300, 400)) for _ in range(4)]
    assert len(attention_page(images, budget=500_000).encode()) <= 500_000
    with pytest.raises(ValueError, match=r"4 images.* fewer images"):
        attention_page(images, budget=60_000)


def test_the_page_makes_no_external_requests() -> None:
    page = attention_page([image_of(AttentionView("dnl", terms_of("dnl")))])
    assert "http://" not in page
    assert "https://" not in page
    assert re.findall(r'(?:src|href)="(?!data:)[^"]*"', page) == []
    assert "default-src 'none'" in page


def test_names_cannot_inject_markup() -> None:
    nasty = "</script><script>alert(1)</script><!-- {{content}} \\u2028 \"'&"
    image = image_of(AttentionView(nasty, terms_of("dnl")), name=nasty)
    page = attention_page([image], title=nasty)
    assert "<script>alert" not in page
    assert page.count("</script>") == attention_page([image_of(AttentionView("a", terms_of("dnl")))]).count(
        "</script>"
    )
    (stored,) = content_of(page)["images"]
    assert stored["name"] == stored["views"][0]["title"] == nasty


def test_labels_and_predictions_are_stored_once_each() -> None:
    rng = np.random.default_rng(1)
    labels, prediction = (rng.integers(0, 2, (36, 52), dtype=np.uint8) for _ in range(2))
    views = [AttentionView(name, terms_of("dnl"), prediction) for name in ("first block", "second block")]
    pixels = np.zeros((36, 52, 3), dtype=np.uint8)
    (stored,) = content_of(attention_page([AttendedImage("a", pixels, views, labels, CLASSES)]))["images"]
    assert [view["prediction"] for view in stored["views"]] == [0, 0]
    first, second = (
        np.frombuffer(decompress(b64decode(text)), np.uint8).reshape(stored["labelSize"]) for text in stored["labels"]
    )
    np.testing.assert_array_equal(first, prediction)
    np.testing.assert_array_equal(second, labels)
    assert stored["classes"] == {"names": ["sky", "road"], "palette": [[0, 0, 255], [90, 90, 90]]}


def test_the_covered_share_of_a_map_is_reported() -> None:
    view = AttentionView("detector", terms_of("dnl"), covered=(0.75, 1.0))
    assert content_of(attention_page([image_of(view)]))["images"][0]["views"][0]["covered"] == [0.75, 1.0]


def test_without_images_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="at least one"):
        attention_page([])


def test_a_page_starts_at_the_requested_point_and_a_transformer_at_a_deep_layer() -> None:
    def layers(head: str) -> list[AttentionView]:
        places = [LayerHead("vit", str(number), head) for number in range(12)]
        return [AttentionView(place.title, terms_of("nl", (3, 4)), place=place) for place in places]

    asked = replace(image_of(*layers("mean of 6 heads")), start=(20, 11))
    heads = image_of(*layers("head 0"), *layers("head 1"))
    ours = image_of(AttentionView("nl", terms_of("nl")), AttentionView("dnl", terms_of("dnl")))
    found = content_of(attention_page([asked, heads, ours]))["images"]
    assert [(part["view"], part["compare"]) for part in found] == [(7, False), (0, False), (0, True)]
    assert found[0]["start"] == [20, 11]
