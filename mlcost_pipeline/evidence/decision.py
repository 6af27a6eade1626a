"""Taking a decision: written once under its identity, then acted on, at most once.

The first to decide claims the identity with its content; everybody else, and everybody after a kill, reads that.
A verdict ``retrain`` of the newest day opens its job if the model's mode is ``act`` and nothing is frozen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.evidence.acts import pending_act
from mlcost_pipeline.evidence.policy import ASK, RETRAIN, decide
from mlcost_pipeline.evidence.record import collect
from mlcost_pipeline.evidence.review import standing_review
from mlcost_pipeline.evidence.state import policy_state
from mlcost_pipeline.evidence.summary import summary_of
from mlcost_pipeline.evidence.values import EvidenceRecord, canonical
from mlcost_pipeline.notify import notify
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.spot.jobs import job_state, open_job, open_job_of
from mlcost_pipeline.training.acting import frozen, why_not_act
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Decision:
    """A decision as it stands on record, and what became of it now."""

    decision_id: str
    evidence_id: str
    model: str
    as_of: date
    verdict: str
    reason: str
    sentence: str
    distances: dict[str, Any]
    money: dict[str, Any]
    policy_version: str
    mode: str
    review: str | None
    act_id: str | None
    job_open: bool
    """Whether this decision's job is open now."""
    not_acted: str | None
    """Why a verdict ``retrain`` opened no job."""


def take(warehouse: Warehouse, settings: Settings, clock: Clock, model: str, as_of: date) -> Decision:
    """Decide for a model and a day, record it, and open the job if the decision says so and may act.

    May be killed anywhere and called again, by any number of processes: one decision, one job.
    """
    before = summary_of(warehouse, model)
    record = collect(warehouse, settings, clock, model, as_of)
    newest = as_of.isoformat() >= str(before.get("as_of", ""))
    row = _recorded(warehouse, settings, record, as_of, newest)
    opened, why_not = _act(warehouse, settings, clock, record, row, newest)
    if opened and row["mode"] != "act":
        row = {**row, "mode": "act"}  # decided while observing, acted on now
        warehouse.append("decisions", [row])
    decision = _decision(row, opened, why_not)
    if newest:
        _summarise(warehouse, decision, before.get("retake"))
        if decision.verdict == ASK or decision.reason == "budget":
            said = f"{model}, {as_of}: {decision.verdict} ({decision.reason}). {decision.sentence}"
            notify(warehouse, settings, key=f"decision:{decision.decision_id}", text=said)
    return decision


def _recorded(
    warehouse: Warehouse, settings: Settings, record: EvidenceRecord, as_of: date, newest: bool
) -> dict[str, Any]:
    """The row of this decision: claimed by the first who decides, read by all others."""
    if not newest:
        known = warehouse.rows("decisions", where="evidence_id = ?", params=[record.evidence_id])
        if known:
            return known[0]
    chosen = settings.model(record.model)
    review = standing_review(warehouse, chosen, record) if newest else None
    act = pending_act(warehouse, record.model, record.evidence_id) if newest else None
    review_id, act_id = (None if review is None else review.review_id), (None if act is None else act.act_id)
    decision_id = digest(record.evidence_id, review_id, act_id)
    claim = f"decisions/{decision_id}"
    stored = warehouse.state.get(claim)
    if stored is None:
        state = policy_state(warehouse, settings, record.model, as_of, review=review, act=act)
        verdict = decide(record, state, chosen.policy)
        warehouse.state.create(claim, {
            "decision_id": decision_id, "evidence_id": record.evidence_id, "model": record.model,
            "as_of": as_of.isoformat(), "verdict": verdict.verdict, "reason": verdict.reason,
            "sentence": verdict.sentence, "distances": canonical(verdict.distances), "money": canonical(verdict.money),
            "policy_version": record.policy_version, "mode": chosen.mode, "review": review_id, "act_id": act_id,
        })  # fmt: skip
        stored = warehouse.state.get(claim)
        if stored is None:
            raise WarehouseError(f"state {claim}: was claimed and is gone; nothing may remove it")
    row = {**stored.value, "as_of": as_of}
    warehouse.append("decisions", [row])
    return row


def _act(
    warehouse: Warehouse, settings: Settings, clock: Clock, record: EvidenceRecord, row: dict[str, Any], newest: bool
) -> tuple[bool, str | None]:
    """(whether the decision's job is open now, why not)."""
    model, job_id = record.model, str(row["decision_id"])
    if row["verdict"] != RETRAIN:
        return False, None
    job = job_state(warehouse, job_id)
    if job is not None and job.get("ended_at") is not None:
        return False, f"its job has ended: {job['state']}"
    if open_job_of(warehouse, model) != job_id:
        refused = _refused(warehouse, settings, clock, model, row["as_of"], newest)
        if refused is not None:
            return False, refused
    if open_job(warehouse, settings, clock, job_id=job_id, model=model, data_version=record.data_version):
        return True, None
    return False, f"job {open_job_of(warehouse, model)} is under way"


def _refused(
    warehouse: Warehouse, settings: Settings, clock: Clock, model: str, as_of: date, newest: bool
) -> str | None:
    forbidden = why_not_act(warehouse, settings, model)
    if forbidden is not None:
        return f"would retrain, but {forbidden}"
    today = clock.now().date()
    if as_of >= today:
        return f"{as_of} is not over yet ({today} is in progress)"
    last = min(_last_day(warehouse, settings.model(model).task), today - timedelta(days=1))
    if not newest or as_of < last:
        return f"{as_of} is not the newest day; only the newest can start a retrain"
    return None


def _last_day(warehouse: Warehouse, task: str) -> date:
    """The newest day that has data."""
    table = "transactions" if task == "scoring" else "interactions"
    found = warehouse.query(f"SELECT CAST(max(happened_at) AS DATE) AS day FROM {table}", tables=[table])
    day: date | None = found.column("day")[0].as_py()
    return date.min if day is None else day


def _decision(row: dict[str, Any], opened: bool, why_not: str | None) -> Decision:
    return Decision(
        decision_id=row["decision_id"],
        evidence_id=row["evidence_id"],
        model=row["model"],
        as_of=row["as_of"],
        verdict=row["verdict"],
        reason=row["reason"],
        sentence=row["sentence"],
        distances=json.loads(row["distances"]),
        money=json.loads(row["money"]),
        policy_version=row["policy_version"],
        mode=row["mode"],
        review=row["review"],
        act_id=row["act_id"],
        job_open=opened,
        not_acted=why_not,
    )


def _summarise(warehouse: Warehouse, decision: Decision, answered: str | None) -> None:
    """Write what the sensors need; a newer day's summary and a newer request stay."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        now = value or {}
        if str(now.get("as_of", "")) > decision.as_of.isoformat():
            return now
        return {
            **now,
            "model": decision.model,
            "as_of": decision.as_of.isoformat(),
            "decision_id": decision.decision_id,
            "evidence_id": decision.evidence_id,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "sentence": decision.sentence,
            "distances": decision.distances,
            "money": decision.money,
            "mode": decision.mode,
            "frozen": frozen(warehouse, decision.model),
            "open_job": open_job_of(warehouse, decision.model),
            "not_acted": decision.not_acted,
            "retake": None if now.get("retake") == answered else now.get("retake"),
        }

    warehouse.state.update(f"summaries/{decision.model}", change)
