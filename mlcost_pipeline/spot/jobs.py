"""A job: one decision to train, from its opening until it is promoted, rejected, exhausted or cancelled.

At most one job a model is open, by compare-and-swap of ``models/<model>``; ``jobs/<job>/job`` is the job's own state.
Each function may be killed anywhere and called again: it ends in the same place.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.predecessors import expected_work_seconds
from mlcost_pipeline.training.jobs import (
    NEW_MODEL,
    end_job,
    finish_end,
    has_ended,
    job_state,
    open_job_of,
    require_job,
    write_row,
)
from mlcost_pipeline.warehouse import Warehouse

__all__ = [
    "cancel_job",
    "end_job",
    "job_state",
    "note_candidate",
    "open_job",
    "open_job_of",
    "require_job",
    "set_current_attempt",
]


def open_job(
    warehouse: Warehouse, settings: Settings, clock: Clock, *, job_id: str, model: str, data_version: str
) -> bool:
    """Open a job unless another one of the model is open; True if this job is the open one now.

    The deadline is counted from the first call. A job that has ended is never opened again (False).
    """
    other = open_job_of(warehouse, model)
    for known in {job_id, other} - {None}:
        finish_end(warehouse, str(known))
    if has_ended(warehouse, job_id):
        return False

    def claim(value: dict[str, Any] | None) -> dict[str, Any]:
        now = {**NEW_MODEL, **(value or {})}
        return {**now, "open_job": job_id} if now["open_job"] is None else now

    if warehouse.state.update(f"models/{model}", claim).value["open_job"] != job_id:
        return False
    now = clock.now()
    deadline = now + timedelta(hours=settings.model(model).deploy_window_hours)
    estimate = expected_work_seconds(warehouse, model)
    fresh = {
        "job_id": job_id, "model": model, "data_version": data_version, "opened_at": now.isoformat(),
        "deadline": deadline.isoformat(), "work_estimate_seconds": estimate, "state": "open", "reason": None,
        "ended_at": None, "candidate": None, "current_attempt": 0,
    }  # fmt: skip
    warehouse.state.create(f"jobs/{job_id}/job", fresh)
    if has_ended(warehouse, job_id):  # it ended between the first look and the claim
        finish_end(warehouse, job_id)
        return False
    write_row(warehouse, require_job(warehouse, job_id))
    return True


def cancel_job(warehouse: Warehouse, clock: Clock, job_id: str, reason: str) -> None:
    """End a job by a person's word; its supervisor notices within seconds and stops the attempt under way.

    Raises:
        JobError: it has ended otherwise, or its candidate is being put in force or turned down this very moment.
    """
    if not end_job(warehouse, clock, job_id, "cancelled", reason):
        now = require_job(warehouse, job_id)
        how = now["state"] if now.get("ended_at") else f"being {now['settling']}"
        raise JobError(f"job {job_id}: cannot be cancelled, it is {how} already")


def set_current_attempt(warehouse: Warehouse, job_id: str, number: int) -> bool:
    """Name the attempt whose result will count; False if a later one is named already or the job has ended."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        later = int(now.get("current_attempt") or 0) > number
        return now if later or now.get("ended_at") is not None else {**now, "current_attempt": number}

    stored = warehouse.state.update(f"jobs/{job_id}/job", change)
    return stored.value.get("current_attempt") == number and stored.value.get("ended_at") is None


def note_candidate(warehouse: Warehouse, job_id: str, *, attempt: int, version: str) -> bool:
    """Note what an attempt trained, if it still is the current attempt of an open job; True if it is the candidate."""
    candidate = {"attempt": attempt, "version": version}

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        stale = now.get("current_attempt") != attempt or now.get("ended_at") is not None
        return now if stale or now.get("candidate") is not None else {**now, "candidate": candidate}

    return bool(warehouse.state.update(f"jobs/{job_id}/job", change).value.get("candidate") == candidate)
