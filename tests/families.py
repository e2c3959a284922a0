"""Small transformers of common families, without weights, and the attention that each library computes."""

# B batch, H heads, N queries, M keys

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

Weights = list[Tensor]  # (B, H, N, M) of each layer, in execution order


@dataclass(frozen=True)
class Family:
    """Network (built once), its input, and its own attention in a plain run.

    Args:
        network: Network in double precision, in evaluation mode.
        inputs: Inputs of its call, by name or in order.
        own: Function that runs the unmodified network and returns the attention its library computes.
        biased: Whether logits have a bias or a mask, so that Eq. 5 holds before it is added.
    """

    network: nn.Module
    inputs: dict[str, Any]
    own: Callable[[], Weights]
    biased: bool = False

    def run(self) -> Any:
        with torch.no_grad():
            output = self.network(**self.inputs)
        return output if isinstance(output, Tensor) else output[0]


def _network(network: nn.Module) -> nn.Module:
    """Scale the weights until attention differs from a plain mean."""
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        nn.init.normal_(
            parameter, std=parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.5, generator=generator
        )
    return network.double().eval()


def _pixels(height: int, width: int, batch: int = 2) -> Tensor:
    return random(batch, 3, height, width, seed=1)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return the same random numbers in double precision on every call."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---- attention computed by the libraries


def _dropped(network: nn.Module, run: Callable[[], Any]) -> Weights:
    """timm: the input of `attn_drop` when the fused kernel is off."""
    found: Weights = []
    layers = [module for module in network.modules() if hasattr(module, "fused_attn")]
    before = [layer.fused_attn for layer in layers]
    hooks = [layer.attn_drop.register_forward_pre_hook(lambda _, x: found.append(x[0])) for layer in layers]
    for layer in layers:
        layer.fused_attn = False
    run()
    for layer, fused, hook in zip(layers, before, hooks, strict=True):
        layer.fused_attn = fused
        hook.remove()
    return found


def _asked_for(network: nn.Module, run: Callable[[], Any]) -> Weights:
    """torchvision's ViT: the weights that its `nn.MultiheadAttention` layers return on request."""
    found: Weights = []

    def ask(layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        hidden = {**named, "need_weights": True, "average_attn_weights": False}
        found.append(type(layer).forward(layer, *args, **hidden)[1])

    hooks = [
        module.register_forward_hook(ask, with_kwargs=True)
        for module in network.modules()
        if isinstance(module, nn.MultiheadAttention)
    ]
    run()
    for hook in hooks:
        hook.remove()
    return found


def _softened(network: nn.Module, run: Callable[[], Any]) -> Weights:
    """torchvision's Swin: the outputs of its softmaxes."""
    found: Weights = []
    softmax = torch.nn.functional.softmax

    def noted(*args: Any, **named: Any) -> Tensor:
        found.append(softmax(*args, **named))
        return found[-1]

    with mock.patch("torch.nn.functional.softmax", noted):
        run()
    return found


def _mask_units(run: Callable[[], Any], layers: Sequence[nn.Module]) -> Weights:
    """Hiera: outputs of its softmaxes when the fused kernel is off. Heads precede windows there and follow here."""
    found: Weights = []
    softmax = Tensor.softmax

    def noted(*args: Any, **named: Any) -> Tensor:
        found.append(softmax(*args, **named))
        return found[-1]

    before = [getattr(layer, "fused_attn", None) for layer in layers]
    for layer in layers:
        layer.fused_attn = False
    with mock.patch.object(Tensor, "softmax", noted):
        run()
    for layer, fused in zip(layers, before, strict=True):
        layer.fused_attn = fused
    return [weights.transpose(1, 2) if weights.dim() == 5 else weights for weights in found]


# ---- families


def _timm(
    name: str, height: int, width: int, *, fused: bool = True, biased: bool = False, batch: int = 2, **options: Any
) -> Family:
    network = _network(timm.create_model(name, **options))
    for module in network.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    family = Family(network, {"x": _pixels(height, width, batch)}, lambda: _dropped(network, family.run), biased)
    return family


_SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 3}
# 10 x 14 tokens: windows, shifts and padding
_WINDOWS = {"img_size": (40, 56), "window_size": 4, "embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3)}


def _torchvision(network: nn.Module, height: int, width: int, own: Any, *, biased: bool = False) -> Family:
    network = _network(network)
    family = Family(network, {"x": _pixels(height, width)}, lambda: own(network, family.run), biased)
    return family


def _vision_transformer() -> Family:
    network = torchvision.models.VisionTransformer(32, 8, 2, 3, 24, 48)
    return _torchvision(network, 32, 32, _asked_for)


def _swin(version: str) -> Family:
    block = {"1": "SwinTransformerBlock", "2": "SwinTransformerBlockV2"}[version]
    merging = {"1": "PatchMerging", "2": "PatchMergingV2"}[version]
    models = torchvision.models.swin_transformer
    network = models.SwinTransformer(
        [4, 4], 12, [2, 1], [2, 3], [4, 4], block=getattr(models, block), downsample_layer=getattr(models, merging)
    )
    return _torchvision(network, 40, 56, _softened, biased=True)


def _transformers(kind: str, config: dict[str, Any], inputs: dict[str, Any], attention: str) -> Family:
    library = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install dnlnet[transformers]"
    )
    made = getattr(library, f"{kind}Config")(**config, attn_implementation=attention)
    network = _network(getattr(library, f"{kind}Model")(made))

    def own() -> Weights:
        network.set_attn_implementation("eager")
        with torch.no_grad():
            found = list(network(**inputs, output_attentions=True).attentions)
        network.set_attn_implementation(attention)
        return found

    return Family(network, inputs, own, biased="attention_mask" in inputs)


