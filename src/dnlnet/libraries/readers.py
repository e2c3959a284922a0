"""Build networks of timm, torchvision and transformers by name, with the preprocessing of each."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from math import lcm
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from dnlnet.backbones.weights import LoadReport, read_state_dict
from dnlnet.data.images import HeightWidth
from dnlnet.errors import load_extra, unknown
from dnlnet.lens.trace.windows import pair
from dnlnet.libraries.network import (
    NO_WEIGHTS,
    STRIDE,
    LibraryNetwork,
    WeightsSource,
    downloading,
    judge,
    load_file,
    pixels_of,
)


def find_timm(name: str, source: WeightsSource) -> LibraryNetwork:
    """Build a timm network. `name` may end with a dot and the tag of its weights."""
    import timm

    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown("model of timm", name, timm.list_models())
    if tag and not timm.is_model_pretrained(name):
        raise unknown(
            f"weights of timm's {architecture}", name, timm.list_models(f"{architecture}.*", pretrained=True)
        )
    if source is None and not timm.is_model_pretrained(name):
        raise ValueError(f"timm:{name}: timm has no weights for it; give some with --weights FILE, or --weights none")
    with downloading(f"timm:{name}"):
        network: Any
        try:
            network = timm.create_model(name, pretrained=source is None, dynamic_img_size=True)
        except TypeError:  # not all networks have this argument
            network = timm.create_model(name, pretrained=source is None)
    data: Any = import_module("timm.data")
    config = data.resolve_model_data_config(network)
    channels, height, width = config["input_size"]
    if channels != 3:
        raise ValueError(f"timm:{name}: takes images of {channels} channels, not 3")
    multiple: HeightWidth | None = None
    if getattr(network, "dynamic_img_size", False):
        multiple = pair(network.patch_embed.patch_size)
    elif not network.pretrained_cfg.get("fixed_input_size"):
        multiple = (STRIDE, STRIDE)
    return LibraryNetwork(
        network.eval(),
        (height, width),
        multiple,
        pixels_of(f"timm:{name}", config["mean"], config["std"]),
        _resample(config["interpolation"]),
        notes=load_file(network, source, f"timm:{name}"),
    )


def find_torchvision(name: str, source: WeightsSource) -> LibraryNetwork:
    """Build a torchvision image classifier."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        raise unknown("image classifier of torchvision", name, known)
    default: Any = models.get_model_weights(name).DEFAULT
    with downloading(f"torchvision:{name}"):
        network = models.get_model(name, weights=default if source is None else None)
    transforms = default.transforms()
    (side,) = transforms.crop_size
    return LibraryNetwork(
        network.eval(),
        (side, side),
        (STRIDE, STRIDE) if isinstance(network, models.SwinTransformer) else None,
        pixels_of(f"torchvision:{name}", transforms.mean, transforms.std),
        _resample(transforms.interpolation.value),
        notes=load_file(network, source, f"torchvision:{name}"),
    )


def find_transformers(name: str, source: WeightsSource) -> LibraryNetwork:
    """Build an image network of transformers from a folder or a name on the hub."""
    transformers = load_extra("transformers", "transformers")
    title = f"transformers:{name}"
    state = None if source in (None, NO_WEIGHTS) else read_state_dict(source)
    with downloading(title, folder=Path(name)), _without_bars(transformers):
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        processor, notes = _image_processor(transformers, name, config)
        network, found = _from_transformers(transformers, name, config, source, state)
    report = LoadReport(
        loaded=len(network.state_dict()) - len(found["missing_keys"]) - len(found["mismatched_keys"]),
        classifier=(),
        unused=(),
        missing=tuple(sorted(found["missing_keys"])),
        misshapen=tuple(
            f"{tensor} {tuple(shape)} for {tuple(own)}" for tensor, shape, own in found["mismatched_keys"]
        ),
    )
    notes += judge(report, source, title)
    network = getattr(network, "vision_model", network)  # for CLIP and other models that also read text
    if network.main_input_name != "pixel_values":
        raise ValueError(
            f"{title}: takes {network.main_input_name}, not images, so its maps cannot be drawn over one; in Python, "
            "dnlnet.capture records its attention all the same"
        )
    config = network.config
    patch = pair(getattr(config, "patch_size", None) or STRIDE)
    if getattr(config, "depths", None):
        patch = lcm(patch[0], STRIDE), lcm(patch[1], STRIDE)
    interpolates = "interpolate_pos_encoding" in signature(network.forward).parameters
    any_size = interpolates or config.model_type in _ANY_SIZE or getattr(config, "image_size", None) is None
    size = getattr(config, "image_size", None) or _side(processor.size)
    return LibraryNetwork(
        network.eval(),
        pair(size),
        patch if any_size else None,
        pixels_of(title, processor.image_mean, processor.image_std),
        Image.Resampling(int(processor.resample)),
        {"interpolate_pos_encoding": True} if interpolates else {},
        notes,
    )


LIBRARIES: Mapping[str, Callable[[str, WeightsSource], LibraryNetwork]] = {
    "timm": find_timm,
    "torchvision": find_torchvision,
    "transformers": find_transformers,
}

# Model types of transformers that accept any image size without interpolate_pos_encoding.
_ANY_SIZE = frozenset({"dinov2", "dinov2_with_registers", "dinov3_vit", "pvt", "pvt_v2", "hiera"})


def _from_transformers(
    transformers: Any, name: str, config: Any, source: WeightsSource, state: Mapping[str, Tensor] | None
) -> tuple[Any, dict[str, Any]]:
    """Return a network, and the library's report on its weights. The library renames weights of older files."""
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "dtype": torch.float32}
    if source is None:
        network, found = transformers.AutoModel.from_pretrained(name, trust_remote_code=False, **options)
        return network, found
    network = transformers.AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
    if state is None:
        return network, {"missing_keys": (), "mismatched_keys": ()}
    network, found = type(network).from_pretrained(None, config=config, state_dict=state, **options)
    return network, found


def _image_processor(transformers: Any, name: str, config: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the image processor of the model's own file, or else its family's default with a note."""
    try:
        return transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False), ()
    except (OSError, ValueError):
        if any((Path(name) / file).exists() for file in ("preprocessor_config.json", "processor_config.json")):
            raise
        known: Any = import_module("transformers.models.auto.image_processing_auto").IMAGE_PROCESSOR_MAPPING
        family = known.get(type(config), (transformers.ViTImageProcessor,))
        made = next(filter(None, family.values() if isinstance(family, dict) else family))()
        kind = type(made).__name__
        return made, (f"transformers:{name}: does not declare how pixels are normalised; {kind} is used",)


@contextmanager
def _without_bars(transformers: Any) -> Iterator[None]:
    bars = transformers.utils.logging
    before = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            bars.enable_progress_bar()


def _resample(name: str) -> Image.Resampling:
    return {"bilinear": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}.get(
        name, Image.Resampling.BICUBIC
    )


def _side(declared: Any) -> int:
    """Return the side of an image processor's declared size."""
    sides = (declared.get(name) for name in ("height", "shortest_edge", "longest_edge"))
    return next((int(side) for side in sides if side), 224)
