"""What an outcome costs, what a retrain costs, and how busy what was billed has been."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.prices import unbilled
from mlcost_pipeline.cost.pricing import retrain_price
from mlcost_pipeline.cost.ratio import per_count
from mlcost_pipeline.cost.runs import register_resource
from mlcost_pipeline.cost.unit_cost import cost_per_outcome, unit_costs
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, two_models, write_bill

MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)


def _bill(warehouse: Warehouse, settings: Settings, tmp_path: Path, *rows: dict[str, Any]) -> None:
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)


def _earned(warehouse: Warehouse, count: float, low: float, high: float, *, start: datetime = MARCH,
            end: datetime = APRIL, version: str = "v1", definition: str = "1",
            state: str = "measured") -> None:  # fmt: skip
    warehouse.append("outcomes", [{
        "model": "fraud", "model_version": version, "start": start, "end": end, "slice": "all", "unit": "fraud_caught",
        "definition_version": definition, "count": count, "low": low, "high": high, "state": state, "source": "labels",
    }])  # fmt: skip


@pytest.mark.parametrize(
    ("count", "low", "high", "shown"),
    [
        (4.0, 2.0, 5.0, "2.5000 USD (2.0000 to 5.0000)"),
        (4.0, 0.0, 5.0, "2.5000 USD (2.0000 to ∞)"),
        (4.0, -3.0, 5.0, "2.5000 USD (2.0000 to ∞)"),
        (0.0, -3.0, 5.0, "∞ (no outcome, at least 2.0000 USD)"),
        (-1.0, -3.0, 0.0, "∞ (no outcome)"),
        (None, None, None, "unknown (not measured)"),
    ],
)
def test_cost_per_outcome_has_the_bounds_that_the_count_gives_it(
    count: float | None, low: float | None, high: float | None, shown: str
) -> None:
    assert per_count(Decimal(10), count, low, high).show("USD") == shown


def test_a_month_by_stage_by_what_became_of_the_runs_and_per_outcome(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    retrain = {"purpose": "retrain", "job_id": "j1"}
    past_run(warehouse, "j1/1", **retrain, attempt=1, status="interrupted", hours=1)
    past_run(warehouse, "j1/2", **retrain, attempt=2, start=NOON + HOUR, steps_done=10, steps_redone=4)
    past_run(warehouse, "serve", stage="serving", start=NOON + 2 * HOUR)
    past_run(warehouse, "other", model="recs", stage="serving", start=NOON + 3 * HOUR)
    _bill(warehouse, settings, tmp_path, *(line("5", start=NOON + i * HOUR, effective="4") for i in range(4)))
    _earned(warehouse, 6, 4, 8)
    found = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert (found.total, found.billed_total, found.estimated) == (Decimal(12), Decimal(15), Decimal(0))
    assert found.by_stage == {"serving": Decimal(4), "training": Decimal(8)}
    assert found.by_run_outcome == {
        "interrupted": Decimal(4), "redone": Decimal("1.6"), "succeeded": Decimal("6.4"),
    }  # fmt: skip
    assert (found.per_outcome.value, found.per_outcome.low, found.per_outcome.high) == (
        Decimal(2), Decimal("1.5"), Decimal(3),
    )  # fmt: skip
    assert (found.retrains, found.per_retrain) == (1, Decimal(8))
    assert not found.provisional
    assert found.sentence == (
        "fraud, 2026-03: 12.0000 USD, 6 (4 to 8) fraud cases caught: 2.0000 USD (1.5000 to 3.0000) each"
    )


def test_a_retrain_whose_version_was_not_promoted_never_shipped(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    for number, state in ((1, "promoted"), (2, "rejected"), (3, "open")):
        past_run(warehouse, f"j{number}/1", purpose="retrain", job_id=f"j{number}", attempt=1,
                 resource=f"spot-{number}")  # fmt: skip
        warehouse.append("jobs", [{"job_id": f"j{number}", "model": "fraud", "deadline": APRIL, "state": state}])
    warehouse.append("model_versions", [{
        "model": "fraud", "version": "v1", "family": "mlp", "job_id": "j1", "attempt": 1, "artefact": "a",
        "training_cut": MARCH, "promoted_at": NOON,
    }])  # fmt: skip
    _bill(warehouse, settings, tmp_path, *(line(str(i), resource=f"spot-{i}") for i in (1, 2, 3)))
    found = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert found.by_run_outcome == {"never_shipped": Decimal(2), "succeeded": Decimal(4)}


def test_thousand_predictions_and_nothing_where_there_was_none(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "serve", stage="serving")
    _bill(warehouse, settings, tmp_path, line("4"))
    empty = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert (empty.per_thousand_predictions, empty.per_retrain, empty.per_outcome.reason) == (None, None, "not_measured")
    warehouse.append("predictions", [
        {"model": "fraud", "model_version": "v1", "entity_id": str(i), "predicted_at": NOON, "score": 0.1,
         "threshold": 0.5, "alerted": False} for i in range(50)
    ])  # fmt: skip
    assert cost_per_outcome(warehouse, settings, "fraud", PERIOD).per_thousand_predictions == Decimal(80)


def test_windows_of_outcomes_are_added_without_overlap_and_definitions_never_mixed(
    warehouse: Warehouse, settings: Settings
) -> None:
    days = [MARCH + timedelta(days=i) for i in range(4)]
    _earned(warehouse, 1, 1, 2, start=days[0], end=days[1], state="provisional")
    _earned(warehouse, 5, 5, 5, start=days[0], end=days[2])  # the longer window of this start
    _earned(warehouse, 2, 2, 2, start=days[1], end=days[2])  # lies inside it
    _earned(warehouse, 3, 3, 4, start=days[2], end=days[3], version="v1")
    _earned(warehouse, 4, 4, 4, start=days[2], end=days[3], version="v2")
    _earned(warehouse, 900, 900, 900, definition="2")
    found = cost_per_outcome(warehouse, settings, "fraud", PERIOD).outcome
    assert found is not None
    assert (found.count, found.low, found.high, found.state) == (12, 12, 13, "measured")


@pytest.mark.parametrize("sampled", [True, False])
def test_a_quarter_busy_costs_the_whole_and_no_samples_are_unknown(
    warehouse: Warehouse, settings: Settings, tmp_path: Path, sampled: bool
) -> None:
    """4 GPU hours billed at 12, one of them active."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    measured = {"busy_seconds": 3600.0, "busy_metric": "nvml", "busy_coverage": 1.0} if sampled else {}
    past_run(warehouse, "r1", hours=4, **measured)
    _bill(warehouse, settings, tmp_path, *(line("3", start=NOON + i * HOUR) for i in range(4)),
          line("0.5", start=NOON, ServiceName="Network"))  # fmt: skip
    found = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    used = found.utilisation["training"]
    assert found.total == Decimal("12.5")
    assert used.billed_hours == 4.0  # two kinds of use of one hour are one hour
    assert used.share == (0.25 if sampled else None)
    assert (used.coverage, used.metrics) == ((1.0, ("nvml",)) if sampled else (0.0, ()))