_HIDDEN = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}


def _image_model(kind: str, attention: str, **options: Any) -> Family:
    config = {**_HIDDEN, "image_size": 32, "patch_size": 8, **options}
    return _transformers(kind, config, {"pixel_values": _pixels(32, 32)}, attention)


def _segformer(attention: str) -> Family:
    sizes = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]}
    return _transformers("Segformer", sizes, {"pixel_values": _pixels(64, 96)}, attention)


def _windowed(attention: str) -> Family:
    """transformers' Swin: tokens are flattened, and the output has the weights of only one layer per stage."""
    sizes = {"image_size": (40, 56), "window_size": 4, "embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3]}
    family = _transformers("Swin", sizes, {"pixel_values": _pixels(40, 56)}, attention)

    def own() -> Weights:
        found: Weights = []
        layers = [module for module in family.network.modules() if type(module).__name__ == "SwinAttention"]
        hooks = [layer.register_forward_hook(lambda *x: found.append(x[2][1])) for layer in layers]
        family.own()
        for hook in hooks:
            hook.remove()
        return found

    return replace(family, own=own, biased=True)


# 16 x 8 tokens in two mask units; one, two, four and eight heads, so that windows can be mistaken for heads.
_UNITS = (64, 32)


def _hiera(fused: bool) -> Family:
    made = timm.create_model("hiera_tiny_224", img_size=_UNITS, embed_dim=12, num_heads=1, stages=(1, 2, 2, 1))
    network = _network(made)
    layers = [module for module in network.modules() if hasattr(module, "fused_attn")]
    for layer in layers:
        layer.fused_attn = fused
    family = Family(network, {"x": _pixels(*_UNITS)}, lambda: _mask_units(family.run, layers))
    return family


def _hiera_of_transformers(attention: str) -> Family:
    sizes = {"embed_dim": 12, "image_size": list(_UNITS), "depths": [1, 2, 2, 1], "num_heads": [1, 2, 4, 8]}
    family = _transformers("Hiera", sizes, {"pixel_values": _pixels(*_UNITS)}, attention)
    return replace(family, own=lambda: _mask_units(family.run, []))


def _bert(attention: str) -> Family:
    words = torch.randint(0, 99, (2, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    return _transformers(
        "Bert", {**_HIDDEN, "vocab_size": 99}, {"input_ids": words, "attention_mask": mask}, attention
    )


FAMILIES: dict[str, Callable[[], Family]] = {
    "timm ViT": lambda: _timm("vit_tiny_patch16_224", 32, 48, img_size=(32, 48), patch_size=8, **_SMALL),
    "timm ViT, written out": lambda: _timm(
        "vit_tiny_patch16_224", 32, 48, img_size=(32, 48), patch_size=8, fused=False, **_SMALL
    ),
    "timm DINOv2 with registers": lambda: _timm("vit_small_patch14_reg4_dinov2", 28, 42, img_size=(28, 42), **_SMALL),
    "timm EVA-02": lambda: _timm("eva02_tiny_patch14_224", 28, 42, img_size=(28, 42), **_SMALL),
    "timm DINOv3": lambda: _timm("vit_small_patch16_dinov3", 32, 48, img_size=(32, 48), **_SMALL),
    "timm Swin": lambda: _timm("swin_tiny_patch4_window7_224", 40, 56, biased=True, **_WINDOWS),
    "timm Swin, written out": lambda: _timm(
        "swin_tiny_patch4_window7_224", 40, 56, fused=False, biased=True, **_WINDOWS
    ),
    "timm Swin, always in windows": lambda: _timm(
        "swin_tiny_patch4_window7_224",
        40,
        56,
        biased=True,
        always_partition=True,
        **{**_WINDOWS, "depths": (2, 2), "window_size": 6},
    ),
    "timm Hiera": lambda: _hiera(True),
    "timm Hiera, written out": lambda: _hiera(False),
    "transformers Hiera, eager": lambda: _hiera_of_transformers("eager"),
    "timm MobileViT": lambda: _timm("mobilevit_xxs", 64, 96),
    "torchvision ViT": _vision_transformer,
    "torchvision Swin": lambda: _swin("1"),
    "torchvision Swin V2": lambda: _swin("2"),
    **{
        f"transformers {name}, {attention}": (lambda make=make, attention=attention: make(attention))
        for name, make in {
            "ViT": lambda attention: _image_model("ViT", attention),
            "DINOv2": lambda attention: _image_model("Dinov2", attention),
            "CLIP": lambda attention: _image_model("CLIPVision", attention),
            "SegFormer": _segformer,
            "Swin": _windowed,
            "BERT": _bert,
        }.items()
        for attention in ("sdpa", "eager")
    },
}


@cache
def family(name: str) -> Family:
    """Build a family on first use, and keep it."""
    return FAMILIES[name]()


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """Fail if hooks remain, or if PyTorch's native fast path is not restored."""
    before, hooks = torch.backends.mha.get_fastpath_enabled(), _hooks(network)
    yield
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert _hooks(network) == hooks
    assert not torch.overrides._is_torch_function_mode_enabled()


def _hooks(network: nn.Module) -> list[int]:
    return [key for module in network.modules() for key in (*module._forward_pre_hooks, *module._forward_hooks)]
