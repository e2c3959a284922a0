"""A network of another library: how it takes pictures, its weights from a file, and what can go wrong."""

import logging
import pickle
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import huggingface_hub.errors
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn

from dnlnet.backbones.hub import hub_or_cache, reason
from dnlnet.backbones.pixels import Pixels
from dnlnet.backbones.weights import LoadReport, match_tensors, read_state_dict

Size = tuple[int, int]  # height and width
Source = Path | None  # of weights: a file, or the library's own download
NO_WEIGHTS = Path("none")  # random weights, as when training begins

STRIDE = 32  # of networks of several scales, whose smallest map has one position for so many pixels
# What follows the last attention: a file may lack it, or have another.
_AFTER_ATTENTION = re.compile(r"(fc|classifier|heads?|head_dist|fc_norm|pooler|visual_projection)\b.*")


@dataclass(frozen=True)
class Network:
    """A network of a library, and how it takes pictures.

    Args:
        module: in evaluation mode.
        size: that it was trained with.
        multiple: height and width of a picture are multiples of these; None if it takes pictures of its size alone.
        pixels: how they are normalised.
        resample: how pictures are resized.
        options: of its forward pass.
        notes: what a user should know.
    """

    module: nn.Module
    size: Size
    multiple: Size | None
    pixels: Pixels
    resample: Image.Resampling = Image.Resampling.BICUBIC
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __call__(self, images: Tensor) -> Any:
        """What the network makes of normalised images."""
        return self.module(images, **self.options)


@contextmanager
def downloading(title: str, folder: Path | None = None) -> Iterator[None]:
    """What keeps a library from making a network with its weights becomes one sentence; what it logs is not shown."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "transformers", "timm")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), hub_or_cache():
            warnings.simplefilter("ignore")
            yield
    except _FAILURES as error:
        why = reason(error)
        if folder is not None and folder.is_dir():
            raise ValueError(f"{title}: cannot be loaded from this folder: {why}") from None
        if not isinstance(error, OSError):
            raise ValueError(f"{title}: cannot be made: {why}") from None
        copy = "--weights FILE" if folder is None else "transformers:FOLDER, and other weights with --weights FILE"
        raise OSError(f"{title}: cannot be downloaded under this name ({why}); give a local copy: {copy}") from None
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# What libraries raise for files, settings and connections that are not as they should be.
_FAILURES = (
    *(OSError, ValueError, RuntimeError, LookupError, AttributeError, TypeError, AssertionError, EOFError),
    *(ArithmeticError, SafetensorError, BadZipFile, pickle.UnpicklingError, ImportError),
    getattr(huggingface_hub.errors, "StrictDataclassError", ValueError),  # of newer versions
)


def load_file(network: nn.Module, source: Source, title: str) -> tuple[str, ...]:
    """Load a file of weights into the network; what a user should know of it."""
    if source is None or source == NO_WEIGHTS:
        return () if source is None else (_random(title),)
    own = network.state_dict()
    fitting, report = match_tensors(own, read_state_dict(source), lambda name: bool(_AFTER_ATTENTION.match(name)))
    notes = judge(report, source, title)
    network.load_state_dict(fitting, strict=False)
    return notes


def judge(report: LoadReport, source: Source, title: str) -> tuple[str, ...]:
    """Weights must fit up to the last attention; what a user should know of the others."""
    if source == NO_WEIGHTS:
        return (_random(title),)
    lacking = [*report.missing, *report.misshapen]
    if report.unused or not all(map(_AFTER_ATTENTION.match, lacking)):
        raise ValueError(f"{source or title}: these are not weights of {title}: {report}")
    return (f"{source or title}: no weights for {', '.join(lacking)}, after the last attention",) if lacking else ()


def _random(title: str) -> str:
    return f"{title}: its weights are random (--weights none)"


def pixels_of(title: str, mean: Any, deviation: Any) -> Pixels:
    """How pixels in 0..255 are normalised, from what is said of those in 0..1."""
    given = [list(values) if isinstance(values, list | tuple) else [] for values in (mean, deviation)]
    if any(len(values) != 3 or not all(isinstance(x, int | float) for x in values) for values in given):
        raise ValueError(
            f"{title}: mean and deviation of the pixels are three numbers each, not {mean} and {deviation}"
        )
    if not all(given[1]):
        raise ValueError(f"{title}: pixels cannot be divided by a deviation of 0: {deviation}")
    mean, deviation = (tuple(255 * float(x) for x in values) for values in given)
    return Pixels(mean, deviation)
