"""Small cost and usage reports to write tests with, made after the public dictionary of CUR 2.0."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
PAYER, USER = "001122334455", "998877665544"
PLAN = "arn:aws:savingsplans::001122334455:savingsplan/sp-1"

_TEXT, _DOUBLE, _MAP = pa.string(), pa.float64(), pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("ms")
#: Columns of CUR 2.0 by type, as the dictionary has them; cost columns are doubles.
DICTIONARY = pa.schema(
    {
        **dict.fromkeys(["bill_bill_type", "bill_invoice_id", "bill_payer_account_id", "identity_line_item_id"], _TEXT),
        **dict.fromkeys(["bill_billing_period_start_date", "bill_billing_period_end_date"], _TIME),
        **dict.fromkeys(["identity_time_interval", "line_item_usage_account_id", "line_item_line_item_type"], _TEXT),
        **dict.fromkeys(["line_item_usage_start_date", "line_item_usage_end_date"], _TIME),
        **dict.fromkeys(["line_item_product_code", "line_item_usage_type", "line_item_resource_id"], _TEXT),
        **dict.fromkeys(["line_item_currency_code", "line_item_line_item_description", "product_servicecode"], _TEXT),
        **dict.fromkeys(["line_item_unblended_cost", "line_item_blended_cost", "line_item_usage_amount"], _DOUBLE),
        **dict.fromkeys(["line_item_net_unblended_cost", "pricing_public_on_demand_cost"], _DOUBLE),
        **dict.fromkeys(["pricing_purchase_option", "pricing_unit", "product_region_code", "product_sku"], _TEXT),
        **dict.fromkeys(["resource_tags", "cost_category", "product"], _MAP),
        "discount": pa.map_(pa.string(), _DOUBLE),
        **dict.fromkeys(["reservation_reservation_a_r_n", "savings_plan_savings_plan_a_r_n"], _TEXT),
        **dict.fromkeys(["reservation_effective_cost", "reservation_unused_recurring_fee"], _DOUBLE),
        "reservation_unused_amortized_upfront_fee_for_billing_period": _DOUBLE,
        **dict.fromkeys(["savings_plan_savings_plan_effective_cost", "savings_plan_used_commitment"], _DOUBLE),
        "savings_plan_total_commitment_to_date": _DOUBLE,
        "split_line_item_parent_resource_id": _TEXT,
        **dict.fromkeys(["split_line_item_split_cost", "split_line_item_unused_cost"], _DOUBLE),
    }
)
_LEGACY = {
    "savings_plan_savings_plan_a_r_n": "savingsPlan/SavingsPlanARN",
    "reservation_reservation_a_r_n": "reservation/ReservationARN",
    "pricing_public_on_demand_cost": "pricing/publicOnDemandCost",
}
_GROUPS = ("bill", "identity", "line_item", "pricing", "product", "reservation", "savings_plan", "split_line_item")


class Report(Protocol):
    """What a reader makes of a file."""

    residues: dict[tuple[str, str], dict[str, Decimal]]
    warnings: list[str]
    absent: dict[str, str]

    def batches(self) -> Iterable[pa.RecordBatch]: ...


def cur_line(cost: float | None, kind: str = "Usage", *, hours: float = 1, **more: Any) -> dict[str, Any]:
    """One line of March 2026; names without a group are those of ``line_item_``."""
    end = NOON + timedelta(hours=hours)
    row: dict[str, Any] = {
        "bill_payer_account_id": PAYER, "bill_billing_period_start_date": datetime(2026, 3, 1),
        "bill_invoice_id": "", "bill_bill_type": "Anniversary", "line_item_usage_account_id": USER,
        "identity_time_interval": f"{NOON:%Y-%m-%dT%H:%M:%SZ}/{end:%Y-%m-%dT%H:%M:%SZ}",
        "line_item_usage_start_date": NOON.replace(tzinfo=None), "line_item_usage_end_date": end.replace(tzinfo=None),
        "line_item_line_item_type": kind, "line_item_currency_code": "USD", "line_item_unblended_cost": cost,
        "line_item_product_code": "AmazonEC2", "product_servicecode": "AmazonEC2", "line_item_usage_amount": hours,
        "line_item_usage_type": "EU-BoxUsage:p3.2xlarge", "line_item_resource_id": "i-0abc",
    }  # fmt: skip
    return row | {name if name in DICTIONARY.names else f"line_item_{name}": value for name, value in more.items()}


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], *, without: Sequence[str] = ()) -> Path:
    """A CUR 2.0 data export of the rows, with the types of the dictionary."""
    fields = [field for field in DICTIONARY if field.name not in without]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], pa.schema(fields)), path)
    return path


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, without: Sequence[str] = ()) -> Path:
    """The same as CSV, plain or gzip: maps are JSON, times ISO texts."""
    return _write(path, [name for name in DICTIONARY.names if name not in without], rows)


def write_legacy(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A legacy report of the rows: slash names, a column for each tag key, only columns that some row has."""
    tags = sorted({key for row in rows for key in row.get("resource_tags") or {}})
    used = [name for name in DICTIONARY.names if any(row.get(name) is not None for row in rows)]
    named = {name: slash_name(name) for name in used if not pa.types.is_map(DICTIONARY.field(name).type)}
    made = []
    for row in rows:
        plain = {theirs: row.get(name) for name, theirs in named.items()}
        values = row.get("resource_tags") or {}
        made.append(plain | {f"resourceTags/{key.replace('_', ':', 1)}": values.get(key) for key in tags})
    return _write(path, list(made[0]), made)


def slash_name(name: str) -> str:
    """``lineItem/UnblendedCost`` of ``line_item_unblended_cost``."""
    group = next(group for group in _GROUPS if name.startswith(f"{group}_"))
    words = name.removeprefix(f"{group}_").split("_")
    first = group.split("_")
    camel = "".join(word.capitalize() for word in words)
    return _LEGACY.get(name, f"{first[0]}{''.join(word.capitalize() for word in first[1:])}/{camel}")


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, columns, extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _text(row.get(name)) for name in columns})
    data = stream.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.000Z}"
    if isinstance(value, dict):
        return json.dumps(value)
    return "" if value is None else re.sub(r"^-0\.0$", "0.0", str(value))


def lines_of(report: Report) -> list[dict[str, Any]]:
    """All lines of a report."""
    return [line for batch in report.batches() for line in batch.to_pylist()]


def total(lines: Sequence[Mapping[str, Any]], measure: str = "billed") -> Decimal:
    return sum((line[measure] for line in lines), Decimal(0))
