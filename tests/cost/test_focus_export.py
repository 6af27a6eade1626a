"""The ledger as FOCUS rows: the bill's sums, whose each row is, in a shape that the Foundation's tool accepts."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mlcost_pipeline.cli import main
from mlcost_pipeline.cost import focus_export
from mlcost_pipeline.cost.deliveries import import_bill, in_force, scope_of
from mlcost_pipeline.cost.focus_export import export_focus
from mlcost_pipeline.cost.ledger import build_ledger, build_ledgers
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.errors import BillError, Unreconciled
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, write_bill

ROOT = Path(__file__).parents[2]
#: Made by ``make focus-check``, which needs Python 3.12: an environment of its own, for its versions are not ours.
VALIDATOR = ROOT / ".venv-focus" / "bin" / "focus-validator"
#: One side of the either-or InvoiceId-C-003-C, "InvoiceId is null", counts alone too: with invoices it cannot pass.
CANNOT_PASS = {"InvoiceId-C-004-C"}


@pytest.fixture
def shop(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> Warehouse:
    """A shared GPU, a model tag, a formula for a resource, support, tax and a credit."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", NOON - timedelta(days=30))
    past_run(warehouse, "r1", hours=0.5)
    past_run(warehouse, "r2", model="recs", stage="serving", start=NOON + HOUR / 2, hours=0.25, share=500)
    rows = [
        line("4", effective="3.3333"), line("7", resource="=HYPERLINK(1)", tags={"mlcost_model": "recs", "team": "ml"}),
        line("2", resource="vm-9", start=NOON + HOUR, ChargeClass="Correction"), line("-1", category="Credit"),
        line("0.5", category="Tax", resource=None),
        line("1", category="Purchase", resource=None, ServiceName="Premium Support"),
    ]  # fmt: skip
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    return warehouse


@pytest.mark.parametrize("name", ["allocated.parquet", "allocated.csv"])
def test_what_is_exported_is_the_bill_and_says_whose_each_row_is(
    shop: Warehouse, settings: Settings, tmp_path: Path, name: str
) -> None:
    made = export_focus(shop, settings, PERIOD, tmp_path / name)
    assert made.effective == {"USD": Decimal("12.8333")} and not made.provisional
    if name.endswith(".parquet"):
        rows = pq.read_table(made.file).to_pylist()
    else:
        with made.file.open(newline="") as stream:
            rows = [{k: v or None for k, v in row.items()} for row in csv.DictReader(stream)]
    assert len(rows) == made.rows
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("13.5")
    own = [row for row in rows if row["x_RunId"] == "r1" and row["x_AllocationMethod"] == "occupancy"]
    assert sum(Decimal(row["EffectiveCost"]) for row in own) == Decimal("1.16665")  # half of 3.3333 and of the credit
    assert json.loads(own[0]["Tags"]) == {"mlcost_run": "r1", "mlcost_model": "fraud", "mlcost_stage": "training"}
    [tagged] = [row for row in rows if row["x_AllocationMethod"] == "tag"]
    assert json.loads(tagged["Tags"]) == {"mlcost_model": "recs", "team": "ml"}
    assert tagged["ResourceId"] == ("=HYPERLINK(1)" if name.endswith(".parquet") else "'=HYPERLINK(1)")
    again = Warehouse(tmp_path / "again")
    [back] = import_bill(again, made.file)  # what we write, we read
    assert (back.billed_total, back.effective_total, back.rows) == (Decimal("13.5"), Decimal("12.8333"), made.rows)
    [ledger] = build_ledgers(again, settings)
    assert ledger.reconciliation.reconciled


