"""A warehouse of schema version 1, as earlier code wrote it, brought to this version, killed on the way or not."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.deliveries import delivery, import_bill
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.migrating import migrate
from mlcost_pipeline.cost.reconciliation import require_reconciled
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.state import StateStore
from mlcost_pipeline.tables import SCHEMA_VERSION, TABLES, TIME
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, ledger_rows, line, past_run, stored_lines, write_bill

# The columns of version 1, in its order.
DELIVERIES = [
    "delivery_id", "provider", "format", "account", "period", "currency", "received_at", "manifest_hash", "rows",
    "billed_total", "effective_total", "list_total", "billed_residue", "effective_residue", "state", "source",
]  # fmt: skip
LINES = [
    "delivery_id", "line", "slot_id", "account", "period", "charge_start", "charge_end", "category", "charge_class",
    "service", "sku", "description", "resource_id_raw", "resource_id", "tags", "currency", "billed", "effective",
    "list", "quantity", "quantity_unit", "invoice_id", "allocation",
]  # fmt: skip
START = datetime(2026, 3, 20, tzinfo=UTC)


def _write(root: Path, table: str, columns: list[str], rows: list[dict[str, Any]], name: str, at: datetime) -> None:
    schema = pa.schema([TABLES[table].schema.field(column) for column in columns]).append(pa.field("recorded_at", TIME))
    made = [{column: row.get(column) for column in columns} | {"recorded_at": at} for row in rows]
    (root / "tables" / table).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(made, schema), root / "tables" / table / f"{name}.parquet")


def _charge(delivery_id: str, number: int, cost: str, **more: Any) -> dict[str, Any]:
    start = NOON + number * HOUR
    return {
        "delivery_id": delivery_id, "line": number, "slot_id": f"old-{number}", "account": ACCOUNT, "period": PERIOD,
        "charge_start": start, "charge_end": start + HOUR, "category": "Usage", "service": "Compute",
        "resource_id_raw": "gpu-1", "resource_id": "gpu-1", "currency": "USD", "billed": Decimal(cost),
        "effective": Decimal(cost), "list": Decimal(cost), "invoice_id": "INV-1", "allocation": "origin", **more,
    }  # fmt: skip


def _version_one(root: Path) -> None:
    """Two deliveries of March, the second in force; one line of it was written twice by a writer that was killed."""
    bills = {
        "d-1": [_charge("d-1", 2, "1")],
        "d-2": [
            _charge("d-2", 2, "1.5"), _charge("d-2", 3, "4", tags=[("mlcost_run", "r-1"), ("a", "b")]),
            _charge("d-2", 4, "-0.5", category="Credit", resource_id=None, list=None),
        ],
    }  # fmt: skip
    for number, (name, lines) in enumerate(bills.items()):
        total = sum(row["billed"] for row in lines)
        _write(root, "billing_lines", LINES, lines, f"lines-{number}", START)
        bill = {
            "delivery_id": name, "provider": "Cloudy", "format": "focus 1.2", "account": ACCOUNT, "period": PERIOD,
            "currency": "USD", "received_at": START + timedelta(days=number), "manifest_hash": "m", "rows": len(lines),
            "billed_total": total, "effective_total": total, "list_total": total, "billed_residue": Decimal(0),
            "effective_residue": Decimal(0), "state": "final", "source": "bill.csv",
        }  # fmt: skip
        listed = sum(row["list"] or 0 for row in lines)
        _write(root, "bill_deliveries", DELIVERIES, [bill | {"list_total": listed}], f"bill-{number}", START)
    _write(root, "billing_lines", LINES, bills["d-2"][:1], "lines-again", START + timedelta(hours=1))
    warehouse = Warehouse(root, checked=False)
    received = (START + timedelta(days=1)).isoformat()
    in_force = {"delivery_id": "d-2", "received_at": received, "history": ["d-1", "d-2"]}
    warehouse.state.update(f"bills/{ACCOUNT}/{PERIOD}", lambda _: in_force)
    warehouse.state.update(f"pointers/cost_ledger/{ACCOUNT}|{PERIOD}", lambda _: {"version": "old"})
    (root / "warehouse.json").write_text(json.dumps({"schema_version": 1}))


def _check(root: Path, settings: Settings) -> None:
    warehouse = Warehouse(root)
    lines = stored_lines(warehouse)
    assert [(row["delivery_id"], row["line"]) for row in lines] == [("d-1", 2), ("d-2", 2), ("d-2", 3), ("d-2", 4)]
    bill = delivery(warehouse, ACCOUNT, PERIOD)
    assert bill is not None and (bill.delivery_id, bill.billed_total) == ("d-2", Decimal(5))
    assert warehouse.current("cost_ledger", f"{ACCOUNT}|{PERIOD}") is None
    past_run(warehouse, "r-1", start=NOON + 2 * HOUR, hours=1)
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert require_reconciled(warehouse, ACCOUNT, PERIOD).reconciled
    parts = {(row["method"], row["run_id"]): row["billed"] for row in ledger_rows(warehouse) if row["billed"] > 0}
    assert parts["direct", "r-1"] == Decimal(4)  # the charge that names it
    assert parts["occupancy", "r-1"] == Decimal("1.5")  # the hour that it held


def test_a_warehouse_of_version_one_is_migrated_and_its_ledgers_close(tmp_path: Path, settings: Settings) -> None:
    root = tmp_path / "warehouse"
    _version_one(root)
    with pytest.raises(WarehouseError, match="run: mlcost migrate"):
        Warehouse(root)
    assert migrate(root) == 2
    assert migrate(root) == 0
    assert json.loads((root / "warehouse.json").read_text()) == {"schema_version": SCHEMA_VERSION}
    _check(root, settings)


def test_a_migration_killed_at_any_write_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    _version_one(tmp_path / "old")
    survived, alive = 0, False
    while not alive:
        root = tmp_path / str(survived)
        shutil.copytree(tmp_path / "old", root)
        left, alive = survived, True

        def dies(write: Any) -> Any:
            def call(*args: Any, **named: Any) -> Any:
                nonlocal left, alive
                left -= 1
                if left < 0 and alive:
                    alive = False
                    raise KeyboardInterrupt
                return write(*args, **named)

            return call

        with monkeypatch.context() as patched:
            for owner, name in (
                (os, "link"), (os, "unlink"), (StateStore, "update"), (Warehouse, "write_file"),
                (pq.ParquetWriter, "write_table"),
            ):  # fmt: skip
                patched.setattr(owner, name, dies(getattr(owner, name)))
            try:
                migrate(root)
            except KeyboardInterrupt:
                assert json.loads((root / "warehouse.json").read_text()) == {"schema_version": 1}
        migrate(root)
        lines = stored_lines(Warehouse(root))
        assert [(row["delivery_id"], row["line"]) for row in lines] == [("d-1", 2), ("d-2", 2), ("d-2", 3), ("d-2", 4)]
        survived += 2
    assert survived > 8
    _check(tmp_path / "4", settings)


def test_lines_that_are_missing_are_named_and_nothing_is_removed(tmp_path: Path) -> None:
    _version_one(tmp_path / "warehouse")
    (tmp_path / "warehouse" / "tables" / "billing_lines" / "lines-1.parquet").unlink()
    with pytest.raises(WarehouseError, match="delivery d-2: has 3 lines on record and 1 in"):
        migrate(tmp_path / "warehouse")
    assert json.loads((tmp_path / "warehouse" / "warehouse.json").read_text()) == {"schema_version": 1}


def test_a_bill_taken_over_after_the_migration_replaces_a_migrated_one(tmp_path: Path, settings: Settings) -> None:
    root = tmp_path / "warehouse"
    _version_one(root)
    migrate(root)
    import_bill(Warehouse(root), write_bill(tmp_path / "bill.csv", [line("9")]), received_at=START + timedelta(days=9))
    build_ledger(Warehouse(root), settings, ACCOUNT, PERIOD)
    assert require_reconciled(Warehouse(root), ACCOUNT, PERIOD).reconciled


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 99}'])
def test_what_is_no_warehouse_of_a_known_version_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "warehouse.json").write_text(text)
    with pytest.raises(WarehouseError, match=r"warehouse\.json"):
        migrate(tmp_path)
