"""Slots: the lines of one delivery that are equal in all that attribution looks at, summed exactly.

Attribution works on slots and not on lines: a month of hourly lines of three usage types has far fewer of them. Slots
are made once a delivery. A slot's id is a hash of what makes it one, so it is the same from one delivery to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Context, Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.tables import TEXT

SCALE = 18
MEASURES = ("billed", "effective", "list")
_EXACT = Context(prec=80)

#: Tags by which a charge names its run, model or stage; a provider's prefix (``user:``, ``user_``) is taken off first.
TAG_KEYS = {
    "tag_run": ("mlcost_run", "mlcost_run_id"), "tag_model": ("mlcost_model", "model"),
    "tag_stage": ("mlcost_stage", "stage"),
}  # fmt: skip


def to_units(amount: Decimal) -> int:
    """Money → integer of 1e-18."""
    return int(amount.scaleb(SCALE, context=_EXACT))


def from_units(units: int) -> Decimal:
    """Integer of 1e-18 → money of scale 18."""
    return Decimal(units).scaleb(-SCALE, context=_EXACT)


def money_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The exact sum of amounts of scale 18, whatever the ambient decimal precision."""
    return from_units(sum(to_units(amount) for amount in amounts))


#: Equal in all lines of a slot, so that any of them has it.
_SAME = (
    "resource_id", "charge_start", "charge_end", "category", "charge_class", "service", "tags_text", *TAG_KEYS,
    "invoice_id", "commitment_status", "allocation", "currency", "bucket", "account", "period",
)  # fmt: skip
_SUMMED = """
SELECT slot_id, min(row) AS row, count(*) AS lines, sum(billed) AS billed, sum(effective) AS effective,
  sum(list) AS list FROM keyed GROUP BY slot_id ORDER BY slot_id"""


def grouped(connection: duckdb.DuckDBPyConnection, lines: pa.Table) -> pa.Table:
    """Slots of lines, by id, in the columns of ``billing_slots`` but the delivery's; replaced origins do not count.

    Only ids and amounts go through the database: what all lines of a slot share is taken from the first of them.
    """
    lines = lines.filter(pc.not_equal(lines["allocation"], "replaced"))
    keyed = lines.select(["slot_id", *MEASURES]).append_column("row", pa.array(np.arange(lines.num_rows)))
    connection.register("keyed", keyed)
    made = connection.sql(_SUMMED).to_arrow_table()
    connection.unregister("keyed")
    shared = lines.select(list(_SAME)).take(made["row"])
    for name in ("slot_id", "lines", *MEASURES):
        shared = shared.append_column(name, made[name])
    return shared


def with_tags(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Lines with ``tag_run``, ``tag_model`` and ``tag_stage``: what their tags name, in our words."""
    encoded = lines.column("tags_text").dictionary_encode()
    named = [_named(text) for text in encoded.dictionary.to_pylist()]
    for number, name in enumerate(TAG_KEYS):
        column = pa.array([found[number] for found in named], TEXT).take(encoded.indices)
        lines = lines.append_column(name, column)
    return lines


def _named(tags_text: str) -> list[str | None]:
    plain: dict[str, str] = {}
    for key, value in sorted(json.loads(tags_text).items()):
        name = key.lower().rpartition(":")[2].removeprefix("user_")
        if value.strip():
            plain.setdefault(name, value.strip())
    return [next((plain[key] for key in keys if key in plain), None) for keys in TAG_KEYS.values()]


def as_text(columns: tuple[str, ...]) -> str:
    """SQL of a text in which null, blank and shifted columns all differ."""
    return "concat_ws(chr(31), " + ", ".join(f"coalesce('+' || CAST({c} AS VARCHAR), '-')" for c in columns) + ")"
