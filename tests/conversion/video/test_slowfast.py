"""Comparison with plain PyTorch on tensors with PySlowFast's names."""

import pickle
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.conversion.converting import convert, match_network
from dnlnet.conversion.family import Converted, ForeignCheckpoint
from dnlnet.conversion.video.slowfast import FAMILY, caffe2_problem, matches
from dnlnet.video.recipe import VideoRecipe
from foreign_video import R50, TINY, Network, Shapes, State, conv, filled, norm, norm_shapes, without_numbers

TINY_BLOCKS = ("s3.pathway0_nonlocal1", "s4.pathway0_nonlocal1")
R50_BLOCKS = (
    *(f"s3.pathway0_nonlocal{number}" for number in (1, 3)),
    *(f"s4.pathway0_nonlocal{number}" for number in (1, 3, 5)),
)
SOFTMAX = {"NONLOCAL": {"INSTANTIATION": "softmax", "GROUP": [[1]] * 4, "POOL": [[[1, 2, 2], [1, 2, 2]]] * 4}}


def shapes(network: Network, *blocks: str) -> Shapes:
    """Return the shapes of all tensors of a slow-only network and its blocks."""
    layers, width = network
    yield "s1.pathway0_stem.conv.weight", (width, 3, 1, 7, 7)
    yield from norm_shapes("s1.pathway0_stem.bn", width)
    given = width
    for stage, (count, frames) in enumerate(zip(layers, (1, 1, 3, 3), strict=True), start=2):
        inner = width * 2 ** (stage - 2)
        for number in range(count):
            name = f"s{stage}.pathway0_res{number}"
            if number == 0:
                yield f"{name}.branch1.weight", (4 * inner, given, 1, 1, 1)
                yield from norm_shapes(f"{name}.branch1_bn", 4 * inner)
            yield f"{name}.branch2.a.weight", (inner, given, frames, 1, 1)
            yield from norm_shapes(f"{name}.branch2.a_bn", inner)
            yield f"{name}.branch2.b.weight", (inner, inner, 1, 3, 3)
            yield from norm_shapes(f"{name}.branch2.b_bn", inner)
            yield f"{name}.branch2.c.weight", (4 * inner, inner, 1, 1, 1)
            yield from norm_shapes(f"{name}.branch2.c_bn", 4 * inner)
            given = 4 * inner
    for name in blocks:
        channels = width * (8 if name.startswith("s3") else 16)
        for layer in ("conv_theta", "conv_phi", "conv_g"):
            yield f"{name}.{layer}.weight", (channels // 2, channels, 1, 1, 1)
            yield f"{name}.{layer}.bias", (channels // 2,)
        yield f"{name}.conv_out.weight", (channels, channels // 2, 1, 1, 1)
        yield f"{name}.conv_out.bias", (channels,)
        yield from norm_shapes(f"{name}.bn", channels)
    yield "head.projection.weight", (5, 32 * width)
    yield "head.projection.bias", (5,)


def random_state(*blocks: str) -> State:
    return filled(shapes(TINY, *blocks))


def meta_state(network: Network, *blocks: str) -> State:
    return without_numbers(shapes(network, *blocks))


def converted(state: State, cfg: str | None = None) -> Converted:
    """Convert a checkpoint and check that its tensors match the network."""
    return match_network(FAMILY.convert(ForeignCheckpoint(Path("a.pyth"), state, {"cfg": cfg})))


# PySlowFast's network, with its names


def residual(x: Tensor, state: State, name: str, stride: int) -> Tensor:
    y = norm(conv(x, state, f"{name}.branch2.a"), state, f"{name}.branch2.a_bn").relu()
    y = norm(conv(y, state, f"{name}.branch2.b", stride), state, f"{name}.branch2.b_bn").relu()
    y = norm(conv(y, state, f"{name}.branch2.c"), state, f"{name}.branch2.c_bn")
    if f"{name}.branch1.weight" in state:
        x = norm(conv(x, state, f"{name}.branch1", stride), state, f"{name}.branch1_bn")
    return (x + y).relu()


def non_local(x: Tensor, state: State, name: str, pool: int, kind: str) -> Tensor:
    """Follow PySlowFast's nonlocal_helper.py, INSTANTIATION softmax: z = x + bn(W_out s(theta.phi D^-0.5) g).

    phi and g read the pooled input; bn and all four convolutions have biases.
    """
    pooled = F.max_pool3d(x, (1, pool, pool), (1, pool, pool))
    theta = conv(x, state, f"{name}.conv_theta").flatten(2)
    phi, g = (conv(pooled, state, f"{name}.{layer}").flatten(2) for layer in ("conv_phi", "conv_g"))
    attention = (theta.mT @ phi * theta.shape[1] ** -0.5).softmax(2)
    if kind == "dot_product":  # divided by the number of keys
        attention = theta.mT @ phi / phi.shape[2]
    attended = (attention @ g.mT).mT.reshape(*theta.shape[:2], *x.shape[2:])
    return x + norm(conv(attended, state, f"{name}.conv_out"), state, f"{name}.bn")


def classify(clips: Tensor, state: State, pool: int = 2, kind: str = "softmax") -> Tensor:
    x = norm(conv(clips, state, "s1.pathway0_stem.conv", 2), state, "s1.pathway0_stem.bn").relu()
    x = F.max_pool3d(x, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for stage, count in enumerate(TINY[0], start=2):
        for number in range(count):
            x = residual(x, state, f"s{stage}.pathway0_res{number}", 2 if stage > 2 and number == 0 else 1)
            if f"s{stage}.pathway0_nonlocal{number}.conv_g.weight" in state:
                x = non_local(x, state, f"s{stage}.pathway0_nonlocal{number}", pool, kind)
    return F.linear(x.mean((2, 3, 4)), state["head.projection.weight"], state["head.projection.bias"])


@torch.no_grad()
@pytest.mark.parametrize(
    ("blocks", "pool", "blue_first"), [(TINY_BLOCKS, 2, False), (TINY_BLOCKS[:1], 1, True), ((), 2, False)]
)
@pytest.mark.parametrize("kind", ["softmax", "dot_product"])
def test_the_network_equals_pyslowfasts(blocks: tuple[str, ...], pool: int, blue_first: bool, kind: str) -> None:
    state = random_state(*blocks)
    assert matches(state)
    cfg = {
        "NONLOCAL": SOFTMAX["NONLOCAL"] | {"INSTANTIATION": kind, "POOL": [[[1, pool, pool]]] * 4},
        "DATA": {"REVERSE_INPUT_CHANNEL": blue_first},
    }
    found = converted(state, yaml.safe_dump(cfg))
    model = found.recipe.build(len(found.classes)).eval()
    model.load_state_dict(found.state)
    clips = torch.randn(2, 3, 4, 64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = {name: tensor.double() for name, tensor in state.items()}
    expected = classify(clips.flip(1) if blue_first else clips, exact, pool, kind)
    assert expected.std() > 0.1
    torch.testing.assert_close(model.double()(clips), expected, rtol=1e-9, atol=1e-9)


def test_the_network_is_recognised_by_its_names() -> None:
    found = converted(meta_state(R50, *R50_BLOCKS), yaml.safe_dump(SOFTMAX))
    model = found.recipe.model
    assert (model.backbone, len(found.classes), model.variant) == ("slow_only_r50", 5, "nl")
    assert model.placement == {"layer2": (1, 3), "layer3": (1, 3, 5)}
    assert (model.preset, model.block, found.unused) == ("slowfast", {}, ())
    assert len(found.state) == len(meta_state(R50, *R50_BLOCKS))
    assert found.state["backbone.layer3.5.non_local.projection.weight"].shape == (1024, 512)
    baseline = converted(meta_state(R50)).recipe.model
    assert (baseline.variant, baseline.placement) == (None, None)
    assert converted(meta_state(R50), yaml.safe_dump({"RESNET": {"STRIDE_1X1": True}})).recipe.model.stride_in_1x1


def test_the_first_versions_name_the_norm_of_a_block_differently() -> None:
    state = meta_state(TINY, *TINY_BLOCKS)
    older = {re.sub(r"(nonlocal\d)\.bn\.", r"\1.norm.", name): tensor for name, tensor in state.items()}
    assert older.keys() != state.keys()
    assert converted(older).state.keys() == converted(state).state.keys()


def test_without_a_configuration_the_kind_of_attention_must_be_given(tmp_path: Path) -> None:
    state = meta_state(TINY, *TINY_BLOCKS)
    assert not any("assumed" in note for note in converted(state, yaml.safe_dump(SOFTMAX)).messages())
    for cfg in ({"NONLOCAL": {"INSTANTIATION": "dot_product"}}, {}):  # PySlowFast's default
        assert converted(state, yaml.safe_dump(cfg)).recipe.model.block == {"attention": "dot", "scaled": False}
        assert converted(meta_state(TINY), yaml.safe_dump(cfg)).recipe.model.variant is None
    torch.save(random_state(*TINY_BLOCKS), tmp_path / "a.pyth")
    with pytest.raises(ValueError, match=r"--set model\.block\.attention=softmax"):
        convert(tmp_path / "a.pyth", tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"INSTANTIATION is 'other'; supported: 'softmax' and 'dot_product'"):
        converted(state, yaml.safe_dump({"NONLOCAL": {"INSTANTIATION": "other"}}))


@pytest.mark.parametrize(
    ("part", "key", "value", "says"),
    [
        ("NONLOCAL", "GROUP", [[1], [1], [4], [1]], r"NONLOCAL\.GROUP is .*; supported: 1"),
        ("NONLOCAL", "POOL", [[[2, 2, 2]]] * 4, r"NONLOCAL\.POOL is .*; supported: spatial"),
        (
            "NONLOCAL",
            "POOL",
            [[[1, 2, 2]], [[1, 2, 2]], [[1, 1, 1]], [[1, 2, 2]]],
            r"NONLOCAL\.POOL is .*; supported: one factor",
        ),
        ("NONLOCAL", "POOL", [[[1, 2, 2]]], r"NONLOCAL\.POOL is .*; expected"),
        ("NONLOCAL", "GROUP", 1, r"NONLOCAL\.GROUP is 1; expected"),
        ("RESNET", "SPATIAL_DILATIONS", [[1], [1], [1], [2]], "SPATIAL_DILATIONS"),
        ("RESNET", "SPATIAL_STRIDES", [1, 2, 2, 2], "SPATIAL_STRIDES"),
        ("RESNET", "NUM_GROUPS", 32, "RESNET.NUM_GROUPS is 32; supported: 1"),
        ("MODEL", "ARCH", "i3d", "MODEL.ARCH is 'i3d'; supported: 'slow'"),
        ("MODEL", "HEAD_ACT", "sigmoid", "MODEL.HEAD_ACT is 'sigmoid'"),
        ("DETECTION", "ENABLE", True, "DETECTION.ENABLE is True"),
        ("DATA", "NUM_FRAMES", 0, "its DATA.NUM_FRAMES is 0: Input should be greater than or equal to 1"),
        ("DATA", "MEAN", [0.4, 0.4], "its DATA.MEAN is"),
        ("DATA", "TEST_CROP_SIZE", "large", "its DATA.TEST_CROP_SIZE is 'large'"),
    ],
)
def test_other_settings_are_refused(part: str, key: str, value: object, says: str) -> None:
    cfg = {**SOFTMAX, part: {**SOFTMAX.get(part, {}), key: value}}
    with pytest.raises(ValueError, match=says):
        converted(meta_state(TINY, *TINY_BLOCKS), yaml.safe_dump(cfg))


@pytest.mark.parametrize("text", ["NONLOCAL: [", "- 1", "a: 0000-00-00", "[" * 1000, "a: 1\na: 2"])
def test_an_unreadable_configuration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"its cfg is (not YAML|nested too deeply)"):
        converted(meta_state(TINY), text)


def test_clips_and_views_follow_the_configuration() -> None:
    data = {
        "NUM_FRAMES": 16,
        "SAMPLING_RATE": 4,
        "TARGET_FPS": 25,
        "MEAN": [0.4, 0.5, 0.6],
        "STD": [0.2, 0.21, 0.22],
        "TRAIN_JITTER_SCALES": [128, 160],
        "TRAIN_CROP_SIZE": 112,
        "TEST_CROP_SIZE": 128,
        "RANDOM_FLIP": False,
    }
    cfg = {"DATA": data, "TEST": {"NUM_ENSEMBLE_VIEWS": 4, "NUM_SPATIAL_CROPS": 1}, "MODEL": {"DROPOUT_RATE": 0.25}}
    found = converted(meta_state(TINY), yaml.safe_dump(cfg))
    recipe = found.recipe
    assert isinstance(recipe, VideoRecipe)
    assert (recipe.data.frames, recipe.data.stride, recipe.data.rate) == (16, 4, 25)
    assert (recipe.data.mean, recipe.data.deviation) == ((0.4, 0.5, 0.6), (0.2, 0.21, 0.22))
    assert (recipe.data.short_sides, recipe.data.crop, recipe.data.flip) == ((128, 160), 112, 0)
    assert (recipe.evaluation.clips, recipe.evaluation.crops, recipe.evaluation.short_side) == (4, 1, 128)
    assert recipe.model.dropout == 0.25
    assert not any("assumed" in note for note in found.messages())
    assert any(
        "clips are assumed to be those of PySlowFast's SLOW_8x8" in note
        for note in converted(meta_state(TINY)).messages()
    )


def test_other_networks_are_refused() -> None:
    state = meta_state(TINY)
    with pytest.raises(ValueError, match="second pathway"):
        converted({**state, "s1.pathway1_stem.conv.weight": torch.empty(1)})
    with pytest.raises(ValueError, match=r"\(1, 2, 2, 0\) residual blocks"):
        converted({name: tensor for name, tensor in state.items() if not name.startswith("s5")})
    i3d = {**state, "s1.pathway0_stem.conv.weight": torch.empty(8, 3, 5, 7, 7, device="meta")}
    with pytest.raises(
        ValueError, match=r"stem\.conv\.weight \(here .*\) is \(8, 3, 5, 7, 7\), expected \(8, 3, 1, 7, 7\)"
    ):
        converted(i3d)
    with pytest.raises(ValueError, match=r"1 missing:\n  head\.projection\.bias"):
        converted({name: tensor for name, tensor in state.items() if name != "head.projection.bias"})


def test_models_of_caffe2_are_refused_without_reading_them(tmp_path: Path) -> None:
    names = {"conv1_w": torch.ones(1), "res3_1_branch2a_w": torch.ones(1)}
    assert matches(names)
    with pytest.raises(ValueError, match="a Caffe2 model"):
        converted(names)
    zoo, other, saved = (tmp_path / name for name in ("zoo.pkl", "other.pkl", "saved.pyth"))
    zoo.write_bytes(pickle.dumps({"blobs": {"conv1_w": [1.0]}}, protocol=2))
    other.write_bytes(pickle.dumps({"weights": 1}, protocol=2))
    torch.save({"model_state": {"blobs": torch.ones(1)}}, saved)
    assert "a Caffe2 model of PySlowFast's model zoo" in (caffe2_problem(zoo) or "")
    assert [caffe2_problem(path) for path in (other, saved)] == [None, None]
    (tmp_path / "cut.pkl").write_bytes(zoo.read_bytes()[:3])
    assert caffe2_problem(tmp_path / "cut.pkl") is None


@torch.no_grad()
def test_a_checkpoint_becomes_a_model_file(tmp_path: Path) -> None:
    state = random_state(*TINY_BLOCKS)
    torch.save({"epoch": 3, "model_state": state, "cfg": yaml.safe_dump(SOFTMAX)}, tmp_path / "theirs.pyth")
    found = convert(tmp_path / "theirs.pyth", tmp_path / "ours.safetensors")
    assert found.family == "slowfast"
    assert any("numbered" in note for note in found.notes)
    network = load_network(read_model_file(tmp_path / "ours.safetensors")).eval()
    clips = torch.randn(1, 3, 4, 64, 64, generator=torch.Generator().manual_seed(1))
    expected = classify(clips, state)
    torch.testing.assert_close(network(clips), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_a_caffe2_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "zoo.pkl").write_bytes(pickle.dumps({"blobs": {"conv1_w": [1.0]}}))
    with pytest.raises(ValueError, match="is a Caffe2 model"):
        convert(tmp_path / "zoo.pkl", tmp_path / "ours.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["zoo.pkl"]


@pytest.mark.parametrize(("train", "window", "same"), [(112, 3, 96), (224, 7, 224), (256, 8, 256)])
def test_the_pooling_window_of_the_head_follows_the_training_crop(train: int, window: int, same: int) -> None:
    """PySlowFast pools windows of TRAIN_CROP_SIZE // 32 positions; the map of 112 pixels has 4 x 4, not 3 x 3."""
    notes = converted(meta_state(TINY), yaml.safe_dump({"DATA": {"TRAIN_CROP_SIZE": train}})).notes
    assert any(f"{window} x {window} windows" in note and f"crops of {same} " in note for note in notes)
    assert any(f"its own {train}" in note for note in notes) == (train % 32 != 0)
