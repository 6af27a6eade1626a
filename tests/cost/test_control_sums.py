"""Control sums: a second reading of the raw files that the first must equal to the last digit, or nothing is stored."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.bills.control_sums import control_sums
from mlcost_pipeline.cost.bills.cur_file import CurFile
from mlcost_pipeline.cost.bills.focus import FocusFile
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery, import_bill
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import MONEY
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, PERIOD, line, write_bill
from tests.cost.cur_reports import PAYER, PLAN, cur_line, write_legacy, write_parquet

OWN = {"billed": "delivery", "effective": "delivery", "list": "delivery"}
HARD = [
    "0.1",
    "-1.2E-7",
    "1e2",
    "0.12345678901234567890123456",
    " 7 ",
    "+.5",
    "12345678901234567890.5",
    "-0.0",
    "1E-19",
]


def _rows() -> list[dict[str, Any]]:
    rows = [line(text, effective=HARD[-n]) for n, text in enumerate(HARD)]
    return [*rows, line("1", BillingAccountId="acct-2"), line("2", ServiceName='a "b",\nc'), line("3", ListCost=None)]


def _plain(path: Path) -> Path:
    return write_bill(path / "bill.csv", _rows())


def _unix(path: Path) -> Path:
    bill = _plain(path)
    bill.write_bytes(b"\xef\xbb\xbf" + bill.read_bytes().replace(b"\r\n", b"\n")[:-1])
    return bill


def _mixed(path: Path) -> Path:
    bill = _plain(path)
    bill.write_bytes(bill.read_bytes().replace(b"\r\n", b"\n", 3) + b"\r\n\n")
    return bill


def _gz(path: Path) -> Path:
    data = _plain(path).read_bytes()
    (path / "b[1].csv.gz").write_bytes(gzip.compress(data[:300]) + gzip.compress(data[300:]))  # of two members
    return path / "b[1].csv.gz"


def _zip(path: Path) -> Path:
    with zipfile.ZipFile(path / "bill.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_plain(path), "bill.csv")
    return path / "bill.csv.zip"


@pytest.mark.parametrize("write", [_plain, _unix, _mixed, _gz, _zip])
def test_whatever_way_a_number_is_written_both_readings_agree(
    warehouse: Warehouse, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    made = import_bill(warehouse, write(tmp_path))
    assert [each.control for each in made] == [OWN, OWN]
    stored = delivery(warehouse, ACCOUNT, PERIOD)
    assert stored is not None and stored.control == OWN
    assert stored.billed_total == Decimal("12345678901234568003.223456669012345679")


def test_parquet_of_any_type_of_number(warehouse: Warehouse, tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    doubles = [*chance.normal(0, 1, 500), *chance.normal(0, 1e-9, 500), 5e-324, 4503599627370497.5, -0.0, 0.1 + 0.2]
    table = pa.Table.from_pylist([line("0")] * len(doubles))
    deep = pa.array([Decimal(n).scaleb(-22) for n in range(len(doubles))], pa.decimal256(40, 22))
    for name, column in (("BilledCost", pa.array(doubles)), ("EffectiveCost", deep),
                         ("ListCost", pa.array(range(len(doubles)), pa.uint64()))):  # fmt: skip
        table = table.set_column(table.schema.get_field_index(name), name, column)
    (tmp_path / f"BILLING_PERIOD={PERIOD}").mkdir()
    pq.write_table(table, tmp_path / f"BILLING_PERIOD={PERIOD}" / "bill.parquet")
    [made] = import_bill(warehouse, tmp_path)
    assert made.control == OWN
    assert made.billed_residue != 0 and made.effective_residue != 0
    assert made.list_total == sum(range(len(doubles)))


def _cur_rows() -> list[dict[str, Any]]:
    plan: dict[str, Any] = {"savings_plan_savings_plan_a_r_n": PLAN}
    fee: dict[str, Any] = {"savings_plan_total_commitment_to_date": 1.1, "savings_plan_used_commitment": 0.7}
    held: dict[str, Any] = {"reservation_reservation_a_r_n": "arn:r"}
    unused: dict[str, Any] = {"reservation_unused_recurring_fee": 0.3,
              "reservation_unused_amortized_upfront_fee_for_billing_period": 0.1}  # fmt: skip
    split: dict[str, Any] = {"split_line_item_parent_resource_id": "i-0abc", "pricing_public_on_demand_cost": 0.1}
    return [
        cur_line(0.1, pricing_public_on_demand_cost=0.3), cur_line(0.1 + 0.2, "Tax", pricing_public_on_demand_cost=9.0),
        cur_line(0.9, "SavingsPlanCoveredUsage", savings_plan_savings_plan_effective_cost=0.7, **plan),
        cur_line(-0.9, "SavingsPlanNegation", **plan), cur_line(1.1, "SavingsPlanRecurringFee", **plan, **fee),
        cur_line(0.0, "DiscountedUsage", reservation_effective_cost=0.2, **held),
        cur_line(5.1, "RIFee", **held, **unused),
        cur_line(40.1, "SavingsPlanUpfrontFee", **plan), cur_line(7.7, "Fee", **held), cur_line(3.3, "Fee"),
        cur_line(-2.2, "Refund", **plan), cur_line(-1.1, "Refund"), cur_line(6.6, "Zorble"),
        cur_line(-4.4, "Refund", line_item_description="Refund for one-time fee for Savings Plan ID x"),
        cur_line(0.0, **split), cur_line(1.7, **split),
    ]  # fmt: skip


def test_a_report_of_every_type_of_line(warehouse: Warehouse, tmp_path: Path) -> None:
    [modern] = import_bill(warehouse, write_parquet(tmp_path / "a.parquet", _cur_rows()), format="cur2")
    [legacy] = import_bill(warehouse, write_legacy(tmp_path / "b.csv.gz", _cur_rows()), format="cur_legacy")
    assert modern.control == legacy.control == OWN
    assert modern.account == legacy.account == PAYER
    assert modern.rows == legacy.rows == 15  # the record of split cost that costs nothing is no line
    # 0.1 + 0.3 + 0.7 + (1.1 - 0.7) + 0.2 + (0.1 + 0.3) + 3.3 - 1.1 + 6.6 + 1.7, and binary digits
    assert abs(modern.effective_total - Decimal("12.6")) < Decimal("1e-12")


def test_published_bills_have_their_published_sums(billing_data: Path) -> None:
    found = control_sums("focus", [billing_data / "focus_1_0_sample_1000.csv"])
    assert found is not None and found.rows.total() == 1000
    assert sum(sums["billed"] for sums in found.sums.values()) == Decimal("20.52022672899")
    assert sum(sums["effective"] for sums in found.sums.values()) == Decimal("14.97651418586")


Fault = Callable[[pa.RecordBatch], pa.RecordBatch]


def _lost(lines: pa.RecordBatch) -> pa.RecordBatch:
    return lines.slice(1)


def _twice(lines: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([lines, lines.slice(0, 1)]).combine_chunks().to_batches()[0]


def _from_the_next_column(lines: pa.RecordBatch) -> pa.RecordBatch:
    return lines.set_column(lines.schema.get_field_index("list"), "list", lines.column("quantity"))


def _less(lines: pa.RecordBatch, measure: str, amount: str) -> pa.RecordBatch:
    values = pa.array([value - Decimal(amount) for value in lines.column(measure).to_pylist()], MONEY)
    return lines.set_column(lines.schema.get_field_index(measure), measure, values)


def _off_by_a_last_digit(lines: pa.RecordBatch) -> pa.RecordBatch:
    return _less(lines, "effective", "1e-18")


def _on_another_account(lines: pa.RecordBatch) -> pa.RecordBatch:
    accounts = pa.array(["acct-2", "acct-1", "acct-2"])
    return lines.set_column(lines.schema.get_field_index("account"), "account", accounts)


@pytest.mark.parametrize("fault", [_lost, _twice, _from_the_next_column, _off_by_a_last_digit, _on_another_account])
def test_a_fault_of_the_reader_is_seen_and_nothing_is_stored(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1"), line("2"), line("4", BillingAccountId="acct-2")])
    sound = FocusFile.batches
    monkeypatch.setattr(FocusFile, "batches", lambda file: (fault(lines) for lines in sound(file)))
    with pytest.raises(BillError, match=r"bill\.csv.*: \w+ adds up to \S+ in the file and to \S+ in the . lines"):
        import_bill(warehouse, bill)
    assert bills_in_force(warehouse) == [] and warehouse.rows("bill_deliveries") == []


def test_money_that_is_called_residue_is_no_residue(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sums agree, but what the lines lack is more than rounding can take off."""
    sound = CurFile.batches

    def lossy(file: CurFile) -> Iterator[pa.RecordBatch]:
        for lines in sound(file):
            yield _less(lines, "billed", "1e-11")
        kept = file.residues.setdefault((PAYER, PERIOD), {})
        kept["billed"] = kept.get("billed", Decimal(0)) + Decimal("2e-11")

    monkeypatch.setattr(CurFile, "batches", lossy)
    bill = write_parquet(tmp_path / "bill.parquet", [cur_line(0.5), cur_line(0.25)])
    with pytest.raises(
        BillError, match=r"billed is stored 0\.00000000002 short of the file, and rounding 2 rows can take"
    ):
        import_bill(warehouse, bill, format="cur2")
    assert warehouse.rows("bill_deliveries") == []


@pytest.mark.parametrize(
    "text", ["1e30", "123456789012345678901234567890.12345678", "29934950057977529056.7290821505816262506", "9" * 400]
)
def test_numbers_that_do_not_fit_are_refused_or_kept_and_never_become_others(
    warehouse: Warehouse, tmp_path: Path, text: str
) -> None:
    """Arrow casts these to other numbers without a word."""
    bill = write_bill(tmp_path / "bill.csv", [line(text)])
    if Decimal(text) < Decimal("1e20"):
        assert abs(import_bill(warehouse, bill)[0].billed_total - Decimal(text)) <= Decimal("5e-19")
        return
    with pytest.raises(BillError, match=r"line 2, column BilledCost: .* does not fit 20 digits before the point"):
        import_bill(warehouse, bill)
