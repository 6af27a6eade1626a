"""The cloud's monthly bill for the shop, as FOCUS files. It sees what a cloud sees, recorded holds and resources, and
adds what real bills hold: lines without tags or resource, a stranger's resource, a credit, tax, a month restated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

from mlcost_pipeline.demo.cloud import Charge, Cloud, charges
from mlcost_pipeline.demo.files import write_atomically, write_csv
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.planted import Extra, Planted, planted_of
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse

ACCOUNT = "shop-ml"
COLUMNS = (
    "BillingAccountId", "BillingAccountName", "BillingPeriodStart", "BillingPeriodEnd", "BillingCurrency",
    "ProviderName", "InvoiceIssuerName", "InvoiceId", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory",
    "ChargeClass",
    "ChargeDescription", "ServiceCategory", "ServiceName", "SkuId", "ResourceId", "Tags", "BilledCost", "EffectiveCost",
    "ListCost", "ContractedCost", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit",
)  # fmt: skip
_GPU_KINDS = ("gpu", "gpu4")


def bill_period(warehouse: Warehouse, shop: Path, period: str, *, until: datetime | None = None) -> list[Path]:
    """Write the bill of one month (``YYYY-MM``) to ``<shop>/bills/<month>.csv``; the same records give the same bytes.

    A cloud overwrites the file of a month that it restates: with the third month the second comes again, corrected.

    Args:
        until: what lies after is not billed yet; by default the end of the last recorded hold. A month that ends
            before it has an invoice.

    Returns:
        the files written: the month's, and that of the month restated with it.

    Raises:
        BillError: nothing is recorded for that month.
    """
    plan, cloud = Plan.load(shop), read_cloud(shop)
    occupancy, resources = warehouse.rows("occupancy"), warehouse.rows("resources")
    if until is None:
        until = max((row["end"] for row in occupancy if row["end"] is not None), default=None)
        until = until and (until + timedelta(hours=1, microseconds=-1)).replace(minute=0, second=0, microsecond=0)
    planted = planted_of(plan, period)
    due = [(planted, 2 if _books(shop, planted, 2).exists() else 1)]
    if planted.restates is not None:
        due.append((planted_of(plan, planted.restates), 2))
    return [_write(shop, cloud, occupancy, resources, month, until, delivery=number) for month, number in due]


def read_cloud(shop: Path) -> Cloud:
    """The cloud's price list and the owners' tags, from ``<shop>/cloud.json``."""
    value = json.loads((shop / "cloud.json").read_text())
    prices, pools = ({name: Decimal(text) for name, text in value[part].items()} for part in ("prices", "pools"))
    return Cloud(prices, pools, frozenset(value["standing"]), value["tags"])


def _write(
    shop: Path, cloud: Cloud, occupancy: Sequence[Mapping[str, Any]], resources: Sequence[Mapping[str, Any]],
    planted: Planted, until: datetime | None, *, delivery: int,
) -> Path:  # fmt: skip
    end = planted.end if until is None else min(planted.end, until)
    usage = charges(cloud, occupancy, resources, planted.start, end)
    if not usage:
        raise BillError(f"{shop}: no resource stood and no run is recorded in {planted.period}; nothing to bill")
    if delivery == 1:
        usage = [planted.misprice(charge) for charge in usage]
    invoice = f"INV-{planted.period}" if end == planted.end else ""
    total = sum((charge.amount for charge in usage), Decimal(0))
    extras = planted.extras(total, end)
    rows = [_usage_row(cloud, planted, charge, invoice) for charge in usage]
    rows += [_extra_row(planted, extra, invoice) for extra in extras]
    _write_books(_books(shop, planted, delivery), usage, extras)
    return write_csv(shop / "bills" / f"{planted.period}.csv", COLUMNS, rows)


def _books(shop: Path, planted: Planted, delivery: int) -> Path:
    return shop / "books" / f"{planted.period}.delivery-{delivery}.json"


def _usage_row(cloud: Cloud, planted: Planted, charge: Charge, invoice: str) -> list[Any]:
    gpu = charge.kind in _GPU_KINDS
    hours = (Decimal(charge.seconds) / 3600).quantize(Decimal("0.0000000001"), rounding=ROUND_HALF_EVEN)
    tags = dict(cloud.tags.get(charge.resource_id, {}))
    if planted.tagged(charge):
        if charge.resource_id not in cloud.standing and len(charge.runs) == 1:
            tags["mlcost_run"] = charge.runs[0]
    else:
        tags = {}
    return _row(
        planted, charge.start, charge.end, "Usage", f"{charge.kind} instance, {hours.normalize():f} h", "Compute",
        "GPU instances" if gpu else "CPU instances", charge.kind, charge.resource_id, tags, charge.amount, hours,
        invoice,
    )  # fmt: skip


def _extra_row(planted: Planted, extra: Extra, invoice: str) -> list[Any]:
    return _row(
        planted, extra.start, extra.end, extra.category, extra.description, extra.service_category, extra.service, None,
        extra.resource_id, {}, extra.amount, None, invoice,
    )  # fmt: skip


def _row(
    planted: Planted, start: datetime, end: datetime, category: str, description: str, service_category: str,
    service: str, sku: str | None, resource_id: str | None, tags: Mapping[str, str], amount: Decimal,
    hours: Decimal | None, invoice: str,
) -> list[Any]:  # fmt: skip
    cost = f"{amount:f}"
    unit = None if hours is None else "Hours"
    quantity = None if hours is None else f"{hours:f}"
    return [
        ACCOUNT, "Shop, machine learning", _stamp(planted.start), _stamp(planted.end), "USD", "Simulated Cloud",
        "Simulated Cloud", invoice, _stamp(start), _stamp(end), category, None, description, service_category, service,
        sku, resource_id, json.dumps(dict(tags), sort_keys=True) if tags else None, cost, cost, cost, cost, quantity,
        unit, quantity, unit,
    ]  # fmt: skip


def _write_books(file: Path, usage: Sequence[Charge], extras: Sequence[Extra]) -> None:
    """What the biller itself believes that it charged: a sum a resource, a sum a kind of extra, the total."""
    by_resource: dict[str, Decimal] = {}
    for charge in usage:
        by_resource[charge.resource_id] = by_resource.get(charge.resource_id, Decimal(0)) + charge.amount
    by_extra: dict[str, Decimal] = {}
    for extra in extras:
        by_extra[extra.name] = by_extra.get(extra.name, Decimal(0)) + extra.amount
    total = sum(by_resource.values(), Decimal(0)) + sum(by_extra.values(), Decimal(0))
    books = {
        "lines": len(usage) + len(extras), "total": f"{total:f}",
        "usage": {key: f"{amount:f}" for key, amount in sorted(by_resource.items())},
        "extras": {key: f"{amount:f}" for key, amount in sorted(by_extra.items())},
    }  # fmt: skip
    write_atomically(file, json.dumps(books, indent=1, sort_keys=True).encode() + b"\n")


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
