"""Each declared slice on its own: harmed only if shown, held only if shown, and too small is said, not passed.

A slice is harmed if its loss goes beyond the budget by the paired bootstrap and is a loss at all by the exact
McNemar test, both after Holm's correction over the declared slices: a single lost case proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.evaluation.intervals import PairedDifference, holm, loss_p_value, paired_difference

CONFIDENCE = 0.95

Status = Literal["harmed", "held", "not_shown"]


@dataclass(frozen=True)
class Comparison:
    """Two models on the same units (users or frauds): success under each, the unit's block, its slice by dimension."""

    candidate: NDArray[np.bool_]
    reference: NDArray[np.bool_]
    block: NDArray[np.int64]
    dimensions: Mapping[str, NDArray[np.object_]]

    def difference(self, where: NDArray[np.bool_] | None = None) -> PairedDifference:
        """The paired difference over all units, or over those of `where`."""
        chosen = slice(None) if where is None else where
        return paired_difference(
            self.candidate[chosen].astype(np.float64), self.reference[chosen].astype(np.float64), self.block[chosen]
        )


@dataclass(frozen=True)
class SliceResult:
    """One slice: counts, levels (share of units), their difference with one-sided 95 % bounds, and what is shown."""

    dimension: str
    value: str
    important: bool
    units: int
    reference_count: int
    candidate_count: int
    lost: int
    won: int
    difference: float | None
    low: float | None
    high: float | None
    margin: float
    p_harm: float
    status: Status

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_slices(
    comparison: Comparison, budget: float, important: Mapping[str, Sequence[str]] | None = None
) -> list[SliceResult]:
    """Every slice of every dimension; important ones are listed even where they are empty.

    Args:
        budget: share of the reference's level that a slice may lose.
    """
    named = important or {}
    found = []
    for dimension, values in comparison.dimensions.items():
        present = {str(value) for value in values}
        declared = set(named.get(dimension, ()))
        for value in sorted(present | declared):
            found.append(_measure(comparison, dimension, value, values == value, budget, value in declared))
    adjusted = holm([result.p_harm for result in found])
    return [_judged(result, p, budget) for result, p in zip(found, adjusted, strict=True)]


def needed_successes(budget: float, confidence: float = CONFIDENCE) -> int:
    """Successes below which not even a comparison without a loss shows that at most `budget` of them is lost.

    From (1 - budget)^n <= 1 - confidence: 59 for 5 % at 95 %.
    """
    if budget <= 0:
        return 1 << 62
    return 1 if budget >= 1 else math.ceil(math.log(1 - confidence) / math.log(1 - budget))


def _measure(
    comparison: Comparison, dimension: str, value: str, where: NDArray[np.bool_], budget: float, important: bool
) -> SliceResult:
    candidate, reference = comparison.candidate[where], comparison.reference[where]
    lost, won = int((reference & ~candidate).sum()), int((candidate & ~reference).sum())
    units = len(candidate)
    margin = budget * float(reference.mean()) if units else 0.0
    difference = low = high = None
    p_harm = 1.0
    if len(np.unique(comparison.block[where])) >= 2:
        paired = comparison.difference(where)
        difference, low, high = paired.difference, paired.low(CONFIDENCE), paired.high(CONFIDENCE)
        p_harm = max(loss_p_value(lost, won), paired.share_at_least(-margin))
    return SliceResult(
        dimension, value, important, units, int(reference.sum()), int(candidate.sum()), lost, won,
        difference, low, high, margin, p_harm, "not_shown",
    )  # fmt: skip


def _judged(result: SliceResult, p_harm: float, budget: float) -> SliceResult:
    status: Status = "not_shown"
    if p_harm <= 1 - CONFIDENCE:
        status = "harmed"
    elif result.low is not None and result.low >= -result.margin and result.reference_count >= needed_successes(budget):
        status = "held"
    return SliceResult(**{**asdict(result), "p_harm": p_harm, "status": status})
