"""Comparison with plain PyTorch on tensors with pytorchvideo's names."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dnlnet.artifacts.model_file import read_model_file
from dnlnet.artifacts.weights import load_network
from dnlnet.conversion.converting import convert, match_network, recognise
from dnlnet.conversion.family import Converted, ForeignCheckpoint
from dnlnet.conversion.video.pytorchvideo import FAMILY
from dnlnet.video.recipe import VideoRecipe
from foreign_video import R50, R101, TINY, Network, Shapes, State, conv, filled, norm, norm_shapes, without_numbers


def shapes(network: Network) -> Shapes:
    """Return the shapes of all tensors of a slow-only network from `create_resnet`."""
    layers, width = network
    yield "blocks.0.conv.weight", (width, 3, 1, 7, 7)
    yield from norm_shapes("blocks.0.norm", width)
    given = width
    for stage, (count, frames) in enumerate(zip(layers, (1, 1, 3, 3), strict=True), start=1):
        inner = width * 2 ** (stage - 1)
        for number in range(count):
            block = f"blocks.{stage}.res_blocks.{number}"
            if number == 0:
                yield f"{block}.branch1_conv.weight", (4 * inner, given, 1, 1, 1)
                yield from norm_shapes(f"{block}.branch1_norm", 4 * inner)
            kernels = {
                "a": (inner, given, frames, 1, 1),
                "b": (inner, inner, 1, 3, 3),
                "c": (4 * inner, inner, 1, 1, 1),
            }
            for part, shape in kernels.items():
                yield f"{block}.branch2.conv_{part}.weight", shape
                yield from norm_shapes(f"{block}.branch2.norm_{part}", shape[0])
            given = 4 * inner
    yield "blocks.5.proj.weight", (5, given)
    yield "blocks.5.proj.bias", (5,)


def converted(state: State) -> Converted:
    return FAMILY.convert(ForeignCheckpoint(Path("SLOW_8x8_R50.pyth"), state, {}))


# pytorchvideo's network, with its names


def classify(clips: Tensor, state: State) -> Tensor:
    """Run the network of `create_resnet`: stem, four stages (the first without stride in conv_b), and the head."""
    x = norm(conv(clips, state, "blocks.0.conv", 2), state, "blocks.0.norm").relu()
    x = F.max_pool3d(x, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for stage, count in enumerate(TINY[0], start=1):
        for number in range(count):
            block, stride = f"blocks.{stage}.res_blocks.{number}", 2 if stage > 1 and number == 0 else 1
            y = norm(conv(x, state, f"{block}.branch2.conv_a"), state, f"{block}.branch2.norm_a").relu()
            y = norm(conv(y, state, f"{block}.branch2.conv_b", stride), state, f"{block}.branch2.norm_b").relu()
            y = norm(conv(y, state, f"{block}.branch2.conv_c"), state, f"{block}.branch2.norm_c")
            if number == 0:
                x = norm(conv(x, state, f"{block}.branch1_conv", stride), state, f"{block}.branch1_norm")
            x = (x + y).relu()
    x = F.avg_pool3d(x, (8, 7, 7), stride=1)  # the whole map of 8 frames of 224 x 224
    logits = F.linear(x.permute(0, 2, 3, 4, 1), state["blocks.5.proj.weight"], state["blocks.5.proj.bias"])
    return logits.mean((1, 2, 3))


@torch.no_grad()
def test_the_network_equals_pytorchvideos(tmp_path: Path) -> None:
    state = filled(shapes(TINY))
    torch.save({"model_state": state, "epoch": 3}, tmp_path / "theirs.pyth")
    found = convert(tmp_path / "theirs.pyth", tmp_path / "ours.safetensors")
    assert found.family == "pytorchvideo"
    assert any("are numbered" in note for note in found.notes)
    assert any("clips are assumed to be those of slow_r50" in note for note in found.notes)
    network = load_network(read_model_file(tmp_path / "ours.safetensors")).double().eval()
    clips = torch.randn(1, 3, 8, 224, 224, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = classify(clips, {name: tensor.double() for name, tensor in state.items()})
    assert expected.std() > 0.1
    torch.testing.assert_close(network(clips), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("network", "name"), [(R50, "slow_only_r50"), (R101, "slow_only_r101")])
def test_the_network_is_recognised_by_its_names(network: Network, name: str) -> None:
    state = without_numbers(shapes(network))
    family = recognise(ForeignCheckpoint(Path("a.pyth"), state, {}))
    assert family is FAMILY
    found = converted(state)
    recipe = found.recipe
    assert isinstance(recipe, VideoRecipe)
    assert (recipe.model.backbone, recipe.model.variant, recipe.paper) == (name, None, None)
    assert (recipe.data.frames, recipe.data.stride, recipe.data.mean) == (8, 8, (0.45, 0.45, 0.45))
    matched = match_network(found)
    assert (len(matched.state), matched.unused) == (len(state), ())


def test_other_networks_are_refused(tmp_path: Path) -> None:
    """Networks that pool frames have their head one block later; depthwise convolutions have other shapes."""
    pooled = {
        name.replace("blocks.5.", "blocks.6."): tensor for name, tensor in without_numbers(shapes(TINY)).items()
    }
    assert not FAMILY.matches(pooled)
    torch.save(
        {**filled(shapes(TINY)), "blocks.4.res_blocks.0.branch2.conv_b.more.weight": torch.ones(1)},
        tmp_path / "a.pyth",
    )
    with pytest.raises(ValueError, match=r"layers that ours lacks.*\n1 unknown"):
        convert(tmp_path / "a.pyth", tmp_path / "m.safetensors", partial=True)
    torch.save({n: t for n, t in filled(shapes(TINY)).items() if "branch1_conv" not in n}, tmp_path / "a.pyth")
    with pytest.raises(ValueError, match=r"4 missing:\n  blocks\.1\.res_blocks\.0\.branch1_conv\.weight \(here "):
        convert(tmp_path / "a.pyth", tmp_path / "m.safetensors")


def test_strides_not_visible_in_tensors_are_mentioned_as_assumptions() -> None:
    notes = converted(filled(shapes(TINY))).notes
    assert any("1, 2, 2 and 2 in the stages" in note and "cannot be converted" in note for note in notes)
