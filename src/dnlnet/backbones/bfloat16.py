"""Networks in bfloat16: half the bits of float32 with the same range."""

from copy import deepcopy
from typing import Any, Literal, get_args

import torch
from torch import nn

from dnlnet.attention.half import has_bfloat16
from dnlnet.errors import unknown
from dnlnet.layout import map_tensors

Precision = Literal["auto", "float32", "bfloat16"]


class InBfloat16(nn.Module):
    """Copy of a network in bfloat16, which takes float32 and returns float32.

    >>> InBfloat16(nn.Linear(3, 4))(torch.rand(2, 3)).dtype
    torch.float32
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = deepcopy(network).bfloat16()

    def forward(self, *inputs: Any) -> Any:
        """Return the network's outputs in float32."""
        outputs = self.network(*(map_tensors(lambda x: x.bfloat16(), one) for one in inputs))
        return map_tensors(lambda x: x.float(), outputs)


def choose_precision(precision: str, device: torch.device | str = "cpu") -> str:
    """Return the precision to compute in. Raises if it is unknown, or slow on this device.

    `auto` is float32 everywhere. In bfloat16, the mIoU of a bundled model changes by 0.002, for little gain.

    >>> choose_precision("auto")
    'float32'
    >>> choose_precision("bfloat61")
    Traceback (most recent call last):
    ValueError: unknown precision 'bfloat61'; did you mean 'bfloat16' or 'float32'? known: auto, float32, bfloat16
    """
    if precision not in get_args(Precision):
        raise unknown("precision", precision, get_args(Precision))
    if precision == "bfloat16" and (problem := bfloat16_problem(device)) is not None:
        raise ValueError(f"{problem}; use float32")
    return "float32" if precision == "auto" else precision


def bfloat16_problem(device: torch.device | str) -> str | None:
    """Return why a network would be slower in bfloat16 than in float32 on this device, or None."""
    kind = torch.device(device).type
    fast = (
        torch.cuda.is_bf16_supported(including_emulation=False) if kind == "cuda" else kind != "cpu" or has_bfloat16()
    )
    here = {"cpu": "CPU", "cuda": "GPU"}.get(kind, kind)
    return None if fast else f"this {here} has no bfloat16 instructions, so bfloat16 would be slower than float32"
