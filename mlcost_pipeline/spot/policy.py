"""When spot, when on-demand, when wait: a pure decision, separate from whatever carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class PoolView:
    """A pool as it looks now. Seconds are of the model's clock."""

    name: str
    market: str  # spot | on_demand
    available: bool
    price_per_hour: Decimal
    startup_seconds: float
    spell_seconds: float | None = None  # age of the present spell; None: not known


@dataclass(frozen=True)
class Situation:
    """All that a decision may look at.

    ``work_seconds`` is what is left from the last durable step. ``changeover_seconds`` is what starting anew costs:
    boot, load, resume, and the work since the last checkpoint.
    """

    time_left_seconds: float
    work_seconds: float
    changeover_seconds: float
    pools: tuple[PoolView, ...]
    running: str | None = None  # name of the pool that an attempt runs on now

    @property
    def slack_seconds(self) -> float:
        """Time left beyond what finishing on-demand from here takes."""
        return self.time_left_seconds - self.work_seconds

    @property
    def guaranteed(self) -> bool:
        """Whether starting on-demand now still meets the deadline."""
        return self.slack_seconds >= self.changeover_seconds


@dataclass(frozen=True)
class Choice:
    """Run on `pool`, or wait (None), and why."""

    pool: str | None
    reason: str


Policy = Callable[[Situation], Choice]


def greedy(situation: Situation) -> Choice:
    """Spot while it can be had, else wait; on-demand to the end once waiting longer would risk the deadline.

    The margin is two changeovers (Wu et al., NSDI 2024: "Can't Be Late"): one to start on-demand, one for a spot
    attempt that was begun and lost. A running attempt is never left for another.
    """
    running = next((pool for pool in situation.pools if pool.name == situation.running), None)
    if running is not None:
        return Choice(running.name, f"goes on on {running.name}")
    margin = 2 * situation.changeover_seconds
    if situation.slack_seconds < margin:
        reason = f"slack of {_hours(situation.slack_seconds)} is below two changeovers ({_hours(margin)})"
        return _on_demand(situation, reason)
    spot = [pool for pool in situation.pools if pool.market == "spot" and pool.available]
    if spot:
        best = min(spot, key=lambda pool: (pool.price_per_hour, -(pool.spell_seconds or 0.0), pool.name))
        return Choice(best.name, f"spot can be had at {best.price_per_hour} an hour")
    return Choice(None, f"no spot, and slack of {_hours(situation.slack_seconds)} allows to wait")


def on_demand(situation: Situation) -> Choice:
    """On-demand from start to end: the yardstick, and the safe choice."""
    if situation.running is not None:
        return Choice(situation.running, f"goes on on {situation.running}")
    return _on_demand(situation, "on-demand by policy")


POLICIES: dict[str, Policy] = {"greedy": greedy, "on_demand": on_demand}


def _on_demand(situation: Situation, reason: str) -> Choice:
    pools = [pool for pool in situation.pools if pool.market == "on_demand"]
    granted = [pool for pool in pools if pool.available]
    if granted:
        best = min(granted, key=lambda pool: (pool.price_per_hour, pool.name))
        return Choice(best.name, reason)
    spot = [pool for pool in situation.pools if pool.market == "spot" and pool.available]
    if spot:
        return Choice(spot[0].name, f"{reason}, but no on-demand pool grants capacity: spot rather than nothing")
    return Choice(None, f"{reason}, but no pool grants capacity")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h"
