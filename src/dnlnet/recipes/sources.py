"""Sources of the values in recipes: words of the paper, a fact of a released implementation, or our own decision."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from dnlnet.attention import VARIANTS
from dnlnet.attention.spec import resolve_settings

if TYPE_CHECKING:
    from dnlnet.recipes.recipe import Recipe

ANY = object()  # matches any value, for settings that do not change what is learnt
_PARTS = ("model", "data", "loss", "optim", "schedule", "training", "evaluation")


@dataclass(frozen=True)
class Source:
    """Source of one or more values in some recipes.

    Args:
        settings: Values by name, such as `optim.lr`, or by pattern, such as `training.*`; `ANY` if results do not
            depend on the value.
        recipes: Patterns of recipe names, separated by spaces.
        paper: Words of the paper's LaTeX source.
        release: Fact of the authors' release, or of the implementation that the paper says it follows.
        reason: Our reason for the value if paper and release disagree or do not give it.
    """

    settings: Mapping[str, Any]
    recipes: str = "*"
    paper: str = ""
    release: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if not (self.paper or self.release or self.reason):
            raise ValueError(f"the source of {', '.join(self.settings)} says nothing")

    def covers(self, recipe: str, field: str) -> bool:
        """Return whether this is a source of a field of a recipe."""
        named = any(fnmatchcase(recipe, pattern) for pattern in self.recipes.split())
        return named and any(fnmatchcase(field, pattern) for pattern in self.settings)

    def value(self, field: str) -> Any:
        """Return the value that the source gives for a field."""
        return next(value for pattern, value in self.settings.items() if fnmatchcase(field, pattern))

    def text(self) -> str:
        """Return the source as text."""
        said = (("paper", f'"{self.paper}"' if self.paper else ""), ("release", self.release), ("ours", self.reason))
        return "; ".join(f"{name}: {words}" for name, words in said if words)


def trace(recipe: "Recipe") -> dict[str, tuple[Any, Source | None]]:
    """Return the value of every field of a recipe, and the first source that covers it, or None."""
    rows = type(recipe).sources
    return {
        field: (value, next((row for row in rows if row.covers(recipe.name, field)), None))
        for field, value in fields_of(recipe).items()
    }


def fields_of(recipe: "Recipe") -> dict[str, Any]:
    """Return every value of a recipe by dotted name, with all options of the block as resolved by its preset.

    >>> from dnlnet.registry import find_recipe
    >>> fields = fields_of(find_recipe("cityscapes-r101-dnl"))
    >>> fields["data.crop"], fields["loss.ohem.threshold"], fields["block.embed_reduction"]
    ([769, 769], 0.7, 2)
    """
    content = recipe.model_dump(mode="json", include=set(_PARTS))
    model = content["model"]
    variant, preset, block = model["variant"], model.pop("preset"), model.pop("block")
    if variant is not None:
        content["block"] = {"preset": preset, **asdict(resolve_settings(VARIANTS[variant], preset, **block))}
    return dict(_leaves(content))


def _leaves(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in content.items():
        nested = isinstance(value, dict) and bool(value)
        found += _leaves(value, f"{prefix}{key}.") if nested else [(f"{prefix}{key}", value)]
    return found
