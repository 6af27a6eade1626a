"""The course of a job as a line of time: on spot, on-demand, or waiting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mlcost_pipeline.spot.attempts import attempts_of
from mlcost_pipeline.spot.jobs import require_job
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Segment:
    """A stretch of a job's time: `spot`, `on_demand` or `wait`; `steps` new ones were made in it."""

    start: datetime
    end: datetime
    what: str
    pool: str | None
    steps: int


def timeline(warehouse: Warehouse, job_id: str, now: datetime) -> list[Segment]:
    """The course of a job without gaps, from its opening to the end of its last attempt (or `now` while it runs)."""
    segments: list[Segment] = []
    at = datetime.fromisoformat(require_job(warehouse, job_id)["opened_at"])
    for attempt in attempts_of(warehouse, job_id):
        if attempt.claimed_at > at:
            segments.append(Segment(at, attempt.claimed_at, "wait", None, 0))
        start, end = max(at, attempt.claimed_at), max(at, attempt.ended_at or now)
        if end > start:
            new_steps = attempt.steps_done - attempt.steps_redone
            segments.append(Segment(start, end, attempt.market, attempt.pool, new_steps))
        at = end
    return segments
