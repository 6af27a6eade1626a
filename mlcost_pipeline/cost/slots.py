"""Slots: the lines of one delivery that are equal in all that attribution looks at, summed exactly.

Attribution works on slots and not on lines: a month of hourly lines of three usage types has far fewer of them. Slots
are made once a delivery. A slot's id is a hash of what makes it one, so it is the same from one delivery to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Context, Decimal

import pyarrow as pa

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


def grouped(lines: str) -> str:
    """SQL of the slots of lines, in the columns of the table ``billing_slots``; replaced origins count for nothing."""
    same = ", ".join(
        f"any_value({name}) AS {name}"
        for name in (
            "resource_id", "charge_start", "charge_end", "category", "charge_class", "service", "tags_text",
            *TAG_KEYS, "invoice_id", "commitment_status", "allocation", "currency",
        )
    )  # fmt: skip
    return (
        f"SELECT delivery_id, slot_id, bucket, account, period, {same}, count(*) AS lines, sum(billed) AS billed, "
        f"sum(effective) AS effective, sum(list) AS list FROM {lines} WHERE allocation <> 'replaced' "
        "GROUP BY delivery_id, slot_id, bucket, account, period ORDER BY slot_id"
    )


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