def test_a_file_that_does_not_add_up_is_not_left(
    shop: Warehouse, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(focus_export, "_PARTS", f"SELECT * FROM ({focus_export._PARTS}) WHERE x_Part = 0")
    with pytest.raises(Unreconciled, match=r"allocated\.csv: billed adds up to .* nothing was exported"):
        export_focus(shop, settings, PERIOD, tmp_path / "allocated.csv")
    assert not list(tmp_path.glob("*allocated*"))


def test_a_month_is_exported_whole_or_not_at_all(shop: Warehouse, settings: Settings, tmp_path: Path) -> None:
    import_bill(shop, write_bill(tmp_path / "other.csv", [line("9", BillingAccountId="acct-2")]))
    with pytest.raises(BillError, match=r"no ledger stands on the bill in force of account acct-2.*mlcost tick"):
        export_focus(shop, settings, PERIOD, tmp_path / "allocated.csv")
    assert not list(tmp_path.glob("*allocated*"))
    assert export_focus(shop, settings, PERIOD, tmp_path / "one.csv", ACCOUNT).effective == {"USD": Decimal("12.8333")}
    import_bill(shop, write_bill(tmp_path / "newer.csv", [line("5")]))  # the ledger stands on what it took over
    with pytest.raises(BillError, match="in force of account acct-1, acct-2"):
        export_focus(shop, settings, PERIOD, tmp_path / "allocated.csv")


@pytest.mark.parametrize("measure", ["BilledCost", "EffectiveCost", "ListCost"])
def test_each_measure_is_held_against_the_bill(
    shop: Warehouse, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    off = f"SELECT * REPLACE ({measure} + 1e-18::DECIMAL(38, 18) AS {measure}) FROM ({focus_export._PARTS})"
    monkeypatch.setattr(focus_export, "_PARTS", off)
    with pytest.raises(Unreconciled, match=rf"{measure.removesuffix('Cost').lower()} adds up to .* nothing was"):
        export_focus(shop, settings, PERIOD, tmp_path / "allocated.parquet")


def test_a_bill_of_many_buckets_is_written_one_by_one(shop: Warehouse, settings: Settings, tmp_path: Path) -> None:
    scope = scope_of(ACCOUNT, PERIOD)
    bill = in_force(shop, ACCOUNT, PERIOD)
    assert bill is not None
    file = shop.version_file("billing_slots", scope, bill)
    assert file is not None
    slots = pq.read_table(file)
    whole = export_focus(shop, settings, PERIOD, tmp_path / "whole.parquet")
    buckets = pa.array([n % 3 for n in range(slots.num_rows)], pa.int64())
    pq.write_table(
        slots.set_column(slots.schema.get_field_index("bucket"), slots.schema.field("bucket"), buckets), file
    )
    made = export_focus(shop, settings, PERIOD, tmp_path / "split.parquet")
    order = [("x_SlotId", "ascending"), ("x_Part", "ascending")]
    assert made.rows == whole.rows and pq.read_table(made.file).sort_by(order) == pq.read_table(whole.file).sort_by(
        order
    )


def test_what_cannot_be_exported_says_why(shop: Warehouse, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BillError, match=r"2026-04: no account has a ledger to export"):
        export_focus(shop, settings, "2026-04", tmp_path / "x.csv")
    with pytest.raises(BillError, match=r"expected a file named \*\.parquet or \*\.csv"):
        export_focus(shop, settings, PERIOD, tmp_path / "x.xlsx")


def test_an_open_month_is_marked_and_accounts_are_masked_where_they_are_to_be(
    shop: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    import_bill(shop, write_bill(tmp_path / "open.csv", [line("4", InvoiceId=None)]))
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    config = tmp_path / "mlcost.yaml"
    config.write_text(
        f"version: 1\nname: t\nwarehouse: {shop.root}\naccounted: {{recs: {{}}, fraud: {{}}}}\nmask_accounts: true\n"
    )
    words = ["--config", str(config), "bill", "export", PERIOD, "--out", str(tmp_path / "open.parquet")]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0 and "PROVISIONAL: a bill of it is open" in told.output
    rows = pq.read_table(tmp_path / "open.parquet").to_pylist()
    assert all(row["x_Provisional"] and ACCOUNT not in row["BillingAccountId"] for row in rows)


def test_the_validator_of_the_finops_foundation_accepts_it(shop: Warehouse, settings: Settings, tmp_path: Path) -> None:
    if not VALIDATOR.exists():
        pytest.skip("focus-validator is not there; make focus-check installs it, with Python 3.12")
    made = export_focus(shop, settings, PERIOD, tmp_path / "allocated.parquet")
    [place] = (VALIDATOR.parents[1] / "lib").glob("python3*/site-packages")  # it looks for its rules from there
    command = [str(VALIDATOR), "--data-file", str(made.file), "--validate-version", focus_export.VERSION,
               "--block-download", "--show-violations"]  # fmt: skip
    told = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r": PASS ", told)) > 100
    assert set(re.findall(r"(\S+): FAIL ", told)) == CANNOT_PASS
    assert "InvoiceId-C-003-C: PASS" in told
