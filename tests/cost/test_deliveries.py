"""Deliveries: whole, immutable, one a period, taken over atomically or not at all."""

from __future__ import annotations

import gzip
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.deliveries import bills_in_force, delivery, import_bill, import_new, in_force
from mlcost_pipeline.cost.waiting import bills_waiting
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, two_models, write_bill


def _total(warehouse: Warehouse, account: str = ACCOUNT, period: str = PERIOD) -> Decimal:
    found = delivery(warehouse, account, period)
    assert found is not None
    rows = warehouse.rows("billing_lines", where="delivery_id = ?", params=[found.delivery_id])
    assert len(rows) == found.rows
    assert sum(row["billed"] for row in rows) + found.billed_residue == found.billed_total
    return found.billed_total


def test_the_same_delivery_twice_is_one_delivery(warehouse: Warehouse, tmp_path: Path) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1.5"), line("-0.25", category="Credit")])
    [first] = import_bill(warehouse, bill)
    packed = tmp_path / "bill.csv.gz"
    packed.write_bytes(gzip.compress(bill.read_bytes()))
    [second] = import_bill(warehouse, packed)
    assert (first.took_over, second.took_over) == (True, False)
    assert first.delivery_id == second.delivery_id
    assert len(warehouse.rows("billing_lines")) == 2
    assert len(warehouse.rows("bill_deliveries")) == 1
    assert _total(warehouse) == Decimal("1.25")


def test_a_newer_delivery_takes_the_period_over_and_the_older_is_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    first = import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("0.007")]))[0]
    second = import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("0.210"), line("1")]))[0]
    assert in_force(warehouse, ACCOUNT, PERIOD) == second.delivery_id
    assert _total(warehouse) == Decimal("1.210")
    kept = {row["delivery_id"] for row in warehouse.rows("billing_lines")}
    assert kept == {first.delivery_id, second.delivery_id}
    import_bill(warehouse, tmp_path / "1.csv")  # an old file again does not push the newer one out
    assert in_force(warehouse, ACCOUNT, PERIOD) == second.delivery_id
    later = second.received_at + timedelta(days=1)  # the provider went back to what it had delivered first
    assert import_bill(warehouse, tmp_path / "1.csv", received_at=later)[0].took_over
    assert in_force(warehouse, ACCOUNT, PERIOD) == first.delivery_id
    assert not import_bill(warehouse, tmp_path / "2.csv")[0].took_over
    assert not import_bill(warehouse, tmp_path / "1.csv", received_at=later)[0].took_over


def test_killed_before_the_pointer_moves_the_old_bill_stays_and_a_repeat_finishes(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("1")]))
    second = write_bill(tmp_path / "2.csv", [line("2"), line("3")])
    update = warehouse.state.update

    def killed(path: str, change: Any) -> Any:
        raise KeyboardInterrupt

    for attribute in ("update",):
        monkeypatch.setattr(warehouse.state, attribute, killed)
    with pytest.raises(KeyboardInterrupt):
        import_bill(warehouse, second)
    monkeypatch.setattr(warehouse.state, "update", update)
    assert _total(warehouse) == Decimal(1)
    [made] = import_bill(warehouse, second)
    assert made.took_over
    assert _total(warehouse) == Decimal(5)


def test_a_refused_file_leaves_everything_as_it_was(warehouse: Warehouse, tmp_path: Path) -> None:
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("1")]))
    rows = [line("2"), line("3", BillingAccountId="acct-2"), line("oops")]
    with pytest.raises(BillError, match="line 4, column BilledCost"):
        import_bill(warehouse, write_bill(tmp_path / "2.csv", rows))
    with pytest.raises(BillError, match="holds no charge"):
        import_bill(warehouse, write_bill(tmp_path / "3.csv", []))
    assert bills_in_force(warehouse) == [(ACCOUNT, PERIOD)]
    assert len(warehouse.rows("billing_lines")) == 1


