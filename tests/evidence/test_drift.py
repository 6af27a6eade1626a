"""Drift of a model's features, from the rows to the question put to a person, and back."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

from mlcost_pipeline.evidence.decision import take
from mlcost_pipeline.evidence.drift import measure_drift, windows
from mlcost_pipeline.evidence.look import look_at
from mlcost_pipeline.evidence.record import collect
from mlcost_pipeline.evidence.review import review
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.evidence.worlds import (
    AS_OF,
    CUT,
    TRAINED_UP_TO,
    Row,
    clock_at,
    fraud_world,
    labels,
    payments,
    put_incumbent,
    shop_world,
)


def faster(row: Row) -> Row:
    """A feature moves by one and a half standard deviations after the training cut."""
    return {**row, "feature_speed": row["feature_speed"] + 1.5} if row["happened_at"] >= TRAINED_UP_TO else row


def test_a_moved_feature_is_named_and_the_others_are_not(tmp_path: Path, settings: Settings) -> None:
    found = measure_drift(fraud_world(tmp_path / "warehouse", faster), settings, "fraud", AS_OF)
    assert "f_speed" in found.material and "amount" not in found.material
    assert found.began == (CUT - timedelta(days=21)).date().isoformat()
    assert found.matured_days_since == 14
    assert "fraud" not in {feature.feature for feature in found.features}
    assert not {"transaction_id", "is_fraud", "happened_at", "known_at"} & {f.feature for f in found.features}


def test_drift_that_labels_cannot_judge_asks_and_the_answer_is_heeded(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", faster, level=None)  # nothing verified, so decay is unknown
    asked = take(warehouse, settings, clock_at(), "fraud", AS_OF)
    assert (asked.verdict, asked.reason) == ("ask", "needs_review")
    assert "f_speed" in asked.sentence and "mlcost review" in asked.sentence
    clock = clock_at()
    review(warehouse, settings, clock, "fraud", verdict="expected", reviewer="Ada", note="new readers")
    assert take(warehouse, settings, clock_at(), "fraud", AS_OF).verdict == "hold"
    review(warehouse, settings, clock, "fraud", verdict="data_fault", reviewer="Bob", note="they read wrong")
    assert take(warehouse, settings, clock_at(), "fraud", AS_OF).reason == "reviewed_data_fault"
    review(warehouse, settings, clock, "fraud", verdict="real", reviewer="Ada", note="they are right")
    agreed = take(warehouse, settings, clock_at(), "fraud", AS_OF)
    assert (agreed.reason, agreed.job_open) == ("reviewed_drift", True)


def test_drift_with_matured_labels_and_no_loss_holds(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", faster)
    found = take(warehouse, settings, clock_at(), "fraud", AS_OF)
    assert (found.verdict, found.reason) == ("hold", "no_evidence")
    assert "f_speed" in found.sentence and "no loss worth a retrain" in found.sentence


def test_rows_in_another_order_are_the_same_evidence(tmp_path: Path, settings: Settings) -> None:
    first = collect(fraud_world(tmp_path / "a"), settings, clock_at(), "fraud", AS_OF)
    rows = payments()
    known = labels(rows)
    random.Random(3).shuffle(rows)
    random.Random(4).shuffle(known)
    mixed = Warehouse(tmp_path / "b")
    for start in range(0, len(rows), 1000):
        mixed.append("transactions", rows[start : start + 1000])
    mixed.append("labels", known)
    put_incumbent(mixed, "fraud")
    other = collect(mixed, settings, clock_at(), "fraud", AS_OF)
    assert other.evidence_id == first.evidence_id
    assert (other.drift, other.volume, other.faults) == (first.drift, first.volume, first.faults)


def test_windows_are_whole_weeks(tmp_path: Path, settings: Settings) -> None:
    found = windows(look_at(fraud_world(tmp_path / "warehouse"), settings, "fraud", AS_OF))
    assert [(end - start).days for start, end in found] == [7, 7, 7]
    assert found[0][1] == CUT.date()


def test_users_and_items_of_a_calm_shop_do_not_drift(tmp_path: Path, settings: Settings) -> None:
    found = measure_drift(shop_world(tmp_path / "warehouse", hit=lambda n: True), settings, "shop", AS_OF)
    states = {feature.feature: (feature.state, feature.material) for feature in found.features}
    assert states["activity"] == states["popularity"] == states["hour"] == ("measured", False)
    assert set(states) == {"activity", "popularity", "unseen_items", "hour"}


def test_the_first_model_has_nothing_to_drift_from(tmp_path: Path, settings: Settings) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    rows = payments()
    warehouse.append("transactions", rows)
    warehouse.append("labels", labels(rows))
    found = take(warehouse, settings, clock_at(), "fraud", AS_OF)
    assert (found.verdict, found.reason, found.job_open) == ("retrain", "bootstrap", True)
    assert measure_drift(warehouse, settings, "fraud", AS_OF).state == "unknown"
