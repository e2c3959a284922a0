"""Networks of other libraries: preprocessing, weights from a file, and errors."""

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
from dnlnet.data.images import HeightWidth

WeightsSource = Path | None  # a file, or the library's own download
NO_WEIGHTS = Path("none")  # random weights

STRIDE = 32  # input pixels per position of the smallest map, in networks of several scales
# Tensors after the last attention, which may be missing or different in a file.
_AFTER_ATTENTION = re.compile(r"(fc|classifier|heads?|head_dist|fc_norm|pooler|visual_projection)\b.*")


@dataclass(frozen=True)
class LibraryNetwork:
    """Network of another library, with its preprocessing.

    Args:
        module: Network in evaluation mode.
        size: Image size in training.
        multiple: Height and width must be multiples of these. None if the network only accepts `size`.
        pixels: Normalisation of pixels.
        resample: Filter that resizes images.
        options: Options of the forward pass.
        notes: Notes for the user.
    """

    module: nn.Module
    size: HeightWidth
    multiple: HeightWidth | None
    pixels: Pixels
    resample: Image.Resampling = Image.Resampling.BICUBIC
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __call__(self, images: Tensor) -> Any:
        """Return the network's output for normalised images."""
        return self.module(images, **self.options)


@contextmanager
def downloading(title: str, folder: Path | None = None) -> Iterator[None]:
    """Turn any failure to build a network into a one-sentence error, and hide the library's log output."""
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
            raise ValueError(f"{title}: cannot be built: {why}") from None
        copy = "--weights FILE" if folder is None else "transformers:FOLDER, and other weights with --weights FILE"
        raise OSError(f"{title}: cannot be downloaded under this name ({why}); give a local copy: {copy}") from None
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# Errors that libraries raise for bad files, settings and connections.
_FAILURES = (
    *(OSError, ValueError, RuntimeError, LookupError, AttributeError, TypeError, AssertionError, EOFError),
    *(ArithmeticError, SafetensorError, BadZipFile, pickle.UnpicklingError, ImportError),
    getattr(huggingface_hub.errors, "StrictDataclassError", ValueError),  # only in newer versions
)


def load_file(network: nn.Module, source: WeightsSource, title: str) -> tuple[str, ...]:
    """Load weights from a file into the network, and return notes for the user."""
    if source is None or source == NO_WEIGHTS:
        return () if source is None else (_random(title),)
    own = network.state_dict()
    fitting, report = match_tensors(own, read_state_dict(source), lambda name: bool(_AFTER_ATTENTION.match(name)))
    notes = judge(report, source, title)
    network.load_state_dict(fitting, strict=False)
    return notes


def judge(report: LoadReport, source: WeightsSource, title: str) -> tuple[str, ...]:
    """Return notes on loaded weights. Raises unless all tensors up to the last attention fit."""
    if source == NO_WEIGHTS:
        return (_random(title),)
    lacking = [*report.missing, *report.misshapen]
    if report.unused or not all(map(_AFTER_ATTENTION.match, lacking)):
        raise ValueError(f"{source or title}: these are not weights of {title}: {report}")
    return (f"{source or title}: no weights for {', '.join(lacking)}, after the last attention",) if lacking else ()


def _random(title: str) -> str:
    return f"{title}: its weights are random (--weights none)"


def pixels_of(title: str, mean: Any, std: Any) -> Pixels:
    """Return the normalisation of pixels in 0..255 from a library's values for pixels in 0..1."""
    given = [list(values) if isinstance(values, list | tuple) else [] for values in (mean, std)]
    if any(len(values) != 3 or not all(isinstance(x, int | float) for x in values) for values in given):
        raise ValueError(f"{title}: mean and std of the pixels must be three numbers each, not {mean} and {std}")
    if not all(given[1]):
        raise ValueError(f"{title}: pixels cannot be divided by a std of 0: {std}")
    mean, std = (tuple(255 * float(x) for x in values) for values in given)
    return Pixels(mean, std)