def test_rows_go_to_their_own_account_and_period(warehouse: Warehouse, tmp_path: Path) -> None:
    april = {"BillingPeriodStart": "2026-04-01T00:00:00Z"}
    rows = [line("10"), line("10", **april), line("7", BillingAccountId="/providers/Acme/accounts/9")]
    made = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert [(d.account, d.period, d.billed_total) for d in made] == [
        ("/providers/Acme/accounts/9", "2026-03", Decimal(7)),
        (ACCOUNT, "2026-03", Decimal(10)),
        (ACCOUNT, "2026-04", Decimal(10)),
    ]
    assert _total(warehouse, "/providers/Acme/accounts/9") == Decimal(7)


def test_an_account_that_looks_like_a_path_stays_inside(warehouse: Warehouse, tmp_path: Path) -> None:
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("1", BillingAccountId="..")]))
    assert bills_in_force(warehouse) == [("..", PERIOD)]
    assert not list(warehouse.root.glob("*.json.*")) and not (warehouse.root / "state" / f"{PERIOD}.json").exists()


def test_two_currencies_in_one_period_are_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line("1"), line("1", BillingCurrency="CAD")]
    with pytest.raises(BillError, match="billed in CAD and USD"):
        import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))


def test_a_period_is_final_only_when_every_line_says_so(warehouse: Warehouse, tmp_path: Path) -> None:
    def state(*rows: dict[str, Any]) -> str:
        return import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))[0].state

    assert state(line("1"), line("2")) == "final"
    assert state(line("1"), line("2", InvoiceId=None)) == "open"
    closed = {"InvoiceId": None, "BillingPeriodStatus": "Closed"}
    assert state(line("3", **closed), line("2", **closed)) == "final"
    assert state(line("3", **closed), line("2", InvoiceId=None, BillingPeriodStatus="Open")) == "open"


def test_the_files_of_a_folder_are_the_parts_of_one_export(warehouse: Warehouse, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_bill(tmp_path / "bills" / f"part-{number}.csv", [line(str(number)), line("0.5")])
    [made] = import_bill(warehouse, tmp_path / "bills")
    assert (made.rows, made.billed_total) == (6, Decimal("7.5"))
    assert sorted(row["line"] for row in warehouse.rows("billing_lines")) == [2, 3, 4, 5, 6, 7]
    (tmp_path / "bills" / "part-4.csv").write_bytes((tmp_path / "bills" / "part-1.csv").read_bytes())
    with pytest.raises(BillError, match="same file"):
        import_bill(warehouse, tmp_path / "bills")


def test_two_deliveries_of_a_period_in_one_folder_are_not_added_up(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line(str(number), start=NOON + number * HOUR) for number in range(6)]
    write_bill(tmp_path / "bills" / "first.csv", rows)
    write_bill(tmp_path / "bills" / "restated.csv", [*rows[:5], line("9", start=NOON + 5 * HOUR)])
    with pytest.raises(BillError, match=r"restated\.csv: repeats most charges of account acct-1, period 2026-03"):
        import_bill(warehouse, tmp_path / "bills")
    assert bills_in_force(warehouse) == []


def test_what_rounding_takes_off_is_kept_with_the_delivery(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line("0.0000000000000000005") for _ in range(4)]
    [made] = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert made.billed_total == made.billed_residue == Decimal("0.000000000000000002")
    assert _total(warehouse) == made.billed_total


def test_configured_places_are_imported_when_their_files_change(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = two_models(
        bills=[{"path": str(tmp_path / "a")}, {"path": str(tmp_path / "b")}, {"path": str(tmp_path / "none")}]
    )
    assert bills_waiting(warehouse, settings) == []
    write_bill(tmp_path / "a" / "bill.csv", [line("1")])
    write_bill(tmp_path / "b" / "bill.csv", [line("torn", BillingAccountId="acct-2")])
    with pytest.raises(BillError, match="'torn'"):
        import_new(warehouse, settings)
    assert _total(warehouse) == Decimal(1)
    assert [path for path, _ in bills_waiting(warehouse, settings)] == [str(tmp_path / "b")]
    write_bill(tmp_path / "b" / "bill.csv", [line("2", BillingAccountId="acct-2")])
    assert [made.account for made in import_new(warehouse, settings)] == ["acct-2"]
    assert import_new(warehouse, settings) == []
