"""Cost per outcome from plain rows."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from mlcost_pipeline.cost.plain import cost_per_outcome
from mlcost_pipeline.errors import NothingCompared
from tests.cost.billing import HOUR, NOON

GPU = {"resource_id": "gpu-1", "valid_from": NOON - timedelta(days=1), "valid_to": None, "capacity_milli": 1000}


def charge(amount: str, hour: int, **more: Any) -> dict[str, Any]:
    start = NOON + hour * HOUR
    return {
        "effective": Decimal(amount), "charge_start": start, "charge_end": start + HOUR, "category": "Usage",
        "resource_id": "gpu-1", **more,
    }  # fmt: skip


def run(name: str, stage: str, hour: float, hours: float, **more: Any) -> dict[str, Any]:
    start = NOON + hour * HOUR
    return {
        "run_id": name, "model": "fraud", "stage": stage, "resource_id": "gpu-1", "started_at": start,
        "ended_at": start + hours * HOUR, **more,
    }  # fmt: skip


def test_a_model_and_its_outcomes() -> None:
    billing = [charge("4", 0), charge("4", 1), charge("1", 5, resource_id=None, tags={"model": "fraud"})]
    runs = [
        run("train", "training", 0, 1, status="failed", busy_seconds=900.0, busy_metric="nvml"),
        run("serve", "serving", 1, 0.5),
    ]
    outcomes = [{"model": "fraud", "count": 7, "low": 3.5, "high": 14}, {"model": "recs", "count": 900}]
    found = cost_per_outcome(billing, runs, outcomes, "fraud", resources=[GPU])
    assert found.total == 7
    assert found.by_stage == {"no stage": Decimal(1), "serving": Decimal(2), "training": Decimal(4)}
    assert found.by_run_outcome == {"failed": Decimal(4), "no_run": Decimal(1), "succeeded": Decimal(2)}
    assert (found.per_outcome.low, found.per_outcome.value, found.per_outcome.high) == (Decimal("0.5"), 1, 2)
    assert (found.training.share, found.serving.share) == (0.25, None)


def test_spend_without_an_outcome_is_infinite_and_unknown_is_not_zero() -> None:
    billing, runs = [charge("4", 0)], [run("train", "training", 0, 1)]
    none = cost_per_outcome(billing, runs, [{"model": "fraud", "count": 0}], "fraud").per_outcome
    assert (none.value, none.reason) == (None, "no_outcome")
    assert cost_per_outcome(billing, runs, [], "fraud").per_outcome.reason == "not_measured"
    with pytest.raises(NothingCompared):
        cost_per_outcome([], runs, [], "fraud")
