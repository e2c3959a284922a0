"""Files that ship with the package: trained models, ImageNet weights, and two images. Nothing is downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
PHOTOS = tuple(_FOLDER / "photos" / name for name in ("corner.jpg", "pavement.jpg"))
WEIGHTS: Mapping[str, Path] = {"mobilenetv2": _FOLDER / "mobilenetv2.safetensors"}  # ImageNet weights by backbone


@dataclass(frozen=True)
class BundledModel:
    """Trained model that ships with the package.

    Args:
        file: Model file.
        measured: JSON with measurements of its attention.
        about: Purpose, in one sentence.
        licence: Name of the licence on the Hugging Face hub.
        terms: Meaning of the licence for this model, in one sentence.
        command: Training commands, one line each.
    """

    file: Path
    measured: Path
    about: str
    licence: str
    terms: str
    command: str


MODELS: Mapping[str, BundledModel] = {
    "street": BundledModel(
        file=_FOLDER / "street.safetensors",
        measured=_FOLDER / "street.json",
        about="Street scenes in CamVid's eleven classes, from the driver's seat.",
        licence="cc-by-nc-4.0",
        terms=(
            "Trained on CamVid, whose images are licensed under CC BY-NC 4.0: this model is for non-commercial "
            "research."
        ),
        command=(
            "dnlnet train camvid-mbv2_tuned-dnl --data camvid --out tuned\n"
            "dnlnet train camvid-mbv2_fine-dnl --data camvid --out street --weights tuned/best.safetensors"
        ),
    ),
}
