"""Cost per outcome from plain rows, as anybody can call it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mlcost_pipeline import cost_per_outcome
from mlcost_pipeline.errors import BillError, NothingCompared
from tests.cost.billing import HOUR, NOON

GPU = {"resource_id": "gpu-1", "valid_from": NOON - timedelta(days=1), "valid_to": None, "capacity_milli": 1000}
ROOT = Path(__file__).parents[2]


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


BILLING = [charge("4", 0), charge("4", 1), charge("1", 5, resource_id=None, tags={"user:Model": "fraud"})]
BUSY = {"busy_seconds": 900.0, "busy_metric": "nvml", "busy_coverage": 1.0}
RUNS = [
    run("train", "training", 0, 1, status="failed", **BUSY),
    run("serve", "serving", 1, 0.5),
]
OUTCOMES = [{"model": "fraud", "count": 7, "low": 3.5, "high": 14}, {"model": "recs", "count": 900}]


def test_a_model_and_its_outcomes() -> None:
    found = cost_per_outcome(BILLING, RUNS, OUTCOMES, "fraud", resources=[GPU], predictions=3500)
    assert found.total == 7
    assert found.by_stage == {"no stage": Decimal(1), "serving": Decimal(2), "training": Decimal(4)}
    assert found.by_run_outcome == {"failed": Decimal(4), "no_run": Decimal(1), "succeeded": Decimal(2)}
    assert found.by_method == {"occupancy": Decimal(6), "tag": Decimal(1)}
    assert (found.per_outcome.low, found.per_outcome.value, found.per_outcome.high) == (Decimal("0.5"), 1, 2)
    assert (found.training_utilisation, found.serving_utilisation) == (0.25, None)
    assert (found.per_thousand_predictions, found.retrains, found.per_retrain) == (Decimal(2), 1, Decimal(4))
    assert not found.provisional and found.currency == "USD"


def test_the_result_is_also_a_mapping_of_plain_values() -> None:
    found = cost_per_outcome(BILLING, RUNS, OUTCOMES, "fraud", resources=[GPU])
    assert isinstance(found, Mapping) and dict(found) == found.as_dict()
    assert (found["total"], found["per_outcome"], found["training_utilisation"]) == (7, 1, 0.25)
    assert (found["per_outcome_high"], found["per_outcome_reason"], found["serving_utilisation"]) == (2, None, None)
    assert found.method_shares == {"occupancy": pytest.approx(6 / 7), "tag": pytest.approx(1 / 7)}
    with pytest.raises(KeyError):
        found["gpu"]


def test_arrow_tables_say_the_same_as_rows() -> None:
    rows = [{**row, "tags": list((row.get("tags") or {}).items())} for row in BILLING]
    billing = pa.Table.from_pylist(rows, pa.schema([
        ("effective", pa.decimal128(38, 18)), ("charge_start", pa.timestamp("us", "UTC")),
        ("charge_end", pa.timestamp("us", "UTC")), ("category", pa.string()), ("resource_id", pa.string()),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]))  # fmt: skip
    runs = pa.Table.from_pylist([{**RUNS[1], **dict.fromkeys(("status", *BUSY))}, RUNS[0]])
    by_table = cost_per_outcome(billing, runs, pa.Table.from_pylist(OUTCOMES), "fraud", resources=[GPU])
    assert by_table == cost_per_outcome(BILLING, RUNS, OUTCOMES, "fraud", resources=[GPU])


def test_jobs_hours_and_rates_are_enough() -> None:
    billing = [{"run_id": "train", "hours": 2, "rate": "1.5"}, {"run_id": "serve", "hours": 0.5, "rate": 4},
               {"run_id": "of nobody", "hours": 1, "rate": 9, "charge_start": NOON}]  # fmt: skip
    runs = {row["run_id"]: {k: v for k, v in row.items() if k not in ("run_id", "resource_id")} for row in RUNS}
    found = cost_per_outcome(billing, runs, {"fraud": 10, "recs": 900}, "fraud")
    assert found.by_stage == {"serving": Decimal(2), "training": Decimal(3)}
    assert (found["per_outcome"], found.by_method) == (Decimal("0.5"), {"direct": Decimal(5)})
    assert (found.training.billed_hours, found.training_utilisation) == (2, 0.125)  # 900 of 7200 s


def test_a_resume_that_starts_over_shows_what_it_did_twice() -> None:
    job = {"job_id": "j1", "purpose": "retrain"}
    runs = [run("j1/1", "training", 0, 1, **job, status="interrupted"),
            run("j1/2", "training", 1, 1, **job, steps_done=10, steps_redone=4),
            run("j2/1", "training", 2, 1, job_id="j2", purpose="retrain", shipped=False)]  # fmt: skip
    found = cost_per_outcome([charge("5", hour) for hour in range(3)], runs, {"fraud": 1}, "fraud")
    assert found.by_run_outcome == {
        "interrupted": Decimal(5), "never_shipped": Decimal(5), "redone": Decimal(2), "succeeded": Decimal(3),
    }  # fmt: skip
    assert (found.retrains, found.per_retrain) == (2, Decimal("7.5"))


def test_spend_without_an_outcome_is_infinite_and_unknown_is_not_zero() -> None:
    billing, runs = [charge("4", 0)], [run("train", "training", 0, 1)]
    none = cost_per_outcome(billing, runs, [{"model": "fraud", "count": 0}], "fraud")
    assert (none.per_outcome.value, none["per_outcome"], none["per_outcome_reason"]) == (None, None, "no_outcome")
    assert none.per_outcome.show("USD") == "∞ (no outcome)"
    assert cost_per_outcome(billing, runs, [], "fraud").per_outcome.reason == "not_measured"
    doubtful = cost_per_outcome(billing, runs, [{"model": "fraud", "count": 2, "low": -1, "high": 4}], "fraud")
    assert doubtful.per_outcome.show("USD") == "2.0000 USD (1.0000 to ∞)"


def test_what_may_still_change_is_provisional() -> None:
    runs = [run("train", "training", 0, 1)]
    late = [{"model": "fraud", "count": 2, "state": "provisional"}]
    assert cost_per_outcome([charge("4", 0)], runs, late, "fraud").provisional
    open_bill = [charge("4", 0, invoice_id="INV-1"), charge("4", 1)]
    assert cost_per_outcome(open_bill, runs, {"fraud": 2}, "fraud").provisional


@pytest.mark.parametrize(
    ("billing", "runs", "message"),
    [
        ([charge("4", 0, effective=0.1)], RUNS, "charge 0, effective: 0.1 is a binary float"),
        ([charge("4", 0), charge("4", 0, effective="four")], RUNS, "charge 1, effective: 'four' is no amount"),
        ([charge("4", 0, charge_end=None)], RUNS, "charge 0: lacks charge_start and charge_end"),
        ([{"run_id": "train", "hours": 1}], RUNS, "charge 0: lacks an amount"),
        ([charge("4", 0), charge("4", 0, currency="CAD")], RUNS, "charges in CAD and USD"),
        (BILLING, [RUNS[0], RUNS[0]], "run train: is given twice"),
        (BILLING, [{"run_id": "r", "model": "fraud"}], "run r: lacks stage, started_at"),
    ],
)
def test_rows_that_cannot_be_right_are_refused_by_number_and_field(billing: Any, runs: Any, message: str) -> None:
    with pytest.raises(BillError, match=message):
        cost_per_outcome(billing, runs, {"fraud": 1}, "fraud")


@pytest.mark.parametrize("billing", [[], pa.table({"effective": pa.array([], pa.decimal128(38, 18))})])
def test_no_charge_at_all_is_no_answer(billing: Any) -> None:
    with pytest.raises(NothingCompared):
        cost_per_outcome(billing, RUNS, OUTCOMES, "fraud")


def test_the_example_of_the_documentation_runs() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "costs.md"), module_relative=False)
    assert found.attempted >= 10 and found.failed == 0


def test_importing_the_package_loads_no_engine() -> None:
    code = "import sys, mlcost_pipeline; print(sorted({'duckdb', 'pyarrow', 'dagster'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_what_is_not_invoiced_makes_the_whole_provisional_and_what_is_missing_is_noted() -> None:
    runs = [run("t", "training", 0, 1)]
    charges = [{**charge("5", 0), "invoice_id": invoice} for invoice in ("INV-1", None)]
    silent = cost_per_outcome([charge("5", 0)], runs, {"fraud": 1}, "fraud")
    unknown = "no charge says whether it was invoiced (invoice_id): whether the sums may still change is not known"
    assert (silent.provisional, silent.notes) == (False, (unknown,))
    invoiced = cost_per_outcome(charges[:1], runs, {"fraud": 1}, "fraud")
    assert (invoiced.provisional, invoiced.notes) == (False, ())
    assert cost_per_outcome(charges[1:], runs, {"fraud": 1}, "fraud").provisional  # an open period as a whole
    assert cost_per_outcome(charges, runs, {"fraud": 1}, "fraud").provisional
    billed = {name: value for name, value in charge("5", 0).items() if name != "effective"} | {"billed": "5"}
    found = cost_per_outcome([billed, charge("5", 0)], runs, {"fraud": 1}, "fraud")
    assert found.notes == ("1 of 2 charges give no effective cost: what was billed is taken for it", unknown)


def test_counts_of_two_definitions_are_not_added_up_and_an_unknown_bound_is_unknown() -> None:
    runs, billing = [run("t", "training", 0, 1)], [charge("10", 0)]
    caught = {"model": "fraud", "count": 4.0, "unit": "fraud_caught", "definition_version": "1"}
    with pytest.raises(BillError, match="counted as fraud_caught v1 and fraud_caught v2; give those of one"):
        cost_per_outcome(billing, runs, [caught, {**caught, "definition_version": "2"}], "fraud")
    each = cost_per_outcome(billing, runs, [{**caught, "low": 2.0}], "fraud").per_outcome
    assert each.show("USD") == "2.5000 USD (? to 5.0000)"
    exact = cost_per_outcome(billing, runs, [caught, caught], "fraud").per_outcome
    assert exact.low == exact.value == exact.high == Decimal("1.25")
