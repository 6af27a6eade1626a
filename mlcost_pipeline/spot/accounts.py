"""What a job and its attempts cost, beside what on-demand alone would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.spot.estimate import load_seconds
from mlcost_pipeline.warehouse import Warehouse

_HOUR_MICROSECONDS = Decimal(3_600_000_000)


@dataclass(frozen=True)
class AttemptSummary:
    """One attempt as a report shows it. Times and seconds are of the model's clock."""

    number: int
    pool: str
    market: str
    reason: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    cause: str | None
    resumed_from: int
    reached_step: int
    total_steps: int
    steps_done: int
    steps_redone: int
    billed_seconds: float
    cost_usd: Decimal


def price_of(per_hour: Decimal, length: timedelta) -> Decimal:
    """Money for a stretch of time, exact to the microsecond, in 1e-18 of the currency."""
    return (per_hour * Decimal(length // timedelta(microseconds=1)) / _HOUR_MICROSECONDS).quantize(UNIT)


def summarise(attempt: Attempt, now: datetime) -> AttemptSummary:
    """An attempt with what it has cost, up to its end or to `now`. It is billed from its claim on."""
    length = max(timedelta(0), (attempt.ended_at or now) - attempt.claimed_at)
    return AttemptSummary(
        attempt.number, attempt.pool, attempt.market, attempt.reason, attempt.claimed_at, attempt.ended_at,
        attempt.outcome, attempt.cause, attempt.resumed_from, attempt.reached_step, attempt.total_steps,
        attempt.steps_done, attempt.steps_redone, length.total_seconds(), price_of(attempt.price_per_hour, length),
    )  # fmt: skip


def on_demand_cost(
    warehouse: Warehouse, settings: Settings, clock: Clock, model: str, done: Sequence[Attempt]
) -> Decimal:
    """What the same useful work would have cost on the cheapest on-demand pool: its steps once, one changeover."""
    pools = [pool for pool in settings.capacity.pools if pool.market == "on_demand"]
    if not pools:
        raise JobError("capacity.pools: no pool has market on_demand, so there is nothing to compare with")
    best = min(pools, key=lambda pool: (pool.price_per_hour, pool.name))
    useful = sum(attempt.useful_seconds(clock) for attempt in done)
    changeover = best.startup_seconds + load_seconds(warehouse, clock, model, done)
    return price_of(best.price_per_hour, timedelta(seconds=useful + changeover))
