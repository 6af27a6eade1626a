"""What a sensor asks, answered from a few small state objects: is a retrain due, is a day due, and if not, why not.

No table is read here, so a tick costs the same after five years of days as on the first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evidence.summary import summary_of
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.jobs import job_state, open_job_of
from mlcost_pipeline.spot.lease import Lease, supervisor_lease
from mlcost_pipeline.training.acting import frozen, why_not_act
from mlcost_pipeline.warehouse import Warehouse

#: Wall seconds after a supervisor let go of a trained job in which its gate is expected to be at work.
GATE_SECONDS = 20.0
LOOK_AGAIN_SECONDS = 2.0


@dataclass(frozen=True)
class Fire:
    """Request a run, once for each key."""

    key: str
    model: str
    reason: str
    decision_id: str | None = None
    day: date | None = None


@dataclass(frozen=True)
class Skip:
    """Request nothing, and say why with numbers; `wait_seconds` is when asking again may help, where that is known."""

    reason: str
    wait_seconds: float | None = None


def retrain_due(
    warehouse: Warehouse, settings: Settings, model: str, *, gate_seconds: float = GATE_SECONDS
) -> Fire | Skip:
    """Whether the model's open job needs a supervisor.

    A job whose supervisor died is due again under the next key, so a killed launch loses nothing; while a supervisor
    lives, nothing fires. `gate_seconds` is how long a trained job is left to the gate of the run that trained it; a
    caller that runs one thing after the other passes 0.
    """
    job_id = open_job_of(warehouse, model)
    if job_id is None:
        return Skip(_why_idle(warehouse, model))
    job = job_state(warehouse, job_id)
    if job is not None and job.get("ended_at") is not None:
        return Skip(f"{model}: job {job_id} ended {job['state']}: {job.get('reason') or 'no reason given'}")
    forbidden = why_not_act(warehouse, settings, model)
    lease = supervisor_lease(warehouse, job_id)
    launches = 0 if lease is None else lease.launches
    if lease is not None and lease.live:
        return Skip(_under_way(model, job_id, job or {}, lease), wait_seconds=LOOK_AGAIN_SECONDS)
    if forbidden is not None:
        return Skip(f"{model}: job {job_id} is open but not launched: {forbidden}")
    candidate = (job or {}).get("candidate")
    if candidate is not None:
        left = _gate_seconds_left(warehouse, job_id, gate_seconds)
        if left > 0:
            said = f"{model}: job {job_id} trained {candidate['version']}, its gate is at work"
            return Skip(f"{said} (due again in {left:.0f} s if it died)", wait_seconds=left)
    summary = summary_of(warehouse, model)
    same = summary.get("decision_id") == job_id
    reason = str(summary.get("sentence")) if same else f"job {job_id} is open and no supervisor lives"
    return Fire(f"{job_id}:{launches + 1}", model, reason, decision_id=job_id)


def day_due(warehouse: Warehouse, settings: Settings, clock: Clock, model: str) -> Fire | Skip:
    """Whether the newest complete day (UTC) has no decision yet, or a person did something since it was decided.

    Days before it are history: they are backfilled, and never fire.
    """
    now = clock.now()
    day = now.date() - timedelta(days=1)
    first = settings.model(model).first_day
    if day < first:
        return Skip(f"{model}: its first day, {first}, is not over yet (now {now:%Y-%m-%d %H:%M})")
    summary = summary_of(warehouse, model)
    decided, retake = summary.get("as_of"), summary.get("retake")
    if decided is None or str(decided) < day.isoformat():
        last = f"the last decision is of {decided}" if decided else "there is no decision yet"
        return Fire(f"{model}:{day}", model, f"{day} is complete and {last}", day=day)
    if retake is not None:
        target = max(day, date.fromisoformat(str(decided)))
        return Fire(
            f"{model}:{target}:{retake}", model, f"a person acted or reviewed since {target} was decided", day=target
        )
    midnight = (day + timedelta(days=2)).isoformat()
    return Skip(
        f"{model}: {decided} is decided ({summary.get('verdict')}, {summary.get('reason')}); "
        f"the next day is complete at {midnight} 00:00 UTC, now {now:%Y-%m-%d %H:%M}"
    )


def _why_idle(warehouse: Warehouse, model: str) -> str:
    summary = summary_of(warehouse, model)
    if summary.get("decision_id") is None:
        return f"{model}: no decision yet"
    head = f"{model} {summary['as_of']}: {summary['verdict']} ({summary['reason']})"
    if summary["verdict"] == "retrain":
        return f"{head}, not launched: {summary.get('not_acted') or 'its job has ended'}. {summary['sentence']}"
    stopped = frozen(warehouse, model)
    held = "" if stopped is None else f" [frozen by {stopped['who']}]"
    return f"{head}{held}. {summary['sentence']} {_distances(summary.get('distances') or {})}".rstrip()


def _distances(distances: dict[str, Any]) -> str:
    told = [
        f"{name} {entry['value']:g} of {entry['threshold']:g}"
        for name, entry in sorted(distances.items())
        if entry.get("value") is not None and entry.get("threshold") is not None
    ]
    return f"[{', '.join(told)}]" if told else ""


def _under_way(model: str, job_id: str, job: dict[str, Any], lease: Lease) -> str:
    attempt = job.get("current_attempt") or 0
    return (
        f"{model}: job {job_id} is in progress (attempt {attempt}, supervisor {lease.launches}, "
        f"deadline {job.get('deadline', 'unknown')})"
    )


def _gate_seconds_left(warehouse: Warehouse, job_id: str, gate_seconds: float) -> float:
    stored = warehouse.state.get(f"jobs/{job_id}/supervisor")
    if stored is None:
        return 0.0
    return float(stored.value["expires_wall"]) + gate_seconds - time.time()
