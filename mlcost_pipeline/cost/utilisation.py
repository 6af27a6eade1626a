"""Busy hours ÷ billed hours, in hours of one device; the denominator comes from the bill.

A run without samples is unknown and never counts as full: the share is that of the measured time, the coverage says
how much of the billed time that is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlcost_pipeline.cost.device_ladder import Ladder


@dataclass(frozen=True)
class Utilisation:
    """Device hours of one stage: billed, sampled (billed of runs with a measurement), busy; `metrics` names how."""

    billed_hours: float
    sampled_hours: float
    busy_hours: float
    metrics: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """Busy ÷ billed where it was measured; None if nothing was."""
        return self.busy_hours / self.sampled_hours if self.sampled_hours > 0 else None

    @property
    def coverage(self) -> float:
        """The share of the billed time that was measured; what is left is unknown, not idle."""
        return self.sampled_hours / self.billed_hours if self.billed_hours > 0 else 0.0


def utilisation(ladders: Iterable[Ladder]) -> Utilisation:
    """Utilisation over some ladders, which must be of different models or stages."""
    found = list(ladders)
    return Utilisation(
        sum(ladder.billed for ladder in found) / 3600,
        sum(ladder.measured for ladder in found) / 3600,
        sum(ladder.active for ladder in found) / 3600,
        tuple(sorted({metric for ladder in found for metric in ladder.metrics})),
    )
