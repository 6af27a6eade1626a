"""The section on decisions: the newest of each model, in its own words, and a hold says as much as a retrain."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

from mlcost_pipeline.reports.sections.decided import decided
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def decision(day: int, model: str, verdict: str, reason: str, sentence: str) -> dict[str, Any]:
    return {
        "decision_id": f"{model}-{day}", "evidence_id": f"e-{model}-{day}", "model": model,
        "as_of": date(2025, 6, day), "verdict": verdict, "reason": reason, "sentence": sentence, "distances": "{}",
        "money": "{}", "policy_version": "1", "mode": "act",
    }  # fmt: skip


def evidence(day: int, estimate: float | None) -> dict[str, Any]:
    low = None if estimate is None else estimate - 0.05
    return {
        "evidence_id": f"e-fraud-{day}", "model": "fraud", "as_of": date(2025, 6, day), "data_version": "d",
        "detector_version": "1", "values": json.dumps({"decay": {"estimate": estimate, "low": low}}), "faults": "{}",
    }  # fmt: skip


def test_the_newest_verdict_and_the_retrain_before_it(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("decisions", [
        decision(3, "fraud", "retrain", "decay", "recall fell by 0.12, lower bound 0.05."),
        decision(4, "fraud", "hold", "cooldown", "1 of 3 days since the promotion."),
    ])  # fmt: skip
    doc = decided(warehouse, settings)
    assert doc.summary == (
        "recommendations: nothing was decided yet, because no day was measured; "
        "fraud: hold as of 2025-06-04 (cooldown: 1 of 3 days since the promotion), "
        "after retrain as of 2025-06-03 (decay: recall fell by 0.12, lower bound 0.05)."
    )
    assert [row[2] for row in doc.tables[1].rows] == ["hold", "retrain"]
    assert {n.key: n.value for n in doc.numbers}["holds"] == 1


def test_what_became_of_a_decision(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("decisions", [decision(3, "fraud", "retrain", "decay", "it fell.")])
    deadline = datetime(2025, 6, 4, tzinfo=UTC)
    job = {"job_id": "fraud-3", "model": "fraud", "deadline": deadline, "state": "rejected", "reason": "slice harmed"}
    warehouse.append("jobs", [job])
    assert decided(warehouse, settings).tables[1].rows[0][6] == "job rejected: slice harmed"


def test_decay_is_drawn_where_it_was_known(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("evidence", [evidence(1, None), evidence(2, 0.1), evidence(3, 0.2)])
    pictures = decided(warehouse, settings).pictures
    assert [picture.title for picture in pictures] == ["Decay of fraud by day of evidence (2 days known)"]
    assert [str(row[1]) for row in pictures[0].table.rows] == ["unknown", "0.1", "0.2"]


def test_acts_by_hand_are_shown(warehouse: Warehouse, settings: Settings) -> None:
    act = {"act_id": "1", "verb": "freeze", "subject": "all", "who": "Ann", "reason": "audit",
           "at": datetime(2025, 6, 4, 9, tzinfo=UTC)}  # fmt: skip
    warehouse.append("acts", [act])
    assert list(decided(warehouse, settings).tables[2].rows[0])[1:] == ["freeze", "all", "Ann", "audit"]
