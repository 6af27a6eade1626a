"""Faults of the data: each is found, named with its column and rows, and a healthy day has none."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from mlcost_pipeline.evidence.faults import find_faults
from mlcost_pipeline.evidence.record import collect
from mlcost_pipeline.evidence.values import Faults
from mlcost_pipeline.models.features import build_features
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.evidence.worlds import AS_OF, CUT, Row, clock_at, fraud_world

WEEK = CUT - timedelta(days=7)


def faults(root: Path, settings: Settings, change: object = None) -> Faults:
    warehouse = fraud_world(root / "warehouse", change, said=False)  # type: ignore[arg-type]
    return find_faults(warehouse, settings, "fraud", AS_OF)


def test_a_healthy_week_has_no_fault(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings)
    assert (found.found, found.quarantine, found.rows) == ((), (), 280)


def test_amounts_in_cents_at_a_fifth_of_the_terminals(tmp_path: Path, settings: Settings) -> None:
    bad = {"t0", "t1"}

    def in_cents(row: Row) -> Row:
        late = row["happened_at"] >= CUT - timedelta(days=2)
        return {**row, "amount": row["amount"] * 100} if late and row["terminal_id"] in bad else row

    found = faults(tmp_path, settings, in_cents)
    assert [(fault.kind, fault.column) for fault in found.found] == [("unit_jump", "amount")]
    fault = found.found[0]
    assert 60 < fault.numbers["median_ratio"] < 150  # type: ignore[operator]
    assert fault.numbers["groups"] == 2 and fault.numbers["grouped_by"] == "terminal_id"
    assert fault.rows == len(found.quarantine) >= 10
    assert all(row.row_key[:3] in ("061", "062") for row in found.quarantine)


def test_everything_in_another_unit(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: {**row, "amount": row["amount"] / 10}
                   if row["happened_at"] >= CUT - timedelta(days=1) else row)  # fmt: skip
    assert [(fault.kind, fault.rows) for fault in found.found] == [("unit_jump", 40)]


def test_twice_the_level_is_drift_and_no_fault(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: {**row, "amount": row["amount"] * 2}
                   if row["happened_at"] >= WEEK else row)  # fmt: skip
    assert found.found == ()


def test_half_of_a_column_goes_missing(tmp_path: Path, settings: Settings) -> None:
    def holes(row: Row) -> Row:
        gone = row["happened_at"] >= WEEK and int(row["transaction_id"][-1]) % 2 == 0
        return {**row, "feature_speed": None} if gone else row

    found = faults(tmp_path, settings, holes)
    assert [(fault.kind, fault.column, fault.rows) for fault in found.found] == [("missing_jump", "feature_speed", 140)]
    assert len(found.quarantine) == 140


def test_a_column_that_was_always_half_missing_is_no_fault(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: {**row, "feature_speed": None}
                   if int(row["transaction_id"][-1]) % 2 == 0 else row)  # fmt: skip
    assert found.found == ()


def test_an_empty_column(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: {**row, "terminal_id": None} if row["happened_at"] >= WEEK else row)
    assert [(fault.kind, fault.column) for fault in found.found] == [("all_null", "terminal_id")]


def test_no_rows_on_the_day_and_none_in_the_window(tmp_path: Path, settings: Settings) -> None:
    stale = faults(tmp_path / "a", settings, lambda row: row if row["happened_at"] < CUT - timedelta(days=1) else None)
    assert [fault.kind for fault in stale.found] == ["stale"]
    assert 24 < float(stale.found[0].numbers["age_hours"]) < 25
    empty = faults(tmp_path / "b", settings, lambda row: row if row["happened_at"] < WEEK else None)
    assert [(fault.kind, fault.rows) for fault in empty.found] == [("no_rows", 0)]


def test_a_day_of_rest_is_no_fault(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: None if row["happened_at"].weekday() == 6 else row)
    assert found.found == ()
    assert found.noted == ("transactions: no rows on Sunday, as on the 4 before it: a day of rest",)


def test_a_day_that_was_cut_off(tmp_path: Path, settings: Settings) -> None:
    found = faults(tmp_path, settings, lambda row: None if row["happened_at"] >= CUT - timedelta(days=1)
                   and int(row["transaction_id"].split("-")[1]) >= 3 else row)  # fmt: skip
    assert [(fault.kind, fault.rows) for fault in found.found] == [("few_rows", 3)]


def test_one_id_with_two_contents(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", said=False)
    row = warehouse.rows("transactions", where="transaction_id = '060-007'")[0]
    warehouse.append("transactions", [row])  # the same again is no fault
    warehouse.append("transactions", [{**row, "amount": row["amount"] + Decimal(1)}])
    found = find_faults(warehouse, settings, "fraud", AS_OF)
    assert [(fault.kind, fault.rows) for fault in found.found] == [("duplicate_ids", 1)]
    assert [row.row_key for row in found.quarantine] == ["060-007"]


def test_quarantined_rows_leave_training_and_do_not_block_the_next_day(tmp_path: Path, settings: Settings) -> None:
    def in_cents(row: Row) -> Row:
        hit = row["happened_at"].date() == AS_OF - timedelta(days=1)
        return {**row, "amount": row["amount"] * 100} if hit else row

    warehouse = fraud_world(tmp_path / "warehouse", in_cents, said=False)
    day = AS_OF - timedelta(days=1)
    first = collect(warehouse, settings, clock_at(day), "fraud", day)
    assert [fault.kind for fault in first.faults.found] == ["unit_jump"]
    assert len(warehouse.rows("quarantine")) == 40
    again = collect(warehouse, settings, clock_at(day), "fraud", day)  # its features are rebuilt without them by now
    assert again.evidence_id == first.evidence_id and len(warehouse.rows("evidence")) == 1
    assert build_features(warehouse, settings, "fraud", AS_OF).dropped["quarantined"] == 40
    assert collect(warehouse, settings, clock_at(), "fraud", AS_OF).faults.found == ()


def test_a_warehouse_without_rows_says_so(tmp_path: Path, settings: Settings) -> None:
    import pytest

    from mlcost_pipeline.errors import MlcostError

    with pytest.raises(MlcostError, match="no"):
        find_faults(Warehouse(tmp_path / "warehouse"), settings, "fraud", AS_OF)
