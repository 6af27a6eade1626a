"""A job: one decision to train, from its opening until it is promoted, rejected, exhausted or cancelled.

At most one job a model is open, by compare-and-swap of ``models/<model>``; ``jobs/<job>/job`` is the job's own state.
Each function may be killed anywhere and called again: it ends in the same place.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.predecessors import expected_work_seconds
from mlcost_pipeline.warehouse import Warehouse

ENDS = ("promoted", "rejected", "exhausted", "cancelled")
#: These ends say that training this again would end the same way: the incumbent is blocked until a person rearms it.
BLOCKING = ("exhausted", "cancelled")

NEW_MODEL: dict[str, Any] = {
    "incumbent": None, "open_job": None, "blocked": [], "cooldown_factor": 1, "promoted_at": None,
}  # fmt: skip


def open_job(
    warehouse: Warehouse, settings: Settings, clock: Clock, *, job_id: str, model: str, data_version: str
) -> bool:
    """Open a job unless another one of the model is open; True if this job is the open one now.

    The deadline is counted from the first call. A job that has ended is never opened again (False).
    """
    other = open_job_of(warehouse, model)
    for known in {job_id, other} - {None}:
        _finish_end(warehouse, str(known))
    if _has_ended(warehouse, job_id):
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
    if _has_ended(warehouse, job_id):  # it ended between the first look and the claim
        _finish_end(warehouse, job_id)
        return False
    _write_row(warehouse, require_job(warehouse, job_id))
    return True


def job_state(warehouse: Warehouse, job_id: str) -> dict[str, Any] | None:
    """The state of a job, None if it was never opened.

    ``candidate`` is null or ``{"attempt", "version"}``; ``ended_at`` is null while the job is open.
    """
    stored = warehouse.state.get(f"jobs/{job_id}/job")
    return None if stored is None else stored.value


def require_job(warehouse: Warehouse, job_id: str) -> dict[str, Any]:
    """As :func:`job_state`, but a job that was never opened is an error."""
    found = job_state(warehouse, job_id)
    if found is None:
        raise JobError(f"job {job_id}: was never opened; a decision opens it, or: mlcost retrain MODEL --reason TEXT")
    return found


def open_job_of(warehouse: Warehouse, model: str) -> str | None:
    """The job of a model that is open now."""
    stored = warehouse.state.get(f"models/{model}")
    found = None if stored is None else stored.value.get("open_job")
    return None if found is None else str(found)


def end_job(warehouse: Warehouse, clock: Clock, job_id: str, state: str, reason: str) -> None:
    """End a job; the first end stands. Exhausted and cancelled block the incumbent.

    Raises:
        JobError: `state` ends no job, or the job was never opened.
    """
    if state not in ENDS:
        raise JobError(f"job {job_id}: state {state!r} ends no job; allowed: {', '.join(ENDS)}")
    require_job(warehouse, job_id)

    def ended(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        if now.get("ended_at") is not None:
            return now
        return {**now, "state": state, "reason": reason, "ended_at": clock.now().isoformat()}

    warehouse.state.update(f"jobs/{job_id}/job", ended)
    _finish_end(warehouse, job_id)


def cancel_job(warehouse: Warehouse, clock: Clock, job_id: str, reason: str) -> None:
    """End a job by a person's word; its supervisor notices within seconds and stops the attempt under way."""
    end_job(warehouse, clock, job_id, "cancelled", reason)


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


def _has_ended(warehouse: Warehouse, job_id: str) -> bool:
    found = job_state(warehouse, job_id)
    return found is not None and found.get("ended_at") is not None


def _finish_end(warehouse: Warehouse, job_id: str) -> None:
    """What follows from an end: the row, the model's freedom, and the block; all of it may be done before."""
    job = job_state(warehouse, job_id)
    if job is None or job.get("ended_at") is None:
        return

    def freed(value: dict[str, Any] | None) -> dict[str, Any]:
        now = {**NEW_MODEL, **(value or {})}
        if now["open_job"] != job_id:
            return now
        block = job["state"] in BLOCKING and now["incumbent"] not in now["blocked"]
        return {**now, "open_job": None, "blocked": [*now["blocked"], *([now["incumbent"]] if block else [])]}

    _write_row(warehouse, job)
    warehouse.state.update(f"models/{job['model']}", freed)


def _write_row(warehouse: Warehouse, job: dict[str, Any]) -> None:
    ended = job.get("ended_at")
    row = {
        "job_id": job["job_id"],
        "model": job["model"],
        "deadline": datetime.fromisoformat(job["deadline"]),
        "work_estimate_seconds": job.get("work_estimate_seconds"),
        "state": job["state"],
        "reason": job.get("reason"),
        "ended_at": None if ended is None else datetime.fromisoformat(ended),
    }
    warehouse.append("jobs", [row])
