"""Disentangled non-local networks: the attention block, the paper's systems, and its analysis as tools.

>>> import torch, dnlnet
>>> block = dnlnet.NonLocalBlock(64, "dnl")
>>> block(torch.randn(1, 64, 8, 8)).shape
torch.Size([1, 64, 8, 8])
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dnlnet.lazy import importer, provide

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dnlnet.artifacts.load import TrainedModel as TrainedModel
    from dnlnet.artifacts.load import load as load
    from dnlnet.attention import PRESETS as PRESETS
    from dnlnet.attention import VARIANTS as VARIANTS
    from dnlnet.attention import AttentionMaps as AttentionMaps
    from dnlnet.attention import BlockSettings as BlockSettings
    from dnlnet.attention import NonLocal1d as NonLocal1d
    from dnlnet.attention import NonLocal2d as NonLocal2d
    from dnlnet.attention import NonLocal3d as NonLocal3d
    from dnlnet.attention import NonLocalBlock as NonLocalBlock
    from dnlnet.attention import Variant as Variant
    from dnlnet.attention import insert as insert
    from dnlnet.bundled import PHOTOS as PHOTOS
    from dnlnet.lens.measure.ablate import ablate as ablate
    from dnlnet.lens.trace.capture import capture as capture
    from dnlnet.recipes.override import override as override
    from dnlnet.registry import create_model as create_model
    from dnlnet.registry import find_recipe as find_recipe
    from dnlnet.registry import list_recipes as list_recipes
    from dnlnet.registry import register_backbone as register_backbone
    from dnlnet.registry import register_data_set as register_data_set
    from dnlnet.registry import register_task as register_task
    from dnlnet.runs.attend import attend as attend
    from dnlnet.runs.evaluate import evaluate as evaluate
    from dnlnet.runs.export import export as export
    from dnlnet.runs.predict import predict as predict
    from dnlnet.runs.study_report import study as study
    from dnlnet.runs.train import train as train

# Imported when first used, so that `dnlnet --help` need not wait for torch.
_MODULES = {
    "dnlnet.artifacts.load": "TrainedModel load",
    "dnlnet.attention": "PRESETS VARIANTS AttentionMaps NonLocal1d NonLocal2d NonLocal3d NonLocalBlock BlockSettings "
    "Variant insert",
    "dnlnet.bundled": "PHOTOS",
    "dnlnet.lens.measure.ablate": "ablate",
    "dnlnet.lens.trace.capture": "capture",
    "dnlnet.recipes.override": "override",
    "dnlnet.runs.attend": "attend",
    "dnlnet.runs.evaluate": "evaluate",
    "dnlnet.runs.export": "export",
    "dnlnet.runs.predict": "predict",
    "dnlnet.runs.study_report": "study",
    "dnlnet.runs.train": "train",
    "dnlnet.registry": "create_model find_recipe list_recipes register_backbone register_data_set register_task",
}
_PUBLIC = " ".join(_MODULES.values()).split()

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604

__getattr__ = importer(__name__, _MODULES)
provide("DrawableMaps", "dnlnet.lens.show.map_figure")  # `AttentionMaps.plot` draws with it


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


class _Package(ModuleType):
    """Keep `dnlnet.export` a function when the folder of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
