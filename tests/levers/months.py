"""A month of training and serving with its bill, small enough to be added up by hand.

Job n trains for two hours on ``gpu-1`` at 3 an hour; the endpoint ``cpu-1`` is held for 100 hours at 1 an hour.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

JUNE = datetime(2025, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def run(
    warehouse: Warehouse, run_id: str, resource: str, start: datetime, hours: float, busy: float | None, **more: Any
) -> None:
    """One ended run on record; `busy` in hours, None: nobody measured it."""
    record = {
        "run_id": run_id, "model": "shop", "stage": "training", "purpose": "retrain", "started_at": start,
        "ended_at": start + hours * HOUR, "status": "succeeded", "market": "on_demand", "price": Decimal(3),
        "busy_seconds": None if busy is None else busy * 3600, "busy_metric": None if busy is None else "gpu_busy",
        "busy_coverage": None if busy is None else 1.0, **more,
    }  # fmt: skip
    warehouse.append("run_records", [record])
    hold = {"run_id": run_id, "resource_id": resource, "start": start, "end": record["ended_at"], "share_milli": 1000}
    warehouse.append("occupancy", [hold])


def month(
    warehouse: Warehouse, settings: Settings, folder: Path, *, jobs: list[str], busy: float | None = 0.5,
    serving_busy: float | None = 10.0, market: str = "on_demand",
) -> None:  # fmt: skip
    """Runs, resources and the June bill; the ledger is built and in force."""
    for resource, kind in (("gpu-1", "gpu"), ("cpu-1", "cpu")):
        register_resource(warehouse, resource, kind, 1000, kind, JUNE - timedelta(days=30))
    lines = []
    for number, job in enumerate(jobs):
        start = JUNE + number * 24 * HOUR
        run(warehouse, f"{job}/1", "gpu-1", start, 2, busy, job_id=job, attempt=1, market=market)
        lines += [("gpu-1", start, 3), ("gpu-1", start + HOUR, 3)]
    run(
        warehouse, "endpoint", "cpu-1", JUNE, 100, serving_busy, stage="serving", purpose="online", price=None,
        market=None,
    )  # fmt: skip
    lines += [("cpu-1", JUNE + n * HOUR, 1) for n in range(100)]
    _bill(folder / "june.csv", lines)
    (found,) = import_bill(warehouse, folder / "june.csv")
    build_ledger(warehouse, settings, found.account, found.period)


def _bill(path: Path, lines: list[tuple[str, datetime, int]]) -> None:
    columns = (
        "BillingAccountId", "BillingPeriodStart", "BillingCurrency", "ChargeCategory", "ChargePeriodStart",
        "ChargePeriodEnd", "BilledCost", "EffectiveCost", "ResourceId", "ConsumedQuantity", "ConsumedUnit", "InvoiceId",
    )  # fmt: skip
    with path.open("w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(columns)
        for resource, start, price in lines:
            at, end = start.strftime("%Y-%m-%dT%H:%M:%SZ"), (start + HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")
            out.writerow(
                ["acct", "2025-06-01T00:00:00Z", "USD", "Usage", at, end, price, price, resource, 1, "Hours", "inv"]
            )
