"""Putting a judged candidate in force, or turning it down: the end of a training job.

The commit point of a promotion is one compare-and-swap of ``models/<model>`` from the incumbent that the candidate
was judged against to the candidate, by the job that is open and the attempt that the job names. All that follows is
derived from that state, so a promotion killed anywhere and called again ends in the same place.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.evaluation.trained import get_version
from mlcost_pipeline.training.jobs import announce_end, end_job
from mlcost_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from mlcost_pipeline.evaluation.gate import GateResult

MAX_COOLDOWN_FACTOR = 4


def record_gate(warehouse: Warehouse, *, model: str, version: str, gate: GateResult) -> None:
    """Store a verdict with its version; a repeat changes nothing."""
    found = get_version(warehouse, model, version)
    if found.gate != gate.as_dict():
        changed = found.with_gate(gate.as_dict(), passed=gate.passed)
        warehouse.append("model_versions", [changed.row()])


def promote(
    warehouse: Warehouse, clock: Clock, *, model: str, version: str, attempt: int, job_id: str, gate: GateResult
) -> bool:
    """Put a candidate in force, retire the incumbent it was judged against, and end the job as promoted.

    Returns False, and changes nothing, where the job has ended otherwise, names another attempt, or somebody else
    was promoted since the candidate was judged (judge again then).

    Raises:
        ModelError: the gate did not pass, or judged another version.
    """
    if not gate.passed or gate.version != version:
        raise ModelError(f"model {model}: {version} cannot be promoted, its gate says: {gate.sentence}")
    if not _is_candidate(warehouse, job_id, version, attempt, end="promoted"):
        return False
    if not announce_end(warehouse, job_id, "promoted"):
        return False
    record_gate(warehouse, model=model, version=version, gate=gate)
    if not _move_incumbent(warehouse, clock, model, version, job_id, gate.incumbent):
        return False
    _write_history(warehouse, model, version)
    end_job(warehouse, clock, job_id, "promoted", gate.sentence)
    return True


def reject(
    warehouse: Warehouse, clock: Clock, *, model: str, version: str, attempt: int, job_id: str, gate: GateResult
) -> bool:
    """Keep the incumbent, double the cool-down (at most fourfold) and end the job as rejected.

    Returns False, and changes nothing, where the job has ended otherwise or names another attempt.

    Raises:
        ModelError: the gate passed, or judged another version.
    """
    if gate.passed or gate.version != version:
        raise ModelError(f"model {model}: {version} cannot be rejected, its gate says: {gate.sentence}")
    if not _is_candidate(warehouse, job_id, version, attempt, end="rejected"):
        return False
    if not announce_end(warehouse, job_id, "rejected"):
        return False
    record_gate(warehouse, model=model, version=version, gate=gate)
    _lengthen_cooldown(warehouse, model, job_id)
    end_job(warehouse, clock, job_id, "rejected", gate.sentence)
    return True


def _lengthen_cooldown(warehouse: Warehouse, model: str, job_id: str) -> None:
    """Once a job, however often it is called."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        if now.get("open_job") != job_id or now.get("cooldown_job") == job_id:
            return now
        factor = min(MAX_COOLDOWN_FACTOR, 2 * int(now.get("cooldown_factor", 1)))
        return {**now, "cooldown_factor": factor, "cooldown_job": job_id}

    warehouse.state.update(f"models/{model}", change)


def _is_candidate(warehouse: Warehouse, job_id: str, version: str, attempt: int, *, end: str) -> bool:
    """Whether the job names this version of this attempt, and has not ended in another way than `end`."""
    stored = warehouse.state.get(f"jobs/{job_id}/job")
    if stored is None:
        return False
    candidate = stored.value.get("candidate")
    named = isinstance(candidate, dict) and candidate.get("version") == version and candidate.get("attempt") == attempt
    return named and (stored.value.get("ended_at") is None or stored.value.get("state") == end)


def _move_incumbent(
    warehouse: Warehouse, clock: Clock, model: str, version: str, job_id: str, judged_against: str | None
) -> bool:
    moved = False

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        nonlocal moved
        now = value or {}
        if now.get("incumbent") == version:
            moved = True  # by this call or by one that was killed after it
            return now
        moved = now.get("open_job") == job_id and now.get("incumbent") == judged_against
        if not moved:
            return now
        at = clock.now().isoformat()
        return {**now, "incumbent": version, "previous": judged_against, "promoted_at": at, "cooldown_factor": 1}

    warehouse.state.update(f"models/{model}", change)
    return moved


def _write_history(warehouse: Warehouse, model: str, version: str) -> None:
    """Write when the version came into force and the one before it left, as the pointer's state tells."""
    stored = warehouse.state.get(f"models/{model}")
    if stored is None or stored.value.get("incumbent") != version:
        return
    at, previous = datetime.fromisoformat(stored.value["promoted_at"]), stored.value.get("previous")
    rows = [get_version(warehouse, model, version).row(promoted_at=at, retired_at=None)]
    if previous is not None:
        rows.append(get_version(warehouse, model, str(previous)).row(retired_at=at))
    warehouse.append("model_versions", rows)
