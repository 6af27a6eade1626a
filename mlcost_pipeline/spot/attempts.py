"""Attempts of a job: numbered by conditional create, one after the other, each with its whole story in one record."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.warehouse import Warehouse

_TIMES = ("claimed_at", "launched_at", "ended_at", "beat_at")


@dataclass(frozen=True)
class Attempt:
    """One attempt. Seconds and times are of the model's clock, except those named wall seconds.

    `outcome` is null while it runs, then `succeeded`, `interrupted` (by the market or by us), `failed` (an error of
    the job), `lost` (it vanished while nobody looked) or `refused` (no capacity). `beat_at` is when the trainer last
    told of itself; `data_wait_wall_seconds` is null where it does not say how long it waited for data. `clock_rate` is
    how many seconds of the model's clock a wall second was then: the clock may go at another rate when it is read.
    """

    job_id: str
    number: int
    pool: str
    market: str
    price_per_hour: Decimal
    reason: str
    claimed_at: datetime
    launched_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str | None = None
    cause: str | None = None
    exit_code: int | None = None
    handle: dict[str, Any] | None = None
    resumed_from: int = 0
    reached_step: int = 0
    durable_step: int = 0
    total_steps: int = 0
    steps_done: int = 0
    steps_redone: int = 0
    load_seconds: float | None = None
    stepping_wall_seconds: float = 0.0
    cpu_wall_seconds: float = 0.0
    data_wait_wall_seconds: float | None = None
    beat_at: datetime | None = None
    clock_rate: float | None = None

    @property
    def run_id(self) -> str:
        return f"{self.job_id}/{self.number}"

    @property
    def resource_id(self) -> str:
        return f"{self.pool}/{self.job_id}/{self.number}"

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    def stepping_seconds(self, clock: Clock) -> float:
        """Stepping time on the model's clock; `clock` tells its rate where the attempt does not."""
        return self.stepping_wall_seconds * (self.clock_rate or clock.rate)

    def useful_seconds(self, clock: Clock) -> float:
        """As :meth:`stepping_seconds`, without what was spent on steps done before."""
        share = (self.steps_done - self.steps_redone) / self.steps_done if self.steps_done else 0.0
        return self.stepping_seconds(clock) * share

    def as_dict(self) -> dict[str, Any]:
        value = {**asdict(self), "price_per_hour": str(self.price_per_hour)}
        for name in _TIMES:
            value[name] = value[name].isoformat() if value[name] else None
        return value

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Attempt:
        known = {field.name: value[field.name] for field in fields(cls) if field.name in value}
        for name in _TIMES:
            known[name] = datetime.fromisoformat(known[name]) if known.get(name) else None
        return cls(**{**known, "price_per_hour": Decimal(known["price_per_hour"])})


def attempts_of(warehouse: Warehouse, job_id: str) -> list[Attempt]:
    """All attempts of a job, in order."""
    folder = f"jobs/{job_id}/attempts"
    found = [warehouse.state.get(f"{folder}/{name}") for name in warehouse.state.names(folder)]
    return sorted((Attempt.from_dict(stored.value) for stored in found if stored), key=lambda a: a.number)


def claim_next(
    warehouse: Warehouse, job_id: str, *, pool: str, market: str, price_per_hour: Decimal, reason: str, now: datetime,
    clock_rate: float | None = None,
) -> Attempt | None:  # fmt: skip
    """Create the next attempt on condition that nobody else did; None if somebody else was faster.

    Raises:
        JobError: the attempt before has not ended.
    """
    before = attempts_of(warehouse, job_id)
    if before and not before[-1].ended:
        raise JobError(f"job {job_id}: attempt {before[-1].number} has not ended; it must end before the next begins")
    number = len(before) + 1
    attempt = Attempt(job_id, number, pool, market, price_per_hour, reason, now, clock_rate=clock_rate)
    created = warehouse.state.create(f"jobs/{job_id}/attempts/{attempt.number}", attempt.as_dict())
    return attempt if created else None


def change_attempt(warehouse: Warehouse, attempt: Attempt, **changes: Any) -> Attempt:
    """Change the record of an attempt; one that has ended stays as it is. Returns the record as it stands."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = Attempt.from_dict(value) if value else attempt
        return now.as_dict() if now.ended else replace(now, **changes).as_dict()

    stored = warehouse.state.update(f"jobs/{attempt.job_id}/attempts/{attempt.number}", change)
    return Attempt.from_dict(stored.value)
