"""CPU support for arithmetic in half precision."""

from collections.abc import Mapping
from typing import Any

import torch

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # x86, x86, ARM, ARM


def has_bfloat16() -> bool:
    """Return whether this CPU has bfloat16 instructions. PyTorch emulates them otherwise, and is slower."""
    find = getattr(torch.cpu, "get_capabilities", None)  # newer than the oldest PyTorch we support
    capabilities: Mapping[str, Any] = {} if find is None else find()
    return any(capabilities.get(name, False) for name in _INSTRUCTIONS)
