"""Ledgers written by hand: what each part of a month's bill was given to, so that a test can add it up in its head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.deliveries import account_key, scope_of
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, PERIOD


def part(
    effective: str, *, run: str | None = None, model: str | None = "fraud", stage: str | None = "training",
    method: str = "direct", billed: str | None = None, hours: float = 0, resource: str = "gpu-1", **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A part of the ledger, and the device hours billed for it."""
    return {
        "method": method, "run_id": run, "model": model, "stage": stage, "effective": Decimal(effective),
        "billed": Decimal(effective if billed is None else billed), "hours": hours, "resource_id": resource, **more,
    }  # fmt: skip


def write_ledger(
    warehouse: Warehouse, *parts: Mapping[str, Any], period: str = PERIOD, account: str = ACCOUNT,
    currency: str = "USD", state: str = "final",
) -> None:  # fmt: skip
    """A bill of one line a part, taken over and attributed as `parts` say; a second one of a month replaces the first.

    The delivery and its ledger are those that the real importer and ledger would leave, whole and reconciled.
    """
    delivery_id = f"d-{account}-{period}-{len(parts)}-{sum(row['effective'] for row in parts)}-{state}"
    scope, version = scope_of(account, period), f"l-{delivery_id}"
    start = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
    common = {
        "delivery_id": delivery_id, "account": account, "period": period, "currency": currency, "charge_start": start,
        "charge_end": start, "category": "Usage", "allocation": "origin", "bucket": 0, "lines": 1,
        "ledger_version": version, "part": 0,
    }  # fmt: skip
    rows = [{**common, **row, "slot_id": f"{number:06d}", "line": number} for number, row in enumerate(parts)]
    totals = {f"{name}_total": sum((row[name] for row in parts), Decimal(0)) for name in ("billed", "effective")}
    warehouse.append("bill_deliveries", [{
        "delivery_id": delivery_id, "account": account, "period": period, "currency": currency, **totals,
        "provider": "Cloudy", "format": "focus 1.0", "received_at": start, "manifest_hash": "-",
        "rows": len(rows), "slots": len(rows), "billed_residue": Decimal(0), "effective_residue": Decimal(0),
        "state": state, "source": "by hand",
    }])  # fmt: skip
    device = [
        {**common, **row, "part": number, "billed_seconds": row["hours"] * 3600.0}
        for number, row in enumerate(parts) if row["hours"]
    ]  # fmt: skip
    for table, version_of_it, found in (
        ("billing_lines", delivery_id, rows), ("billing_slots", delivery_id, rows), ("device_time", version, device),
        ("cost_ledger", version, rows),
    ):  # fmt: skip
        warehouse.write_version(table, scope, version_of_it, _of_table(table, found))
    pointer = {"delivery_id": delivery_id, "received_at": start.isoformat(), "history": [delivery_id]}
    warehouse.state.update(f"bills/{account_key(account)}/{period}", lambda _: pointer)
    warehouse.point("device_time", scope, version)
    warehouse.point("cost_ledger", scope, version)


def _of_table(table: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    columns = TABLES[table].columns
    return [{name: row.get(name) for name in columns} for row in rows]