def test_cpu_time_beyond_a_runs_share_is_not_more_than_busy(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    register_resource(warehouse, "worker", "cpu", 2000, "milli_cpu", MARCH)
    past_run(warehouse, "r1", resource="worker", hours=0.5, busy_seconds=3000.0, busy_metric="process_cpu",
             busy_coverage=1.0)  # fmt: skip
    _bill(warehouse, settings, tmp_path, line("1", resource="worker"))
    used = cost_per_outcome(warehouse, settings, "fraud", PERIOD).utilisation["training"]
    assert (used.billed_hours, used.busy_hours, used.share) == (0.5, 0.5, 1.0)


def test_runs_that_no_bill_has_reached_are_estimates_until_one_does(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = two_models(prices={"gpu": "2.5", "disk-1": "0.1"})
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    past_run(warehouse, "own price", price=Decimal(8), hours=0.5)
    past_run(warehouse, "pool", pool="steady", resource="somewhere", hours=2)
    past_run(warehouse, "kind", share=500)
    past_run(warehouse, "worker", resource="local-worker", stage="features")
    past_run(warehouse, "nothing known", resource="mystery")
    estimates = {e.run_id: (e.amount, e.source) for e in unbilled(warehouse, settings, APRIL)}
    assert estimates == {
        "own price": (Decimal(4), "estimate: price recorded with the run"),
        "pool": (Decimal(6), "estimate: capacity.pools steady"),
        "kind": (Decimal("1.25"), "estimate: prices.gpu"),
        "worker": (Decimal("0.096"), "estimate: worker.price_per_hour"),
        "nothing known": (None, "estimate: no price for resource mystery"),
    }
    before = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert (before.total, before.estimated, before.unpriced_runs) == (Decimal("11.346"), Decimal("11.346"), 1)
    assert before.provisional
    assert before.by_method == {"estimate": Decimal("11.346")}
    _bill(warehouse, settings, tmp_path, line("7", resource="somewhere"))
    after = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert after.by_method == {"direct": Decimal(7), "estimate": Decimal("5.346")}
    assert [cost.period for cost in unit_costs(warehouse, settings, "fraud")] == [PERIOD]


def test_the_price_of_a_retrain_goes_from_a_bound_to_what_the_last_ones_cost(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    price = retrain_price(warehouse, settings, "fraud")
    assert (price.amount, "upper bound" in price.source) == (Decimal(36), True)  # 12 h × 3 USD
    job = {"job_id": "j0", "model": "fraud", "deadline": APRIL, "state": "open", "work_estimate_seconds": 1800.0}
    warehouse.append("jobs", [job])
    assert retrain_price(warehouse, settings, "fraud").amount == Decimal("1.5")
    for number in range(7):
        retrain = {"purpose": "retrain", "job_id": f"j{number}", "start": NOON + number * HOUR, "pool": "spot"}
        past_run(warehouse, f"j{number}/1", attempt=1, resource=f"s{number}a", hours=0.5, status="failed", **retrain)
        past_run(warehouse, f"j{number}/2", attempt=2, resource=f"s{number}b", hours=0.5, **retrain)
    price = retrain_price(warehouse, settings, "fraud")
    assert (price.amount, price.source) == (
        Decimal(1), "estimate: price book × hours of the last 5 retrains, none billed yet",
    )  # fmt: skip
    rows = [line(str(n), resource=f"s{n}{half}", start=NOON + n * HOUR) for n in range(7) for half in "ab"]
    _bill(warehouse, settings, tmp_path, *rows[:-1])  # one attempt of the last job is not billed yet
    price = retrain_price(warehouse, settings, "fraud")
    assert price.amount == Decimal(2 * (1 + 2 + 3 + 4 + 5)) / 5
    assert price.source == "mean of the last 5 billed retrains, all attempts included"


def test_another_currency_is_not_part_of_a_models_cost(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1")
    _bill(warehouse, settings, tmp_path, line("4", BillingCurrency="CAD"))
    found = cost_per_outcome(warehouse, settings, "fraud", PERIOD)
    assert (found.total, found.deliveries) == (Decimal(0), ())
