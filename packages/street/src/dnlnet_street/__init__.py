"""Trained model `street` for dnlnet: street scenes in CamVid's eleven classes. Non-commercial use only."""

from pathlib import Path

__version__ = "0.2.0"

_FOLDER = Path(__file__).parent
# The fields of `dnlnet.bundled.BundledModel`.
MODEL = {
    "file": _FOLDER / "street.safetensors",
    "measured": _FOLDER / "street.json",
    "photos": (_FOLDER / "corner.jpg", _FOLDER / "pavement.jpg"),
    "about": "Street scenes in CamVid's eleven classes, from the driver's seat.",
    "licence": "CC-BY-NC-4.0",
    "terms": (
        "Trained on CamVid, whose images are licensed under CC BY-NC 4.0: this model is for non-commercial research."
    ),
    "command": (
        "dnlnet train camvid-mbv2_tuned-dnl --data camvid --out tuned\n"
        "dnlnet train camvid-mbv2_fine-dnl --data camvid --out street --weights tuned/best.safetensors"
    ),
}
