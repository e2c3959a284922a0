"""Summary of a study: means over seeds, paired differences, and the columns of Table 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from dnlnet.recipes.recipe import METHODS

OVERLAPS = ("pair_within", "pair_boundary", "unary_boundary")
# The paper compares the global context block for detection only.
STUDY_METHODS: Mapping[str | None, str] = {**METHODS, "gc": "GC"}
# Tables 1 and 2 of the paper (Cityscapes, ResNet-101), in the order of OVERLAPS. Not our results.
PAPER_OVERLAPS: Mapping[str, tuple[float | None, float | None, float | None]] = {
    "random": (0.259, 0.132, 0.135),
    "nl_pairwise": (0.635, 0.141, None),
    "nl_unary": (None, None, 0.460),
    "nl": (0.318, 0.160, 0.172),
    "dnl_star": (0.446, 0.146, 0.305),
    "dnl_dagger": (0.679, 0.137, 0.657),
    "dnl": (0.759, 0.130, 0.696),
}


@dataclass(frozen=True)
class SeedMean:
    """Mean and std over seeds. The std of a single seed is None."""

    mean: float
    std: float | None
    values: tuple[float, ...] = field(repr=False)

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "SeedMean | None":
        """Average the known values. Return None if there are none.

        >>> SeedMean.of([0.5, None, 0.7])
        SeedMean(mean=0.6, std=0.1414...)
        """
        known = tuple(value for value in values if value is not None)
        if not known:
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None, known)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.std is None else f"{self.mean:.3f} ± {self.std:.3f}"


@dataclass(frozen=True)
class PairedDifference:
    """Mean of paired differences with its 95 % confidence interval, which needs at least two pairs."""

    mean: float
    low: float | None
    high: float | None
    pairs: int

    @classmethod
    def of(cls, ours: Mapping[int, float], theirs: Mapping[int, float]) -> "PairedDifference | None":
        """Pair values by seed. Return None without a common seed.

        >>> PairedDifference.of({0: 0.66, 1: 0.65, 2: 0.67}, {0: 0.65, 1: 0.65, 2: 0.65})
        PairedDifference(mean=0.01..., low=-0.0148..., high=0.0348..., pairs=3)
        """
        values = [ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))]
        if not values:
            return None
        mean, count = fmean(values), len(values)
        if count == 1:
            return cls(mean, None, None, 1)
        reach = student_quantile(count - 1) * stdev(values) / math.sqrt(count)
        return cls(mean, mean - reach, mean + reach, count)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution.

    >>> round(student_quantile(16), 3)
    2.12
    """
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


@dataclass(frozen=True)
class RecipeSummary:
    """Results of one recipe over its seeds."""

    recipe: str
    variant: str | None
    seeds: int
    score: SeedMean | None
    difference: PairedDifference | None
    overlaps: Mapping[str, SeedMean | None]
    gamma: SeedMean | None
    minutes: SeedMean | None

    @property
    def method(self) -> str:
        """Name of the variant in the paper."""
        return STUDY_METHODS.get(self.variant, self.variant or "")


def pool_folds(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Combine the folds of each recipe and seed: mean scores, weighted by the number of test samples.

    A seed without all its folds is left out, because its score is of other samples. Results without folds are kept.

    >>> parts = [{"recipe": "a", "variant": "nl", "seed": 0, "fold": fold, "folds": 2} for fold in (1, 2)]
    >>> first = parts[0] | {"scores": {"top1": 1.0}, "samples": 30, "gamma": {}, "seconds": 60.0}
    >>> second = parts[1] | {"scores": {"top1": 0.4}, "samples": 10, "gamma": {}, "seconds": 60.0}
    >>> [(pooled["scores"], pooled["seconds"]) for pooled in pool_folds([first, second])]
    [({'top1': 0.85}, 120.0)]
    >>> pool_folds([first])
    []
    """
    pooled: list[Mapping[str, Any]] = []
    by_run: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for result in results:
        by_run.setdefault((result["recipe"], result["seed"]), []).append(result)
    for parts in by_run.values():
        if "folds" not in parts[0]:
            pooled += parts
        elif len(parts) == parts[0]["folds"]:
            counts = [part["samples"] or 0 for part in parts]
            seconds = [part["seconds"] for part in parts]
            means = {
                name: fmean([part["scores"][name] for part in parts], weights=counts) for name in parts[0]["scores"]
            }
            gates = {name: fmean(part["gamma"][name] for part in parts) for name in parts[0]["gamma"]}
            whole = {"scores": means, "samples": sum(counts), "gamma": gates}
            pooled.append({**parts[0], **whole, "seconds": None if None in seconds else sum(seconds)})
    return pooled


def summarise(results: Sequence[Mapping[str, Any]], reference: str = "nl") -> tuple[str, list[RecipeSummary]]:
    """Return the name of the score, and a summary per recipe in the paper's order of variants.

    Args:
        results: Results from `read_results`.
        reference: Reference variant of the comparisons.
    """
    by_recipe: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        by_recipe.setdefault(result["recipe"], []).append(result)
    score = next((next(iter(result["scores"]), "") for result in results), "")
    order = list(STUDY_METHODS)

    def place(name: str) -> tuple[str, int]:
        variant = by_recipe[name][0]["variant"]
        return name.rpartition("-")[0], order.index(variant) if variant in order else len(order)

    rows = []
    for name in sorted(by_recipe, key=place):
        runs = by_recipe[name]
        other = f"{name.rpartition('-')[0]}-{reference}"
        difference = PairedDifference.of(_by_seed(runs, score), _by_seed(by_recipe.get(other, []), score))
        rows.append(
            RecipeSummary(
                name,
                runs[0]["variant"],
                len(runs),
                SeedMean.of([run["scores"].get(score) for run in runs]),
                None if name == other else difference,
                {key: SeedMean.of([_overlap(run, key) for run in runs]) for key in OVERLAPS},
                SeedMean.of([next(iter(run["gamma"].values()), None) for run in runs]),
                SeedMean.of([None if run["seconds"] is None else run["seconds"] / 60 for run in runs]),
            )
        )
    return score, rows


def _by_seed(runs: Sequence[Mapping[str, Any]], score: str) -> dict[int, float]:
    return {run["seed"]: run["scores"][score] for run in runs if run["scores"].get(score) is not None}


def _overlap(run: Mapping[str, Any], key: str) -> float | None:
    """Return an overlap of the first block, or None for a network without blocks."""
    return next(iter(run["overlaps"].values()))[key] if run["overlaps"] else None
