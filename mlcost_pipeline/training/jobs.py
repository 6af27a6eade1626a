"""The end of a job: the first end stands, and what follows from it can be finished by anybody.

``jobs/<job>/job`` is the job's own state, ``models/<model>`` names the one that is open. A settlement announces the
end that it is about to carry out, so that no other end can slip in between its steps.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.warehouse import Warehouse

ENDS = ("promoted", "rejected", "exhausted", "cancelled")
#: These ends say that training this again would end the same way: the incumbent is blocked until a person rearms it.
BLOCKING = ("exhausted", "cancelled")

NEW_MODEL: dict[str, Any] = {
    "incumbent": None, "open_job": None, "blocked": [], "cooldown_factor": 1, "promoted_at": None,
}  # fmt: skip


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


def has_ended(warehouse: Warehouse, job_id: str) -> bool:
    """Whether the job was opened and has ended."""
    found = job_state(warehouse, job_id)
    return found is not None and found.get("ended_at") is not None


def announce_end(warehouse: Warehouse, job_id: str, state: str) -> bool:
    """Say which end the settlement carries out, so that nothing else ends the job; False if it has ended otherwise.

    A settlement that finds another incumbent judges again, and may then announce the other end.
    """

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        return {**now, "settling": state} if now.get("ended_at") is None else now

    found = warehouse.state.update(f"jobs/{job_id}/job", change).value
    return found.get("ended_at") is None or found.get("state") == state


def end_job(warehouse: Warehouse, clock: Clock, job_id: str, state: str, reason: str) -> bool:
    """End a job; the first end stands. Exhausted and cancelled block the incumbent. True if it ended as `state`.

    Raises:
        JobError: `state` ends no job, or the job was never opened.
    """
    if state not in ENDS:
        raise JobError(f"job {job_id}: state {state!r} ends no job; allowed: {', '.join(ENDS)}")
    require_job(warehouse, job_id)

    def ended(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        if now.get("ended_at") is not None or now.get("settling") not in (None, state):
            return now
        return {**now, "state": state, "reason": reason, "ended_at": clock.now().isoformat()}

    found = warehouse.state.update(f"jobs/{job_id}/job", ended).value
    finish_end(warehouse, job_id)
    return bool(found.get("state") == state)


def finish_end(warehouse: Warehouse, job_id: str) -> None:
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

    write_row(warehouse, job)
    warehouse.state.update(f"models/{job['model']}", freed)


def write_row(warehouse: Warehouse, job: dict[str, Any]) -> None:
    """The job as a row of table `jobs`."""
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
