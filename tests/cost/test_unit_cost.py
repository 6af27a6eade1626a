"""What an outcome costs in a month, what became of the runs, and what a retrain costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from mlcost_pipeline.cost.prices import unbilled
from mlcost_pipeline.cost.pricing import retrain_price
from mlcost_pipeline.cost.ratio import per_count
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.run_outcomes import run_outcomes
from mlcost_pipeline.cost.unit_cost import unit_cost, unit_costs
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import HOUR, NOON, PERIOD, past_run, two_models
from tests.cost.ledgers import part, write_ledger

MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)


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


@pytest.mark.parametrize(
    ("spent", "count", "low", "high", "shown"),
    [
        (-10, 4.0, 2.0, 5.0, "-2.5000 USD (-5.0000 to -2.0000)"),  # a net credit: the fewer, the more each
        (-10, 4.0, 0.0, 5.0, "-2.5000 USD (−∞ to -2.0000)"),
        (10, 4.0, None, None, "2.5000 USD (? to ?)"),
        (10, 4.0, None, 5.0, "2.5000 USD (2.0000 to ?)"),
    ],
)
def test_bounds_are_in_their_order_and_unknown_ones_are_unknown(
    spent: int, count: float, low: float | None, high: float | None, shown: str
) -> None:
    assert per_count(Decimal(spent), count, low, high).show("USD") == shown


def test_a_month_by_stage_by_what_became_of_the_runs_and_per_outcome(warehouse: Warehouse, settings: Settings) -> None:
    retrain = {"purpose": "retrain", "job_id": "j1"}
    past_run(warehouse, "j1/1", **retrain, attempt=1, status="interrupted")
    past_run(warehouse, "j1/2", **retrain, attempt=2, start=NOON + HOUR, steps_done=10, steps_redone=4)
    past_run(warehouse, "serve", stage="serving", start=NOON + 2 * HOUR)
    write_ledger(
        warehouse, part("4", run="j1/1", billed="5"), part("3.5", run="j1/2", billed="5"),
        part("0.5", run="j1/2", method="derived", reason="support", base="direct"),
        part("4", run="serve", stage="serving", billed="5"), part("9", model="recs"), part("2", model=None),
    )  # fmt: skip
    _earned(warehouse, 6, 4, 8)
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (found.total, found.billed_total, found.estimated) == (Decimal(12), Decimal("15.5"), Decimal(0))
    assert found.by_stage == {"serving": Decimal(4), "training": Decimal(8)}
    assert found.by_method == {"derived": Decimal("0.5"), "direct": Decimal("11.5")}
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


def test_a_retrain_costs_all_its_attempts_whichever_month_bills_them(warehouse: Warehouse, settings: Settings) -> None:
    last_night = APRIL - HOUR
    past_run(warehouse, "j1/1", purpose="retrain", job_id="j1", attempt=1, status="failed", start=last_night)
    past_run(warehouse, "j1/2", purpose="retrain", job_id="j1", attempt=2, start=APRIL)
    past_run(warehouse, "j2/1", purpose="retrain", job_id="j2", attempt=1, start=APRIL, status="running")
    write_ledger(warehouse, part("3", run="j1/1"))
    write_ledger(warehouse, part("5", run="j1/2"), part("1", run="j2/1"), period="2026-04")
    march, april = unit_costs(warehouse, settings, "fraud")
    assert (march.total, march.retrains, march.per_retrain) == (Decimal(3), 1, Decimal(8))
    assert (april.total, april.retrains, april.per_retrain) == (Decimal(6), 0, None)  # j2 is not over
    assert march.by_run_outcome == {"failed": Decimal(3)}
    assert not march.provisional
    write_ledger(warehouse, part("5", run="j1/2"), part("1", run="j2/1"), period="2026-04", state="open")
    march, april = unit_costs(warehouse, settings, "fraud")
    assert march.provisional and april.provisional  # a part of March's retrain is on April's bill, which may change


def test_a_bill_that_does_not_close_is_not_reported(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1")
    write_ledger(warehouse, part("4", run="r1"))
    row = warehouse.rows("bill_deliveries")[0]
    warehouse.append("bill_deliveries", [{**row, "effective_total": Decimal("4.000000000000000001")}])
    with pytest.raises(MlcostError, match="NOT reconciled"):
        unit_costs(warehouse, settings, "fraud")


def _retrained(warehouse: Warehouse) -> None:
    for number, state in ((1, "promoted"), (2, "rejected"), (3, "open")):
        past_run(warehouse, f"j{number}/1", purpose="retrain", job_id=f"j{number}", attempt=1)
        warehouse.append("jobs", [{"job_id": f"j{number}", "model": "fraud", "deadline": APRIL, "state": state}])
    warehouse.append("model_versions", [{
        "model": "fraud", "version": "v1", "family": "mlp", "job_id": "j1", "attempt": 1, "artefact": "a",
        "training_cut": MARCH, "promoted_at": NOON,
    }])  # fmt: skip


def test_what_nobody_uses_is_named(warehouse: Warehouse, settings: Settings) -> None:
    _retrained(warehouse)
    lists = {"model": "fraud", "model_version": "v1", "data_cut": MARCH, "validation": "{}", "users": 1}
    for name, published in (("good", NOON), ("refused", None)):
        past_run(warehouse, name, stage="serving", asset="lists", partition="2026-03-09")
        warehouse.append("publications", [{**lists, "version": name, "run_id": name, "published_at": published}])
    names = {"j1/1": "succeeded", "j2/1": "never_shipped", "j3/1": "succeeded", "good": "succeeded",
             "refused": "never_shipped"}  # fmt: skip
    assert {row["run_id"]: row["outcome"] for row in run_outcomes(warehouse, "fraud").to_pylist()} == names
    write_ledger(warehouse, *(part("2", run=name) for name in names))
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert found.by_run_outcome == {"never_shipped": Decimal(4), "succeeded": Decimal(6)}


def test_a_backfill_that_repeats_good_partitions_is_named_repeated(warehouse: Warehouse) -> None:
    """dagster#20465: the whole backfill is run again for the one partition that had failed."""
    same = {"asset": "features", "stage": "features", "code_version": "c1", "inputs_version": "i1"}
    past_run(warehouse, "a1", **same, partition="a")
    past_run(warehouse, "b1", **same, partition="b", status="failed")
    for number, name in enumerate(("a2", "b2")):
        past_run(warehouse, name, **same, partition=name[0], start=NOON + (2 + number) * HOUR)
    past_run(warehouse, "a3", **same | {"inputs_version": "i2"}, partition="a", start=NOON + 5 * HOUR)
    past_run(warehouse, "a4", **same | {"inputs_version": None}, partition="a", start=NOON + 8 * HOUR)
    found = {row["run_id"]: row["outcome"] for row in run_outcomes(warehouse).to_pylist()}
    assert (found["a2"], found["b1"], found["b2"]) == ("repeated", "failed", "succeeded")
    assert (found["a3"], found["a4"]) == ("superseded", "succeeded")  # a3 was made anew before anything could use it


