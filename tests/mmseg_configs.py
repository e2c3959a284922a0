"""Configurations of mmsegmentation as written into checkpoints by mmengine."""

from collections.abc import Mapping
from typing import Any

BACKBONE = {
    "contract_dilation": True,
    "depth": 50,
    "dilations": (1, 1, 2, 4),
    "norm_cfg": {"requires_grad": True, "type": "SyncBN"},
    "strides": (1, 2, 1, 1),
    "style": "pytorch",
    "type": "ResNetV1c",
}
IMAGENET = "bgr_to_rgb=True, mean=[123.675, 116.28, 103.53,], std=[58.395, 57.12, 57.375,]"
RESIZE = "dict(keep_ratio=True, scale=(2048, 512), type='Resize'),"


def config(
    backbone: Mapping[str, Any] = {},
    head: str = "",
    auxiliary: str = "",
    *,
    pixels: str = IMAGENET,
    resize: str = RESIZE,
    test: str = "mode='whole'",
) -> str:
    """Return a configuration with its keys in order and a comma after every value."""
    rows = "".join(f"\n        {key}={value!r}," for key, value in sorted({**BACKBONE, **backbone}.items()))
    return f"""
crop_size = (
    64,
    64,
)
model = dict(
    auxiliary_head=dict(align_corners=False, concat_input=False, num_convs=1, type='FCNHead', {auxiliary}),
    backbone=dict({rows}),
    data_preprocessor=dict({pixels}, type='SegDataPreProcessor'),
    decode_head=dict(align_corners=False, channels=512, type='DNLHead', {head}),
    test_cfg=dict({test}),
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    {resize}
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
train_cfg = dict(max_iters=160000, type='IterBasedTrainLoop', val_interval=16000)
test_cfg = dict(type='TestLoop')
"""
