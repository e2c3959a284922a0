"""The explorer's page in a real browser: its maps equal those computed in Python at every point."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dnlnet import NonLocalBlock
from dnlnet.attention import Terms
from dnlnet.data.classes import Classes
from dnlnet.lens.show.attended_image import AttendedImage, AttentionView, DetectedBox, LayerHead
from dnlnet.lens.show.page.html import attention_page

CLASSES = Classes(["sky", "<b>road</b>"], [(80, 120, 255), (90, 90, 90)])
HEIGHT, WIDTH = 144, 208
SIZE = (18, 26)
LABELS = np.repeat(np.array([0, 1], dtype=np.uint8), HEIGHT // 2)[:, None].repeat(WIDTH, axis=1)
POINTS = [(3, 5), (70, 100), (143, 207)]  # (y, x)


def terms_of(variant: str, pool: int = 1, seed: int = 5) -> Terms:
    torch.manual_seed(seed)
    return NonLocalBlock(8, variant, pool=pool).terms(40 * torch.randn(1, 8, *SIZE))


def street() -> AttendedImage:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    views = [
        AttentionView("dnl", terms_of("dnl"), LABELS),
        AttentionView("nl", terms_of("nl"), LABELS[::-1].copy()),
        AttentionView(
            "gc",
            terms_of("gc"),
            boxes=[DetectedBox(1, 0.75, (90, 60, 120, 90)), DetectedBox(0, 0.5, (80, 50, 200, 140))],
        ),
        AttentionView("padded", terms_of("dnl", pool=2), covered=(0.7, 0.9)),
    ]
    return AttendedImage("street.jpg", pixels, views, LABELS, CLASSES)


def flat() -> AttentionView:
    torch.manual_seed(0)
    return AttentionView("flat", NonLocalBlock(8, "dnl").terms(0.01 * torch.randn(1, 8, *SIZE)))


def transformer() -> AttendedImage:
    """Return two models: one with two layers of three heads, one with a single layer without heads."""
    heads = ["mean of 2 heads", "head 0", "head 1"]
    places = [LayerHead("vit", layer, head) for layer in ("0 (first)", "1 (second)") for head in heads]
    places.append(LayerHead("swin", "0 (only)", "head 0"))
    views = [
        AttentionView(place.title, terms_of("nl", seed=number), place=place) for number, place in enumerate(places)
    ]
    return AttendedImage("cat.jpg", np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8), views)


@dataclass
class Opened:
    """A page in the browser and its error messages."""

    page: Any
    address: str
    complaints: list[str]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.page.evaluate("explorer.state()")
        return state

    def map(self, index: int, term: str) -> NDArray[np.float64] | None:
        values = self.page.evaluate("([index, term]) => explorer.map(index, term)", [index, term])
        return None if values is None else np.array(values)

    def go(self, hash_: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address + hash_)
        self.page.evaluate("explorer.ready")

    def click(self, point: tuple[int, int]) -> None:
        canvas = self.page.locator(".stage canvas").first
        box = canvas.bounding_box()
        (row, column), size = point, self.page.evaluate("content.images[explorer.state().image].size")
        y, x = (row + 0.5) * box["height"] / size[0], (column + 0.5) * box["width"] / size[1]
        canvas.click(position={"x": x, "y": y})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return addresses of a page with all positions, and of one so small that it has only some."""
    folder: Path = tmp_path_factory.mktemp("explorer")
    second = AttendedImage(
        "wide.jpg", np.zeros((40, 120, 3), dtype=np.uint8), [AttentionView("only", terms_of("dnl_star"))]
    )
    pages = {
        "fine": attention_page([street(), second]),
        "coarse": attention_page([street()], budget=240_000),
        "flat": attention_page([AttendedImage("night.jpg", np.zeros((40, 120, 3), dtype=np.uint8), [flat()])]),
        "square": attention_page([AttendedImage("night.jpg", np.zeros((90, 90, 3), dtype=np.uint8), [flat()])]),
        "transformer": attention_page([transformer()], note="layers 0, 1 of 12 are shown"),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


@pytest.fixture(scope="module")
def window(browser: Any) -> Iterator[Opened]:
    """Share one window between all tests, because opening one takes longer than most tests."""
    context = browser.new_context(has_touch=True)
    page = context.new_page()
    page.set_default_timeout(10_000)
    shown = Opened(page, "", [])
    page.on("console", lambda message: shown.complaints.append(message.text))
    page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    page.on("requestfailed", lambda request: shown.complaints.append(f"failed: {request.url}"))
    page.on("request", lambda request: is_local(request.url) or shown.complaints.append(f"asked: {request.url}"))
    yield shown
    context.close()


@pytest.fixture
def fine(window: Opened, files: dict[str, str]) -> Iterator[Opened]:
    yield from opened(window, files["fine"])


@pytest.fixture
def coarse(window: Opened, files: dict[str, str]) -> Iterator[Opened]:
    yield from opened(window, files["coarse"])


@pytest.fixture
def placed(window: Opened, files: dict[str, str]) -> Iterator[Opened]:
    yield from opened(window, files["transformer"])


@pytest.fixture(params=["fine", "coarse"])
def either(request: pytest.FixtureRequest, window: Opened, files: dict[str, str]) -> Iterator[Opened]:
    yield from opened(window, files[request.param])


def opened(window: Opened, address: str) -> Iterator[Opened]:
    window.address = address
    window.page.set_viewport_size({"width": 1200, "height": 800})
    window.page.mouse.move(0, 0)
    window.go("#a=0")
    yield window
    complaints, window.complaints = window.complaints, []
    assert complaints == []


def is_local(address: str) -> bool:
    return address.startswith(("file:", "data:", "about:"))


def naive_means(attention: Tensor, factor: int) -> NDArray[np.float64]:
    height, width = attention.shape
    return np.array(
        [
            attention[top : top + factor, left : left + factor].double().mean().item()
            for top in range(0, height, factor)
            for left in range(0, width, factor)
        ]
    )


def stored(shown: Opened, index: int) -> dict[str, Any]:
    script = "(index) => (({ queries, keys, loss }) => ({ queries, keys, loss }))(content.images[0].views[index])"
    view: dict[str, Any] = shown.page.evaluate(script, index)
    return view


@pytest.mark.parametrize("index", [0, 1, 3], ids=["dnl", "nl", "padded"])
def test_a_click_shows_the_maps_of_its_position(either: Opened, index: int) -> None:
    image = street()
    view = image.views[index]
    either.go(f"#a={index}")
    kept = stored(either, index)
    for point in POINTS:
        either.click(point)
        state = either.state()
        position = view.position(point, image)
        assert (state["y"], state["x"]) == point
        assert tuple(state["position"]) == position
        factor = kept["queries"]["factor"]
        starts = [at // factor * factor for at in position]
        query = tuple((s + min(s + factor, n) - 1) // 2 for s, n in zip(starts, SIZE, strict=True))
        assert tuple(state["query"]) == query
        maps = view.terms.maps([query])
        assert maps.pairwise is not None
        assert maps.unary is not None
        exact = {"pairwise": maps.pairwise[0, 0], "unary": maps.unary[0], "combined": maps.combined[0, 0]}
        for term, attention in exact.items():
            wanted = naive_means(attention, kept["keys"]["factor"])
            assert kept["loss"] < 0.01
            np.testing.assert_allclose(either.map(index, term), wanted, atol=(kept["loss"] + 1e-6) * wanted.max())


def test_a_small_page_has_coarse_maps_and_says_so(coarse: Opened) -> None:
    assert stored(coarse, 0)["queries"]["factor"] > 1
    assert "the mean of 2 \N{MULTIPLICATION SIGN} 2" in coarse.page.inner_text("footer")


def test_the_point_follows_the_pointer_until_pinned(fine: Opened) -> None:
    canvas = fine.page.locator(".stage canvas").first
    canvas.hover(position={"x": 40, "y": 30})
    before = fine.state()
    canvas.hover(position={"x": 200, "y": 90})
    followed = fine.state()
    assert (followed["x"], followed["pinned"]) != (before["x"], True)
    fine.click((100, 30))
    canvas.hover(position={"x": 5, "y": 5})
    assert (fine.state()["y"], fine.state()["x"], fine.state()["pinned"]) == (100, 30, True)
    fine.click((100, 30))
    assert not fine.state()["pinned"]
    fine.click((100, 30))
    fine.page.keyboard.press("Escape")
    assert not fine.state()["pinned"]


def swipe(shown: Opened, *places: tuple[float, float]) -> None:
    """Move a finger over the image; places are fractions of its width and height."""
    box = shown.page.locator(".stage canvas").first.bounding_box()
    finger = shown.page.context.new_cdp_session(shown.page)
    for number, (across, down) in enumerate(places):
        place = {"x": box["x"] + box["width"] * across, "y": box["y"] + box["height"] * down}
        kind = "touchMove" if number else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [place]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_horizontal_swipe_drags_the_point(fine: Opened) -> None:
    fine.go("#a=0")
    swipe(fine, (0.25, 0.5), (0.4, 0.5), (0.75, 0.5))
    state = fine.state()
    assert (state["x"], state["y"], state["pinned"]) == (WIDTH * 3 // 4, HEIGHT // 2, True)


def test_a_vertical_swipe_on_the_image_scrolls_the_page(fine: Opened) -> None:
    fine.page.set_viewport_size({"width": 390, "height": 640})
    fine.go("#a=0&x=10&y=20")
    assert fine.page.evaluate("scrollY") == 0
    swipe(fine, (0.5, 0.9), (0.5, 0.7), (0.5, 0.4), (0.5, 0.1))
    fine.page.wait_for_function("() => scrollY > 50")
    assert (fine.state()["x"], fine.state()["y"]) == (10, 20)


@pytest.mark.parametrize("hash_", ["#a=0", "#a=0&b=1"])
def test_after_a_tap_on_a_phone_the_map_is_visible(fine: Opened, hash_: str) -> None:
    fine.page.set_viewport_size({"width": 390, "height": 640})
    fine.go(hash_)
    canvas = fine.page.locator(".stage canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = (WIDTH // 2 + 0.5) / WIDTH, (HEIGHT // 2 + 0.5) / HEIGHT  # the middle of a pixel
    canvas.tap(position={"x": box["width"] * x, "y": box["height"] * y})
    where = "document.querySelector('[data-panel=pairwise] canvas').getBoundingClientRect()"
    fine.page.wait_for_function(f"() => {where}.bottom <= innerHeight")
    assert fine.page.evaluate(f"{where}.top") > 0
    assert (fine.state()["x"], fine.state()["y"], fine.state()["pinned"]) == (WIDTH // 2, HEIGHT // 2, True)


def test_arrow_keys_move_from_map_to_map(either: Opened) -> None:
    either.click((70, 100))
    factor = stored(either, 0)["queries"]["factor"]
    row, column = either.state()["query"]
    first = either.map(0, "pairwise")
    either.page.keyboard.press("ArrowRight")
    assert either.state()["query"] == [row, column + factor]
    assert not np.array_equal(first, either.map(0, "pairwise"))
    either.page.keyboard.press("Shift+ArrowDown")
    assert either.state()["position"][0] // factor == min(row // factor + 5, (SIZE[0] - 1) // factor)
    for _ in range(12):
        either.page.keyboard.press("Shift+ArrowUp")
    assert either.state()["position"][0] < factor
    assert "row 0" in either.page.inner_text("#live")


def test_the_url_keeps_the_point_the_image_and_the_views(fine: Opened) -> None:
    fine.go("#picture=0&x=120&y=80&a=1&b=0")
    state = fine.state()
    assert [state[name] for name in ("image", "x", "y", "a", "b", "compare")] == [0, 120, 80, 1, 0, True]
    fine.page.evaluate("location.hash = '#picture=1&x=7&y=9'")
    fine.page.wait_for_function("() => explorer.state().image === 1")
    fine.page.wait_for_function("() => location.hash === '#picture=1&x=7&y=9&a=0'")
    fine.click((20, 60))
    fine.page.wait_for_function("() => location.hash === '#picture=1&x=60&y=20&a=0'")


def test_invalid_parts_of_a_url_are_ignored(fine: Opened) -> None:
    fine.go("#picture=9&x=99999&y=-4&a=oops&b=77")
    state = fine.state()
    assert [state[name] for name in ("image", "x", "y", "a", "compare")] == [1, 119, 0, 0, False]


def test_compare_shows_two_views_of_the_same_point(fine: Opened) -> None:
    fine.go("#a=0")
    fine.click((70, 100))
    assert fine.page.locator(".view").count() == 1
    fine.page.click("#compare")
    fine.page.evaluate("explorer.ready")
    assert fine.page.locator(".view h2 b").all_inner_texts() == ["dnl", "nl"]
    assert fine.page.locator("#b").is_visible()
    fine.page.select_option("#b", label="gc")
    fine.page.evaluate("explorer.ready")
    assert fine.page.locator(".view h2 b").all_inner_texts() == ["dnl", "gc"]
    assert fine.map(2, "pairwise") is None
    assert fine.page.locator(".view").nth(1).get_by_text("This block has no pairwise map.").is_visible()
    np.testing.assert_array_equal(fine.map(2, "unary"), fine.map(2, "combined"))
    fine.page.keyboard.press("Escape")
    fine.page.locator("h1").click()
    fine.page.keyboard.press("c")
    assert fine.page.locator(".view").count() == 1


def test_it_opens_with_two_views_at_an_informative_point(fine: Opened) -> None:
    fine.go("")
    state = fine.state()
    assert [state[name] for name in ("a", "b", "compare", "pinned")] == [0, 1, True, False]
    assert (state["y"], state["x"]) == street().start_point()


def test_a_sentence_states_the_share_of_a_map_on_each_class(fine: Opened) -> None:
    fine.go("#a=0&x=100&y=20")
    for term in ("pairwise", "combined"):
        values = fine.map(0, term)
        assert values is not None
        share = values.reshape(SIZE)[: SIZE[0] // 2].sum() / values.sum()
        sentence = fine.page.inner_text(f"[data-panel={term}] .finding")
        assert sentence == f"{share:.0%} of it on sky, which covers 50 % of the image".replace("%", " %", 1)
    unary = fine.map(0, "unary")
    assert unary is not None
    upper = unary.reshape(SIZE)[: SIZE[0] // 2].sum() / unary.sum()
    name, share = ("sky", upper) if upper > 0.5 else ("<b>road</b>", 1 - upper)
    assert f"{round(100 * share)} % of it on {name}, which" in fine.page.inner_text("[data-panel=unary] .finding")
    fine.go("#picture=1")
    values = fine.map(0, "pairwise")
    assert values is not None
    falling = np.sort(values)[::-1].cumsum() / values.sum()
    half = (int((falling < 0.5).sum()) + 1) / len(values)
    sentence = fine.page.inner_text("[data-panel=pairwise] .finding")
    assert sentence == f"Half of it on {round(100 * half)} % of the image"


def test_a_box_shows_its_class_under_the_pointer(fine: Opened) -> None:
    fine.go("#a=2&x=100&y=70")
    assert "box of <b>road</b> 0.75" in fine.page.inner_text(".stage .readout")
    fine.go("#a=2&x=5&y=5")
    assert "box of" not in fine.page.inner_text(".stage .readout")


def test_the_current_view_is_saved_as_an_image(fine: Opened, tmp_path: Path) -> None:
    fine.go("#a=0&b=2&x=100&y=70")
    with fine.page.expect_download() as waiting:
        fine.page.click("#save")
    download = waiting.value
    assert download.suggested_filename == "attention street.jpg x100 y70.png"
    download.save_as(tmp_path / "seen.png")
    with Image.open(tmp_path / "seen.png") as image:
        assert image.size[0] > 1600
        assert len(set(image.convert("L").resize((60, 40)).get_flattened_data())) > 40


def test_the_url_keeps_colours_and_sliders(fine: Opened) -> None:
    fine.go("#a=0&x=1&y=2&colours=viridis&gamma=1.2&opacity=0.4&floor=weakest&overlay=truth")
    chosen = {id_: fine.page.input_value(f"#{id_}") for id_ in ("colours", "gamma", "opacity", "floor", "overlay")}
    assert list(chosen.values()) == ["viridis", "1.2", "0.4", "weakest", "truth"]
    fine.page.locator("#gamma").fill("0.7")
    fine.page.wait_for_function("() => location.hash.includes('gamma=0.7')")
    assert "colours=viridis" in fine.page.evaluate("location.hash")
    fine.go("#a=0&colours=none&gamma=x")
    assert fine.page.input_value("#colours") == "inferno"


def test_the_readout_escapes_class_names(fine: Opened) -> None:
    fine.go("#x=10&y=140&a=1")
    words = fine.page.inner_text(".stage .readout")
    assert "predicted sky" in words
    assert "true <b>road</b>" in words


def test_keys_choose_views_theme_and_help(fine: Opened) -> None:
    fine.page.keyboard.press("2")
    assert fine.state()["a"] == 1
    theme = fine.page.evaluate("document.documentElement.dataset.theme")
    fine.page.keyboard.press("t")
    assert fine.page.evaluate("document.documentElement.dataset.theme") != theme
    fine.page.keyboard.press("?")
    assert fine.page.locator("#help-text").is_visible()
    fine.page.keyboard.press("Escape")
    assert not fine.page.locator("#help-text").is_visible()


def test_gamma_opacity_colours_and_overlay_change_what_is_drawn(fine: Opened) -> None:
    fine.click((70, 100))

    def drawn(panel: str) -> str:
        fine.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        address: str = fine.page.evaluate(f"document.querySelector('[data-panel={panel}] canvas').toDataURL()")
        return address

    seen = {drawn("pairwise")}
    for control, value in (("gamma", "1.2"), ("opacity", "0.4")):
        fine.page.locator(f"#{control}").fill(value)
        seen.add(drawn("pairwise"))
    fine.page.select_option("#colours", "viridis")
    seen.add(drawn("pairwise"))
    assert len(seen) == 4
    images = [drawn("image")]
    for overlay in ("prediction", "truth"):
        fine.page.select_option("#overlay", overlay)
        images.append(drawn("image"))
    # In this view, the prediction equals the ground truth.
    assert images[0] != images[1] == images[2]


@pytest.mark.parametrize("scale", ["uniform", "0"])
@pytest.mark.parametrize("index", [0, 3], ids=["dnl", "padded"])
def test_heat_follows_the_attention(fine: Opened, index: int, scale: str) -> None:
    fine.go(f"#a={index}&x=100&y=70")
    view = street().views[index]
    fine.page.locator("#gamma").fill("1")
    fine.page.locator("#opacity").fill("1")
    # At full opacity, heat is more opaque where the attention is stronger.
    script = """([index, scale, ratio]) => {
        const view = content.images[0].views[index];
        const heat = heatOf(view, explorer.map(index, "unary"), scale, ratio, shades);
        const {data} = heat.getContext("2d").getImageData(0, 0, heat.width, heat.height);
        return [heat.height, heat.width, Array.from(data.filter((_, at) => at % 4 === 3))];
    }"""
    height, width, opacities = fine.page.evaluate(script, [index, scale, WIDTH / HEIGHT])
    unary = view.terms.maps([(0, 0)]).unary
    assert unary is not None
    of_that_size = AttendedImage("", np.zeros((height, width, 3), dtype=np.uint8), [replace(view, prediction=None)])
    strength = view.over_image(unary[0] / unary.mean(), of_that_size)
    wanted = strength / (strength + 2) if scale == "uniform" else strength * unary.mean() / unary.max()
    np.testing.assert_allclose(np.array(opacities).reshape(height, width), 255 * wanted, atol=4)


def test_a_square_image_and_its_maps_fit_on_a_laptop(fine: Opened, files: dict[str, str]) -> None:
    fine.page.set_viewport_size({"width": 1280, "height": 900})
    fine.page.goto(files["square"])
    fine.page.evaluate("explorer.ready")
    bottoms = [canvas.bounding_box() for canvas in fine.page.locator("figure canvas").all()]
    assert len(bottoms) == 4
    assert max(box["y"] + box["height"] for box in bottoms) <= 900


@pytest.mark.parametrize(("phone", "word"), [(True, "Tap"), (False, "Point")])
def test_a_hint_says_how_to_choose_a_point(browser: Any, files: dict[str, str], phone: bool, word: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=phone, has_touch=phone)
    page = context.new_page()
    page.goto(files["fine"])
    assert page.locator(".hint").inner_text().startswith(word)
    assert page.locator(".hint").bounding_box()["y"] < page.locator(".stage canvas").first.bounding_box()["y"]
    context.close()


def test_a_nearly_uniform_map_is_labelled_and_drawn_dark(window: Opened, files: dict[str, str]) -> None:
    for shown in opened(window, files["flat"]):
        maps = shown.page.locator("figure:not(.stage)")
        assert maps.locator(".finding").all_inner_texts() == ["Nearly uniform: this block has learnt little yet."] * 3
        assert not any(box.is_visible() for box in maps.locator(".empty").all())
        brightness = """(canvas) => {
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return data.filter((_, at) => at % 4 !== 3).reduce((sum, value) => sum + value, 0) / data.length;
        }"""
        assert all(canvas.evaluate(brightness) < 25 for canvas in maps.locator("canvas").all())


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("which", ["fine", "placed"])
def test_nothing_overflows_sideways(request: pytest.FixtureRequest, which: str, width: int) -> None:
    shown: Opened = request.getfixturevalue(which)
    shown.page.set_viewport_size({"width": width, "height": 800})
    for hash_ in ("#a=0", "#a=0&b=1"):
        shown.go(hash_)
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def title(shown: Opened) -> list[str]:
    """Return the titles of the views, once they are shown."""
    shown.page.evaluate("explorer.ready")
    texts: list[str] = shown.page.locator(".view h2 b").all_inner_texts()
    return texts


def options(shown: Opened, select: str) -> list[str]:
    texts: list[str] = shown.page.locator(f"{select} option").all_inner_texts()
    return texts


def test_model_layer_and_head_are_selected_separately(placed: Opened) -> None:
    assert not placed.page.locator("#a").is_visible()
    assert options(placed, "#a-model") == ["vit", "swin"]
    assert options(placed, "#a-layer") == ["0 (first)", "1 (second)"]
    assert options(placed, "#a-head") == ["mean of 2 heads", "head 0", "head 1"]
    placed.page.select_option("#a-head", label="head 1")
    placed.page.select_option("#a-layer", label="1 (second)")  # the head stays
    assert title(placed) == ["vit: layer 1 (second), head 1"]
    assert placed.state()["a"] == 5
    wanted = transformer().views[5]
    row, column = placed.state()["query"]
    pairwise = wanted.terms.maps([(row, column)]).pairwise
    assert pairwise is not None
    found = placed.map(5, "pairwise")
    assert found is not None
    factor = stored(placed, 5)["keys"]["factor"]
    np.testing.assert_allclose(found, naive_means(pairwise[0, 0], factor), atol=0.01 * float(pairwise.max()))
    placed.page.select_option("#a-model", label="swin")  # this model has no such layer and head
    assert title(placed) == ["swin: layer 0 (only), head 0"]
    assert placed.page.locator("#a-layer").is_disabled()
    placed.page.wait_for_function("() => location.hash.endsWith('a=6')")


def test_two_layers_are_compared(placed: Opened) -> None:
    assert not placed.page.locator("#b-place").is_visible()
    placed.page.click("#compare")
    placed.page.select_option("#b-layer", label="1 (second)")
    assert title(placed) == ["vit: layer 0 (first), mean of 2 heads", "vit: layer 1 (second), head 0"]
    assert placed.page.evaluate("document.activeElement.id") == "b-layer"
    placed.page.select_option("#b-head", label="mean of 2 heads")
    assert title(placed)[1] == "vit: layer 1 (second), mean of 2 heads"


def test_omissions_are_noted(placed: Opened) -> None:
    about = placed.page.inner_text("#about")
    assert "In this page layers 0, 1 of 12 are shown." in about
    assert "Tokens without a place in the image (class, registers) are left out" in about


def test_views_without_layers_have_one_selector(fine: Opened) -> None:
    assert fine.page.locator("#a").is_visible()
    assert fine.page.locator(".place:visible").count() == 0
    assert "In this page" not in fine.page.inner_text("#about")


def test_the_initial_theme_follows_the_system(fine: Opened) -> None:
    for scheme in ("dark", "light"):
        fine.page.emulate_media(color_scheme=scheme)
        fine.go("")
        assert fine.page.evaluate("document.documentElement.dataset.theme") == scheme
