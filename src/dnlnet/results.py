"""Signatures of result files, which commands may overwrite."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["json", "page", "figure", "model"]
SIGNATURE = "dnlnet"  # of figures
_SIGNS: Mapping[Kind, re.Pattern[bytes]] = {
    "json": re.compile(rb"\A(?:[\[{]\n [^ \n]|\[\]\n|\{\}\n)"),  # indented by a single space
    "page": re.compile(rb'<meta name="generator" content="dnlnet'),
    "figure": re.compile(rb"Software\0dnlnet|/Creator \(dnlnet"),
    # Metadata of safetensors files, properties of ONNX graphs, and extra files of PyTorch programs.
    "model": re.compile(rb'"dnlnet":"|\n\x06dnlnet|extra/dnlnet'),
}
_NEAR = 65_536  # bytes searched at either end


def is_result(path: Path, kind: Kind) -> bool:
    """Return whether dnlnet wrote this file as a result of this kind."""
    with path.open("rb") as file:
        start = file.read(_NEAR)
        file.seek(max(0, path.stat().st_size - _NEAR))
        return _SIGNS[kind].search(start + file.read(_NEAR)) is not None
