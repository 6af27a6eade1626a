"""Every stage's report: one sentence with verdict, number and bound; three to six plotted numbers; a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.counted import Counted
from mlcost_pipeline.cost.deliveries import Delivery
from mlcost_pipeline.cost.ratio import per_count
from mlcost_pipeline.cost.reconciliation import MeasureCheck, Reconciliation
from mlcost_pipeline.cost.unit_cost import UnitCost
from mlcost_pipeline.cost.utilisation import Utilisation
from mlcost_pipeline.evaluation.candidates import Settled
from mlcost_pipeline.evaluation.gate import GateResult
from mlcost_pipeline.evidence.decision import Decision
from mlcost_pipeline.evidence.values import (
    Decay,
    Drift,
    EvidenceRecord,
    Fault,
    Faults,
    FeatureDrift,
    Volume,
    WindowDrift,
)
from mlcost_pipeline.inference.predict import DayResult, PredictResult
from mlcost_pipeline.inference.publication import Publication
from mlcost_pipeline.inference.served import Served, TierCount
from mlcost_pipeline.levers.question import Answer, Effect
from mlcost_pipeline.models.base import Cuts
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.reports import stages
from mlcost_pipeline.reports.document import Document
from mlcost_pipeline.reports.html import as_html
from mlcost_pipeline.reports.metadata import LIMIT_BYTES, as_metadata, size_bytes
from mlcost_pipeline.reports.terminal import as_text
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import Ingested
from mlcost_pipeline.spot.accounts import AttemptSummary
from mlcost_pipeline.spot.supervisor import JobResult

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAY = date(2025, 6, 1)
HOUR = timedelta(hours=1)

RECORD = EvidenceRecord(
    evidence_id="e1", model="fraud", incumbent="fraud-1", as_of="2025-06-01", data_version="d1", detector_version="1",
    policy_version="p1",
    faults=Faults((Fault("unit", "amount", 40, {}, "amounts are 100 times as large", "ask payments"),), rows=5000),
    volume=Volume(1500, 1200, 55, 9000, 10200, 400),
    drift=Drift(
        "measured", "", "training rows of fraud-1",
        (FeatureDrift("amount", "number", "measured", 9000,
                      (WindowDrift("2025-05-25", "2025-06-01", 1200, 0.31, 0.05, True),), True),
         FeatureDrift("hour", "number", "too_few", 9000)),
    ),
    decay=Decay("measured", "", "recall", "labels", 0.62, 0.50, 0.12, 0.05, 0.19, 7, 80,
                per_day=(("2025-05-30", 5, 10), ("2025-05-31", 4, 9), ("2025-06-01", 0, 0))),
)  # fmt: skip

GATE = GateResult(
    True, "harmless", "Promote: fraud-2 has recall 62 %.", "fraud", "fraud-2", "fraud-1", "fraud-1", "d1", "j1",
    metric="recall", unit="frauds", candidate_level=0.62, reference_level=0.6, difference=0.02, low=-0.005, high=0.04,
    margin=0.012, metrics={"candidate_recall": 0.62},
    slices=[{"dimension": "merchant_category", "value": "jewellery", "important": True, "units": 4,
             "reference_count": 2, "candidate_count": 2, "lost": 0, "won": 0, "difference": 0.0, "low": None,
             "high": None, "margin": 0.05,
             "p_harm": 1.0, "status": "not_shown"}],
    not_shown=["merchant_category=jewellery"],
)  # fmt: skip

DELIVERY = Delivery(
    "dl1", "aws", "focus", "shop", "2025-05", "USD", NOON, 120, Decimal("10.5"), Decimal("9.25"), None, Decimal(0),
    Decimal(0), "open", "bills/2025-05.csv", absent={"list": "no list price"},
)  # fmt: skip

CHECKS = (MeasureCheck("billed", Decimal("10.5"), Decimal("10.5"), Decimal(0)),
          MeasureCheck("effective", Decimal("9.25"), Decimal("9.249999999999999999"), Decimal(0)))  # fmt: skip
OPEN = Reconciliation("shop", "2025-05", "USD", "dl1", "l1", "open", 120, 30, 90, 0, CHECKS)


def attempt(number: int, market: str, start: float, hours: float, outcome: str) -> AttemptSummary:
    return AttemptSummary(
        number, f"{market}-a", market, "cheapest now", NOON + start * HOUR, NOON + (start + hours) * HOUR, outcome,
        "market: taken back" if outcome == "interrupted" else None, 0, 100, 200, 100, 5,
        hours * 3600, Decimal(str(hours)),
    )  # fmt: skip


JOB = JobResult("j1", "fraud", "trained", "fraud-2",
                [attempt(1, "spot", 0, 1, "interrupted"), attempt(2, "on_demand", 2, 1, "succeeded")],
                Decimal("2.5"), Decimal("5"))  # fmt: skip

DECISION = Decision(
    "x1", "e1", "fraud", DAY, "hold", "cooldown", "1 of 3 days since the promotion.",
    {"decay_low": {"value": 0.05, "threshold": 0.03, "distance": -0.02},
     "new_rows": {"value": None, "threshold": 1000, "distance": None}},
    {"retrain_cost": "2.500000", "decay_cost_per_day": None, "expected_if_retrain": None, "expected_if_hold": None,
     "horizon_days": "14", "currency": "USD", "retrain_cost_source": "mean of the last 3"},
    "p1", "act", None, None, False, None,
)  # fmt: skip

PUBLICATION = Publication(
    "recommendations", "v2", "m1", NOON, True, "published", 100, 4800, 3, 1,
    {"coverage": 0.4,
     "checks": [{"name": "users", "state": "passed", "sentence": "0 missing", "value": 0, "bound": 0}]},
    NOON,
)  # fmt: skip

SERVED = Served(
    "recommendations", DAY, DAY + timedelta(days=1), NOON, 100, 50, 40, 30, {"fresh": 35, "popular": 15},
    (TierCount("fresh", "treated", "current", 35, 30), TierCount("popular", "holdout", "holdout", 15, 10)),
    40, 5, 0.125, 3600.0, 7200.0, 0.001, 0.004,
)  # fmt: skip

PREDICTED = PredictResult("fraud", "fraud-2", DAY, DAY + timedelta(days=2), (
    DayResult(DAY, "scored", "fraud-2", 300, 20, 0.9), DayResult(DAY + timedelta(days=1), "empty", None, 0, 0, None),
))  # fmt: skip


def unit_cost(period: str, count: float | None, low: float | None = None, high: float | None = None) -> UnitCost:
    outcome = None if count is None else Counted(count, low, high, "fraud_caught", "1", "measured", NOON, NOON)
    return UnitCost(
        "fraud", period, "USD", Decimal("100"), Decimal("90"), Decimal("10"), 0, {"training": Decimal("60"),
        "serving": Decimal("40")}, {"direct": Decimal("90")}, {"succeeded": Decimal("100")}, outcome,
        per_count(Decimal(100), count, low, high), 1000, Decimal("100"), 2, Decimal("30"),
        {"training": Utilisation(10.0, 8.0, 4.0, ("process_cpu",))}, ("dl1",), True,
    )  # fmt: skip


ANSWERS = [
    Answer("simpler_model", "Would a simpler model do?", "pull", "als is within the budget.", Decimal("10"),
           Decimal("30"), "USD", Effect("hit rate", -0.001, -0.004, 0.002, 0.007)),
    Answer("less_often", "Retrain less often?", "not_yet", "Not yet: simpler model comes first."),
]  # fmt: skip

OUTCOME = {
    "model": "fraud", "model_version": "fraud-1", "start": datetime(2025, 5, 1, tzinfo=UTC),
    "end": datetime(2025, 6, 1, tzinfo=UTC), "slice": "all", "unit": "fraud_caught", "definition_version": "1",
    "count": 12.0,
    "low": 12.0, "high": 15.0,
    "state": "provisional", "source": "labels known by 2025-06-01",
}  # fmt: skip

CUTS = Cuts(NOON, NOON - 24 * HOUR, NOON - 72 * HOUR)

REPORTS: dict[str, Callable[[Settings], Document]] = {
    "ingest": lambda s: stages.ingest_report(Ingested("labels", 100, 90, {"duplicate": 10}, 2), s),
    "features": lambda s: stages.features_report(FeatureSet("fraud", DAY, CUTS, "d1", Path("/f"), 100, 7, 80, {}), s),
    "faults": lambda s: stages.evidence_part_report("faults", RECORD.faults, s, model="fraud", as_of=DAY),
    "volume": lambda s: stages.evidence_part_report("volume", RECORD.volume, s, model="fraud", as_of=DAY),
    "drift": lambda s: stages.evidence_part_report("drift", RECORD.drift, s, model="fraud", as_of=DAY),
    "decay": lambda s: stages.evidence_part_report("decay", RECORD.decay, s, model="fraud", as_of=DAY),
    "evidence": lambda s: stages.evidence_report(RECORD, s),
    "decision": lambda s: stages.decision_report(DECISION, s),
    "job": lambda s: stages.job_report(JOB, s),
    "gate": lambda s: stages.gate_report(GATE, s),
    "promotion": lambda s: stages.promotion_report(Settled("fraud", "fraud-2", "j1", True, GATE), s),
    "publication": lambda s: stages.publication_report(PUBLICATION, s),
    "served": lambda s: stages.served_report(SERVED, s),
    "predictions": lambda s: stages.predictions_report(PREDICTED, s),
    "bill": lambda s: stages.bill_report([DELIVERY], s),
    "no bill": lambda s: stages.bill_report([], s),
    "reconciliation": lambda s: stages.reconciliation_report(OPEN, s),
    "outcomes": lambda s: stages.outcomes_report("fraud", [OUTCOME], s),
    "no outcomes": lambda s: stages.outcomes_report("fraud", [], s),
    "unit cost": lambda s: stages.unit_cost_report("fraud", [unit_cost("2025-05", 20, 10, 40)], s),
    "no unit cost": lambda s: stages.unit_cost_report("fraud", [], s),
    "levers": lambda s: stages.lever_plan_report("recommendations", ANSWERS, s),
    "no levers": lambda s: stages.lever_plan_report("recommendations", [], s),
}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_report_reads_the_same_way(name: str, settings: Settings) -> None:
    doc = REPORTS[name](settings)
    made = as_metadata(doc)
    keys = list(made)
    numbers = [number.key for number in doc.numbers]
    assert keys[0] == "summary" and keys[1 : 1 + len(numbers)] == numbers
    assert 3 <= len(numbers) <= 6, numbers
    assert "table" in keys and "report" in keys
    assert keys[keys.index("report") + 1 :] == [
        key for key, value in doc.ids.items() if value is not None and key not in doc.links
    ]
    assert doc.marks[-1] == "SIMULATED" or "SIMULATED" in doc.marks
    assert made["summary"].value.endswith((".", ")"))
    assert "None" not in as_text(doc) and "nan" not in as_text(doc)
    assert size_bytes(made) <= LIMIT_BYTES
    assert as_html([doc], "t")
    assert settings.proxy_note in doc.notes


def summary(name: str, settings: Settings) -> str:
    return REPORTS[name](settings).summary


def value(doc: Document, key: str) -> Any:
    return {number.key: number.value for number in doc.numbers}[key]


def test_evidence_names_numbers_and_bounds(settings: Settings) -> None:
    assert summary("evidence", settings) == (
        "fraud as of 2025-06-01: 1 fault in the data, 1\u202f200 new labelled rows (at least 1000 wanted), "
        "1 of 1 feature drifted materially (amount), recall went from 0.62 to 0.5, a decay of 0.12 "
        "whose lower bound at 90 % is 0.05 (above 0 counts)."
    )


def test_unknown_decay_is_said_with_its_reason(settings: Settings) -> None:
    doc = stages.evidence_report(replace(RECORD, decay=Decay("unknown", "no matured labels")), settings)
    assert "decay unknown (no matured labels)" in doc.summary
    assert value(doc, "decay_low") is None
    assert as_metadata(doc)["decay_low"].value == "unknown"


def test_a_hold_says_as_much_as_a_retrain(settings: Settings) -> None:
    doc = REPORTS["decision"](settings)
    assert doc.summary == "Hold (cooldown): 1 of 3 days since the promotion."
    assert [str(cell) for cell in doc.tables[0].rows[0]] == ["lower bound of decay", "0.05", "0.03", "-0.02"]
    assert value(doc, "retrain_cost") == Decimal("2.5")


def test_a_job_is_held_against_on_demand(settings: Settings) -> None:
    doc = REPORTS["job"](settings)
    assert (
        "in 2 attempts on spot and on-demand for 2.50 USD, against 5.00 USD on-demand alone (50 % less)" in doc.summary
    )
    assert [row[1] for row in doc.pictures[0].table.rows] == ["spot", "waiting", "on-demand"]


def test_a_job_without_a_candidate_saved_nothing(settings: Settings) -> None:
    doc = stages.job_report(replace(JOB, version=None, state="exhausted"), settings)
    assert "exhausted in 2 attempts on spot and on-demand for 2.50 USD, without a candidate so far" in doc.summary
    assert value(doc, "saved_share") is None


def test_a_difference_of_the_last_unit_is_shown(settings: Settings) -> None:
    doc = REPORTS["reconciliation"](settings)
    assert "NOT reconciled" in doc.summary
    assert str(doc.numbers[2]) == "0.000000000000000001 USD"
    assert "PROVISIONAL" in doc.marks


def test_cost_per_outcome_has_its_interval(settings: Settings) -> None:
    doc = REPORTS["unit cost"](settings)
    assert doc.summary == (
        "fraud: 5.00 USD each (2.50 USD to 10.00 USD) in 2025-05, 100.00 USD for 20 fraud cases caught, provisional; "
        "reading: first: 100.00 USD spent, and nothing is known of the month before (provisional, may still change)."
    )
    assert set(doc.marks) == {"SIMULATED", "ESTIMATE", "PROVISIONAL"}


def test_no_outcome_is_infinite_and_not_measured_is_unknown(settings: Settings) -> None:
    none = stages.unit_cost_report("fraud", [unit_cost("2025-05", 0, 0, 4)], settings)
    assert str(none.numbers[0]) == "∞ USD"
    assert none.numbers[0].bound == "25.00 USD to ∞ USD"
    unknown = stages.unit_cost_report("fraud", [unit_cost("2025-05", None)], settings)
    assert str(unknown.numbers[0]) == "unknown"
    assert "unknown, because no outcome was measured" in unknown.summary


def test_the_first_lever_to_pull_is_named(settings: Settings) -> None:
    doc = REPORTS["levers"](settings)
    assert doc.summary == (
        "recommendations: pull simpler model first, which saves 10.00 USD to 30.00 USD a month "
        "(als is within the budget)."
    )


def test_a_slice_too_small_to_tell_is_listed(settings: Settings) -> None:
    assert list(REPORTS["gate"](settings).tables[0].rows[0])[:3] == ["merchant_category = jewellery", "not shown", True]


def test_numbers_are_documented_with_stable_keys(settings: Settings) -> None:
    keys = {number.key for report in REPORTS.values() for number in report(settings).numbers}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in keys)
