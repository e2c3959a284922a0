"""mmengine configurations in pure Python ("lazy") style, whose types are classes instead of names."""

from pathlib import Path

import pytest

from dnlnet.conversion.family import ForeignCheckpoint
from dnlnet.conversion.mm_config import MMConfig
from dnlnet.conversion.segmentation.mmseg import FAMILY
from foreign import SMALL, filled, mmseg_shapes
from mmseg_configs import config

NAMES = {
    "ResNetV1c": "mmseg.models.backbones.resnet.ResNetV1c",
    "SyncBN": "torch.nn.modules.batchnorm.SyncBatchNorm",
    "FCNHead": "mmseg.models.decode_heads.fcn_head.FCNHead",
    "DNLHead": "mmseg.models.decode_heads.dnl_head.DNLHead",
    "SegDataPreProcessor": "mmseg.models.data_preprocessor.SegDataPreProcessor",
    "LoadImageFromFile": "mmcv.transforms.loading.LoadImageFromFile",
    "LoadAnnotations": "mmseg.datasets.transforms.loading.LoadAnnotations",
    "Resize": "mmcv.transforms.processing.Resize",
    "PackSegInputs": "mmseg.datasets.transforms.formatting.PackSegInputs",
}


def test_types_in_a_checkpoint_are_paths_of_classes() -> None:
    """Dotted names in a checkpoint of mmengine mean the same as plain ones."""
    plain = config()
    lazy = plain
    for name, path in NAMES.items():
        assert f"'{name}'" in lazy
        lazy = lazy.replace(f"'{name}'", f"'{path}'")
    state = filled(mmseg_shapes(SMALL, "dnl_block"), "meta")
    first, second = (FAMILY.convert(ForeignCheckpoint(Path("a.pth"), state, {"cfg": text})) for text in (plain, lazy))
    assert second.recipe == first.recipe
    assert second.messages() == first.messages()


def test_types_in_a_file_are_imported_names() -> None:
    imports = "from mmseg.models import DNLHead as Head, FCNHead\nimport torch\n"
    text = f"{imports}model = dict(a=dict(type=Head), b=dict(type=FCNHead))"
    found = MMConfig.of({"cfg": text})
    assert (found.part("model", "a"), found.part("model", "b")) == ({"type": "DNLHead"}, {"type": "FCNHead"})


def test_a_file_with_a_base_is_refused() -> None:
    text = "from mmengine.config import read_base\nwith read_base():\n    from .base import *\nmodel = dict()"
    with pytest.raises(ValueError, match=r"other files \(read_base\).*--config"):
        MMConfig.of({"cfg": text})
