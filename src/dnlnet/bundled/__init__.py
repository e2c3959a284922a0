"""Trained models, ImageNet weights and photos that ship with dnlnet or with an installed package of models."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

_FOLDER = Path(__file__).parent
WEIGHTS: Mapping[str, Path] = {"mobilenetv2": _FOLDER / "mobilenetv2.safetensors"}  # ImageNet weights by backbone


@dataclass(frozen=True)
class BundledModel:
    """Trained model that ships with a package.

    Args:
        file: Model file.
        measured: JSON with measurements of its attention.
        photos: Images to try it on.
        about: Purpose, in one sentence.
        licence: SPDX identifier of its licence.
        terms: Meaning of the licence for this model, in one sentence.
        command: Training commands, one line each.
    """

    file: Path
    measured: Path
    photos: tuple[Path, ...]
    about: str
    licence: str
    terms: str
    command: str


_PETS = BundledModel(
    file=_FOLDER / "pets.safetensors",
    measured=_FOLDER / "pets.json",
    photos=(_FOLDER / "photos" / "cat.jpg",),
    about="Cats and dogs, and the background.",
    licence="CC-BY-SA-4.0",
    terms=(
        "Trained on 526 images of the Oxford-IIIT Pet Dataset, which are licensed under CC BY-SA 4.0, as is this "
        "model: commercial use is allowed; name the source, and share modified versions under the same licence."
    ),
    command="dnlnet train pets-mbv2_frozen-dnl --data oxford_pets --out pets",
)
# Models of other packages are the values of their entry points in the group dnlnet.models.
MODELS: Mapping[str, BundledModel] = {
    "pets": _PETS,
    **{point.name: BundledModel(**point.load()) for point in entry_points(group="dnlnet.models")},
}
PHOTOS = tuple(photo for model in MODELS.values() for photo in model.photos)
SEPARATE: Mapping[str, str] = {  # sentence for each model that needs a package of its own
    "street": (
        "street: this model for street scenes is for non-commercial use only (CC BY-NC 4.0), so it has a package of "
        "its own; install it with: pip install dnlnet-street (in a clone of dnlnet: pip install ./packages/street)"
    )
}


def find_bundled(name: str) -> BundledModel | None:
    """Return the included model with this name, or None; the error for a separate package says how to install it.

    >>> find_bundled("pets").licence
    'CC-BY-SA-4.0'
    """
    if name not in MODELS and name in SEPARATE:
        raise ModuleNotFoundError(SEPARATE[name], name="dnlnet_street")
    return MODELS.get(name)
