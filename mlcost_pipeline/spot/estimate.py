"""What a decision may know: time and work left, and what a changeover costs, from this job and its predecessors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.spot.policy import PoolView, Situation
from mlcost_pipeline.spot.predecessors import expected_load_seconds, high_quantile
from mlcost_pipeline.warehouse import Warehouse

UNKNOWN_LOAD_WALL_SECONDS = 10.0  # imports and data, before any attempt has told
UNKNOWN_WORK_SHARE = 0.5  # of the deploy window, before any job of the model has told


def situation(
    warehouse: Warehouse,
    clock: Clock,
    job: Mapping[str, Any],
    attempts: Sequence[Attempt],
    pools: tuple[PoolView, ...],
    *,
    checkpoint_wall_seconds: float,
) -> Situation:
    """The situation of a job now; `attempts` hold their newest progress, also the one that runs."""
    deadline = datetime.fromisoformat(job["deadline"])
    running = next((attempt.pool for attempt in attempts if not attempt.ended), None)
    startup = max(pool.startup_seconds for pool in pools)
    changeover = startup + load_seconds(warehouse, clock, job["model"], attempts)
    return Situation(
        time_left_seconds=(deadline - clock.now()).total_seconds(),
        work_seconds=work_seconds(clock, job, attempts),
        changeover_seconds=changeover + checkpoint_wall_seconds * clock.rate,
        pools=pools,
        running=running,
    )


def work_seconds(clock: Clock, job: Mapping[str, Any], attempts: Sequence[Attempt]) -> float:
    """Work left from the last durable step, in seconds of the model's clock.

    From the pace of this job once it is known, else from earlier jobs, else a share of the deploy window.
    """
    steps = sum(attempt.steps_done for attempt in attempts)
    total = max((attempt.total_steps for attempt in attempts), default=0)
    if steps and total:
        pace = sum(attempt.stepping_seconds(clock) for attempt in attempts) / steps
        durable = max(attempt.durable_step for attempt in attempts)
        return (total - durable) * pace
    if job.get("work_estimate_seconds") is not None:
        return float(job["work_estimate_seconds"])
    window = datetime.fromisoformat(job["deadline"]) - datetime.fromisoformat(job["opened_at"])
    return window.total_seconds() * UNKNOWN_WORK_SHARE


def load_seconds(warehouse: Warehouse, clock: Clock, model: str, attempts: Sequence[Attempt]) -> float:
    """From the end of boot to the first step, the 95th percentile of what this job or its predecessors showed."""
    measured = high_quantile([attempt.load_seconds for attempt in attempts if attempt.load_seconds is not None])
    if measured is not None:
        return measured
    expected = expected_load_seconds(warehouse, model)
    return UNKNOWN_LOAD_WALL_SECONDS * clock.rate if expected is None else expected
