"""What the package carries: trained models by name, ImageNet weights, and photographs. Nothing is downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
PHOTOS = tuple(_FOLDER / "photos" / name for name in ("corner.jpg", "pavement.jpg"))
WEIGHTS: Mapping[str, Path] = {"mobilenetv2": _FOLDER / "mobilenetv2.safetensors"}  # by backbone, of ImageNet


@dataclass(frozen=True)
class Boxed:
    """A model in the box.

    Args:
        file: its model file.
        measured: JSON with what was measured of its attention.
        about: what it is for, in a sentence.
        licence: its name on the Hugging Face hub.
        terms: what the licence means here, in a sentence.
        command: what it was trained with, a line for each step.
    """

    file: Path
    measured: Path
    about: str
    licence: str
    terms: str
    command: str


BOX: Mapping[str, Boxed] = {
    "street": Boxed(
        file=_FOLDER / "street.safetensors",
        measured=_FOLDER / "street.json",
        about="Street scenes in CamVid's eleven classes, from the driver's seat.",
        licence="cc-by-nc-4.0",
        terms=(
            "Trained on CamVid, whose pictures are licensed under CC BY-NC 4.0: this model is for non-commercial "
            "research."
        ),
        command=(
            "dnlnet train camvid-mbv2_tuned-dnl --data camvid --out tuned\n"
            "dnlnet train camvid-mbv2_fine-dnl --data camvid --out street --weights tuned/best.safetensors"
        ),
    ),
}
