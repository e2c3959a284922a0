"""Size and cost of recipe networks, compared with the paper."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dnlnet.registry import match_recipes, network_of


@dataclass(frozen=True)
class NetworkCost:
    """Size and cost of one recipe's network.

    Args:
        recipe: Name of the recipe.
        size: Height and width of an image, or frames, height and width of a clip.
        parameters: Number of parameters.
        macs: Multiply-accumulates for one image or clip.
        seconds: Time for one image or clip on this machine, if measured.
        paper: `parameters`, `macs` and `latency` in the paper; None where not given.
    """

    recipe: str
    size: tuple[int, ...]
    parameters: int
    macs: int
    seconds: float | None
    paper: dict[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return asdict(self)


def complexity(recipes: str | Sequence[str], *, latency: bool = False) -> list[NetworkCost]:
    """Count the parameters and multiply-accumulates of recipe networks.

    Args:
        recipes: Recipe names, or patterns such as "ade20k-*".
        latency: Also measure the time for one image or clip on this machine.

    >>> complexity("scenes-tiny-dnl")[0].size
    (96, 96)
    """
    patterns = [recipes] if isinstance(recipes, str) else recipes
    chosen = {found.name: found for pattern in patterns for found in match_recipes(pattern)}

    from dnlnet.lens.measure.complexity import count_complexity, measure_latency  # imports torch, which takes seconds

    rows = []
    for name, found in chosen.items():
        build, size = network_of(found)
        counted = count_complexity(build, size)
        rows.append(
            NetworkCost(
                name,
                tuple(size),
                counted.parameters,
                counted.macs,
                measure_latency(build, size) if latency else None,
                {what: getattr(found.paper, what, None) for what in ("parameters", "macs", "latency")},
            )
        )
    return rows
