"""Size and cost of the networks of recipes, beside the paper's."""

from collections.abc import Sequence
from typing import Any

from dnlnet.lens.measure.complexity import count_complexity, measure_latency
from dnlnet.registry import match_recipes, network_of


def measure_complexity(patterns: Sequence[str], *, latency: bool = False) -> list[dict[str, Any]]:
    """A row for each recipe: the input's size, parameters, multiply-accumulates, seconds if asked, the paper's.

    >>> measure_complexity(["scenes-tiny-dnl"])[0]["size"]
    (96, 96)
    """
    chosen = {found.name: found for pattern in patterns for found in match_recipes(pattern)}
    rows = []
    for name, found in chosen.items():
        build, size = network_of(found)
        counted = count_complexity(build, size)
        rows.append(
            {
                "recipe": name,
                "size": size,
                "parameters": counted.parameters,
                "macs": counted.macs,
                "seconds": measure_latency(build, size) if latency else None,
                "paper": {what: getattr(found.paper, what, None) for what in ("parameters", "macs", "latency")},
            }
        )
    return rows