@pytest.mark.parametrize(
    ("reader", "outcome"),
    [
        (None, "superseded"),
        ({"start": NOON + 1.5 * HOUR, "hours": 0.5}, "succeeded"),  # began while the first result stood
        ({"start": NOON - HOUR, "hours": 9}, "succeeded"),  # was under way all the time
        ({"start": NOON - HOUR, "hours": 2}, "superseded"),  # was over when the first result came
        ({"start": NOON + 4 * HOUR}, "superseded"),  # began when the second stood
        ({"start": NOON + 1.5 * HOUR, "model": "recs"}, "superseded"),
        ({"start": NOON + 1.5 * HOUR, "status": "running", "ended_at": None}, "succeeded"),
    ],
)
def test_a_result_made_anew_is_superseded_unless_somebody_may_have_used_it(
    warehouse: Warehouse, reader: dict[str, Any] | None, outcome: str
) -> None:
    mine = {"asset": "features", "stage": "features", "partition": "2026-03-09"}
    past_run(warehouse, "first", **mine)
    past_run(warehouse, "second", **mine, start=NOON + 3 * HOUR)
    past_run(warehouse, "another day", **mine | {"partition": "2026-03-08"}, start=NOON + 1.5 * HOUR)
    if reader is not None:
        past_run(warehouse, "reader", asset="training", **reader)
    found = {row["run_id"]: (row["outcome"], row["replaced_by"]) for row in run_outcomes(warehouse).to_pylist()}
    assert found["first"] == (outcome, "second" if outcome == "superseded" else None)
    assert found["second"] == ("succeeded", None)


def test_thousand_predictions_and_nothing_where_there_was_none(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "serve", stage="serving")
    write_ledger(warehouse, part("4", run="serve", stage="serving"))
    empty = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (empty.per_thousand_predictions, empty.per_retrain, empty.per_outcome.reason) == (None, None, "not_measured")
    said = {"model": "fraud", "model_version": "v1", "score": 0.1, "threshold": 0.5, "alerted": False}
    dated = [MARCH, *[APRIL] * 50, APRIL + HOUR]  # the end of the day before: February 28th, March 31st, April 1st
    warehouse.append("predictions", [{**said, "entity_id": str(i), "predicted_at": at} for i, at in enumerate(dated)])
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (found.predictions, found.per_thousand_predictions) == (50, Decimal(80))


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
    found = unit_cost(warehouse, settings, "fraud", PERIOD).outcome
    assert found is not None
    assert (found.count, found.low, found.high, found.state) == (12, 12, 13, "measured")


def test_runs_that_no_bill_has_reached_are_estimates_until_one_does(warehouse: Warehouse) -> None:
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
    before = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (before.total, before.estimated, before.unpriced_runs) == (Decimal("11.346"), Decimal("11.346"), 1)
    assert before.provisional
    assert before.by_method == {"estimate": Decimal("11.346")}
    write_ledger(warehouse, part("7", run="pool"))
    after = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert after.by_method == {"direct": Decimal(7), "estimate": Decimal("5.346")}
    assert [cost.period for cost in unit_costs(warehouse, settings, "fraud")] == [PERIOD]


def test_the_price_of_a_retrain_goes_from_a_bound_to_what_the_last_ones_cost(
    warehouse: Warehouse, settings: Settings
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
    rows = [part(str(n), run=f"j{n}/{attempt}") for n in range(7) for attempt in (1, 2)]
    write_ledger(warehouse, *rows[:-1])  # one attempt of the last job is not billed yet
    price = retrain_price(warehouse, settings, "fraud")
    assert price.amount == Decimal(2 * (1 + 2 + 3 + 4 + 5)) / 5
    assert price.source == "mean of the last 5 billed retrains, all attempts included"


def test_another_currency_is_not_part_of_a_models_cost(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1")
    write_ledger(warehouse, part("4", run="r1"), currency="CAD")
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (found.total, found.deliveries) == (Decimal(0), ())
