"""What a person does by hand, each on record: freeze, unfreeze, retrain, rearm, cancel.

Who is taken as stated: nothing here authenticates anybody.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.evidence.state import Act
from mlcost_pipeline.evidence.summary import ask_again
from mlcost_pipeline.settings import digest
from mlcost_pipeline.spot.jobs import cancel_job, open_job_of
from mlcost_pipeline.warehouse import Warehouse

ALL = "all"
DECIDING = ("retrain", "rearm")


def freeze(warehouse: Warehouse, clock: Clock, *, model: str | None = None, who: str, reason: str) -> str:
    """Stop all acting of one model, or of all; deciding and recording go on. Returns the act's id."""
    act_id, at = _record(warehouse, clock, "freeze", model or ALL, who, reason)
    _set_frozen(warehouse, model, {"act_id": act_id, "who": who, "reason": reason, "at": at.isoformat()})
    return act_id


def unfreeze(warehouse: Warehouse, clock: Clock, *, model: str | None = None, who: str, reason: str) -> str:
    """Let one model act again, or all of them (each one's own freeze is lifted too). Returns the act's id."""
    act_id, _ = _record(warehouse, clock, "unfreeze", model or ALL, who, reason)
    _set_frozen(warehouse, model, None)
    for name in warehouse.state.names("summaries") if model is None else [model]:
        ask_again(warehouse, name, act_id)
    return act_id


def request_retrain(warehouse: Warehouse, clock: Clock, *, model: str, who: str, reason: str) -> str:
    """Ask for a retrain: the next decision heeds it unless the data are faulty or a job is under way."""
    act_id, _ = _record(warehouse, clock, "retrain", model, who, reason)
    ask_again(warehouse, model, act_id)
    return act_id


def rearm(warehouse: Warehouse, clock: Clock, *, model: str, who: str, reason: str) -> str:
    """Allow training against an incumbent again whose last job ended exhausted or cancelled."""
    act_id, _ = _record(warehouse, clock, "rearm", model, who, reason)

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        blocked = [version for version in now.get("blocked", []) if version != now.get("incumbent")]
        return {**now, "blocked": blocked} if "blocked" in now else now

    if warehouse.state.get(f"models/{model}") is not None:
        warehouse.state.update(f"models/{model}", change)
    ask_again(warehouse, model, act_id)
    return act_id


def cancel(warehouse: Warehouse, clock: Clock, *, model: str, who: str, reason: str) -> str:
    """Cancel the model's open job; returns the job's id. On record first, so that no kill leaves a cancel of nobody.

    Raises:
        MlcostError: no job is open, nobody or nothing is named, or the job is being settled this very moment (then the
            act stays on record as asked for, and the job ends as it would have).
    """
    job_id = open_job_of(warehouse, model)
    if job_id is None:
        raise MlcostError(f"no job of {model} is open")
    _record(warehouse, clock, "cancel", model, who, reason)
    cancel_job(warehouse, clock, job_id, reason=f"{reason} ({who})")
    return job_id


def pending_act(warehouse: Warehouse, model: str, evidence_id: str) -> Act | None:
    """The newest retrain or rearm by hand that no decision on other evidence has answered.

    A decision answers a retrain by opening its job: one that could not act leaves the request standing. One job
    answers all that was asked before, however often somebody asked while nothing could be done.
    """
    rows = warehouse.query(
        "SELECT act_id, verb, who, reason FROM acts WHERE subject = ? AND verb IN ('retrain', 'rearm') "
        "AND NOT EXISTS (SELECT 1 FROM decisions JOIN acts AS given ON given.act_id = decisions.act_id "
        "WHERE evidence_id <> ? AND given.subject = acts.subject AND given.verb = acts.verb "
        'AND (given.act_id = acts.act_id OR given."at" > acts."at") '
        "AND (acts.verb = 'rearm' OR decision_id IN (SELECT job_id FROM jobs))) "
        'ORDER BY acts."at" DESC, act_id LIMIT 1',
        [model, evidence_id],
        tables=["acts", "decisions", "jobs"],
    ).to_pylist()
    return Act(**rows[0]) if rows else None


def _record(warehouse: Warehouse, clock: Clock, verb: str, subject: str, who: str, reason: str) -> tuple[str, datetime]:
    if not who.strip() or not reason.strip():
        raise MlcostError(f"{verb} {subject}: say who (--who NAME) and why (--reason TEXT); both are kept on record")
    at = clock.now()
    act_id = digest("act", verb, subject, who, reason, at.isoformat())
    warehouse.append(
        "acts", [{"act_id": act_id, "verb": verb, "subject": subject, "who": who, "reason": reason, "at": at}]
    )
    return act_id, at


def _set_frozen(warehouse: Warehouse, model: str | None, entry: dict[str, Any] | None) -> None:
    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {"all": None, "models": {}}
        if model is None:
            return {"all": entry, "models": now["models"] if entry is not None else {}}
        return {**now, "models": {**now["models"], model: entry}}

    warehouse.state.update("freeze", change)
