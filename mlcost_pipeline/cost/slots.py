"""Slots: the lines of one delivery that are equal in all that attribution looks at, summed exactly.

Attribution works on slots and not on lines: a month of hourly lines of three usage types has far fewer of them.
Amounts are integers of 1e-18 of the currency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal
from typing import Any

import duckdb
import pyarrow as pa

from mlcost_pipeline.warehouse import Warehouse

SCALE = 18
MEASURES = ("billed", "effective", "list")
_EXACT = Context(prec=80)

#: What makes two lines one slot. A slot's id is stable from one delivery of a period to the next.
_SLOT_COLUMNS = (
    "account", "resource_id", "epoch_us(charge_start)", "epoch_us(charge_end)", "category", "charge_class",
    "service", "tags_text", "currency", "invoice_id", "allocation", "list IS NULL",
)  # fmt: skip
_LINE_COLUMNS = (*_SLOT_COLUMNS, "period", "sku", "description", "resource_id_raw", "billed", "effective", "list",
                 "quantity", "quantity_unit", "provider", "period_closed")  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """One slot of one delivery; `list` is None where the provider gave no list price."""

    slot_id: str
    resource_id: str | None
    charge_start: datetime
    charge_end: datetime
    category: str
    tags: Mapping[str, str]
    billed: int
    effective: int
    list: int | None = None

    @property
    def amounts(self) -> dict[str, int]:
        """The measures this slot has, by name."""
        given = {"billed": self.billed, "effective": self.effective, "list": self.list}
        return {name: value for name, value in given.items() if value is not None}


def to_units(amount: Decimal) -> int:
    """Money → integer of 1e-18."""
    return int(amount.scaleb(SCALE, context=_EXACT))


def from_units(units: int) -> Decimal:
    """Integer of 1e-18 → money of scale 18."""
    return Decimal(units).scaleb(-SCALE, context=_EXACT)


def money_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The exact sum of amounts of scale 18, whatever the ambient decimal precision."""
    return from_units(sum(to_units(amount) for amount in amounts))


def with_slots(lines: pa.Table) -> pa.Table:
    """Lines as a reader gives them, with ``slot_id`` and ``line_hash`` (a hash of all that the line says)."""
    connection = duckdb.connect(config={"threads": 2})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("lines", lines)
        sql = (
            f"SELECT *, {_hash(_SLOT_COLUMNS)} AS slot_id, {_hash(_LINE_COLUMNS)} AS line_hash FROM lines ORDER BY line"
        )
        return connection.sql(sql).to_arrow_table()
    finally:
        connection.close()


def slots_of(warehouse: Warehouse, delivery_id: str) -> list[Slot]:
    """The slots of a delivery, by id."""
    found = warehouse.query(
        "SELECT slot_id, any_value(resource_id) AS resource_id, any_value(charge_start) AS charge_start, "
        "any_value(charge_end) AS charge_end, any_value(category) AS category, any_value(tags) AS tags, "
        "sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list "
        "FROM billing_lines WHERE delivery_id = ? GROUP BY slot_id ORDER BY slot_id",
        [delivery_id],
        tables=["billing_lines"],
    )
    return [_slot(row) for row in found.to_pylist()]


def _slot(row: dict[str, Any]) -> Slot:
    amounts = {name: None if row[name] is None else to_units(row[name]) for name in MEASURES}
    return Slot(
        slot_id=row["slot_id"],
        resource_id=row["resource_id"],
        charge_start=row["charge_start"],
        charge_end=row["charge_end"],
        category=row["category"],
        tags=dict(row["tags"] or {}),
        billed=amounts["billed"] or 0,
        effective=amounts["effective"] or 0,
        list=amounts["list"],
    )


def _hash(columns: tuple[str, ...]) -> str:
    """SQL of a hash over columns in which null, blank and shifted columns all differ."""
    parts = ", ".join(f"coalesce('+' || CAST({column} AS VARCHAR), '-')" for column in columns)
    return f"substr(sha256(concat_ws(chr(31), {parts})), 1, 24)"
