"""Small bills and runs to write tests with: FOCUS rows, a bill file, a run of the past, settings of two models."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.bills.contents import LINE, reader
from mlcost_pipeline.cost.deliveries import scope_of
from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ACCOUNT, PERIOD = "acct-1", "2026-03"


def line(
    billed: str,
    *,
    resource: str | None = "gpu-1",
    start: datetime = NOON,
    hours: float = 1,
    category: str = "Usage",
    tags: Mapping[str, Any] | None = None,
    effective: str | None = None,
    **more: str | None,
) -> dict[str, Any]:
    """One FOCUS row of the month of March 2026."""
    row = {
        "BillingAccountId": ACCOUNT, "BillingPeriodStart": "2026-03-01T00:00:00Z", "BillingCurrency": "USD",
        "ProviderName": "Cloudy", "ChargeCategory": category, "ChargeClass": None, "ServiceName": "Compute",
        "ChargePeriodStart": start.isoformat(), "ChargePeriodEnd": (start + timedelta(hours=hours)).isoformat(),
        "BilledCost": billed, "EffectiveCost": billed if effective is None else effective, "ListCost": billed,
        "ResourceId": resource, "InvoiceId": "INV-1", "Tags": json.dumps(tags) if tags is not None else None,
    }  # fmt: skip
    return {**row, **more}


def write_bill(path: Path, rows: Sequence[Mapping[str, Any]], *, without: Sequence[str] = ()) -> Path:
    """A FOCUS CSV of the rows; an empty bill keeps its header."""
    columns = [name for name in (rows[0] if rows else line("0")) if name not in without]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@dataclass(frozen=True)
class Whole:
    """A file read to its end."""

    lines: pa.Table
    absent: Mapping[str, str]
    warnings: Sequence[str]
    version: str
    residues: Mapping[str, Decimal]


def whole(path: Path, format: str = "focus") -> Whole:
    """All lines of one file, and per measure what rounding took off, over all accounts and periods."""
    file = reader(format).open_bill(path)
    lines = pa.Table.from_batches(list(file.batches()), schema=LINE)
    lost: dict[str, Decimal] = {}
    for measures in file.residues.values():
        for measure, amount in measures.items():
            lost[measure] = EXACT.add(lost.get(measure, Decimal(0)), amount)
    return Whole(lines, file.absent, file.warnings, file.version, lost)


def stored_lines(warehouse: Warehouse) -> list[dict[str, Any]]:
    """The lines of every delivery on record, in force or not."""
    known = warehouse.rows("bill_deliveries")
    named = [(scope_of(row["account"], row["period"]), row["delivery_id"]) for row in known]
    tables = {"billing_lines": named}
    found: list[dict[str, Any]] = warehouse.query(
        "SELECT * FROM billing_lines ORDER BY delivery_id, line", tables=tables, versions=tables
    ).to_pylist()
    return found


def ledger_rows(warehouse: Warehouse, period: str | None = None) -> list[dict[str, Any]]:
    """The parts of all ledgers in force, of one period or of all."""
    rows: list[dict[str, Any]] = warehouse.query("SELECT * FROM cost_ledger", tables=["cost_ledger"]).to_pylist()
    return [row for row in rows if period in (None, row["period"])]


def past_run(
    warehouse: Warehouse,
    run_id: str,
    *,
    model: str = "fraud",
    stage: str = "training",
    resource: str = "gpu-1",
    start: datetime = NOON,
    hours: float = 1,
    share: int = 1000,
    **more: Any,
) -> None:
    """A run that has ended, and its hold."""
    end = start + timedelta(hours=hours)
    record = {
        "run_id": run_id, "model": model, "stage": stage, "purpose": "batch", "started_at": start, "ended_at": end,
        "status": "succeeded",
    }  # fmt: skip
    warehouse.append("run_records", [{**record, **more}])
    hold = {"run_id": run_id, "resource_id": resource, "start": start, "end": end, "share_milli": share}
    warehouse.append("occupancy", [hold])


def two_models(**more: Any) -> Settings:
    """Settings with a recommendation and a scoring model, and one pool of each market."""
    trainer = {"family": "als"}
    common = {"first_day": "2026-03-01", "trainer": trainer, "baseline": trainer}
    models = {
        "recs": {**common, "task": "recommendation", "outcome": {"unit": "added_clicks"}},
        "fraud": {**common, "task": "scoring", "alerts_per_day": 5, "outcome": {"unit": "fraud_caught"},
                  "windows": {"label_delay_days": 7}},
    }  # fmt: skip
    for block in models.values():
        block["clock"] = {"origin": "2026-04-01T00:00:00Z", "rate": 1}
    pools = [
        {"name": "spot", "market": "spot", "price_per_hour": "1.0"},
        {"name": "steady", "market": "on_demand", "price_per_hour": "3.0"},
    ]
    data = {"version": 1, "name": "test", "models": models, "capacity": {"pools": pools}, **more}
    return Settings.model_validate(data)


def money(text: str) -> Decimal:
    return Decimal(text)
