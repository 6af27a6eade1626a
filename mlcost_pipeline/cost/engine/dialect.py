"""What is DuckDB's own: 128-bit integers of 1e-18, division that rounds down, texts of JSON. Nothing else may be.

Engines differ here: DuckDB's ``//`` truncates where others floor, which moves credits; its HUGEINT raises on overflow
where others wrap; a decimal divided becomes a double.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from mlcost_pipeline.settings import ChargeMatch

#: Products beyond this are refused; the margin keeps rounding up from overflowing.
LIMIT = 2**127 - 2**100
#: Microseconds of a step of time: as fine as an amount allows.
GRIDS = (1, 1_000, 1_000_000)
DAY_US = 86_400_000_000

_E18 = "1000000000000000000"
_MACROS = (
    f"units(x) AS trunc(x)::HUGEINT * {_E18}::HUGEINT "
    f"+ CAST(CAST(x - trunc(x) AS DECIMAL(19, 18)) * {_E18}::DECIMAL(19, 0) AS HUGEINT)",
    f"money(u) AS CAST(CAST(u // {_E18}::HUGEINT AS DECIMAL(20, 0)) AS DECIMAL(38, 18)) "
    f"+ CAST(u % {_E18}::HUGEINT AS DECIMAL(19, 0)) * 0.000000000000000001::DECIMAL(19, 18)",
    "floor_div(x, d) AS CASE WHEN x >= 0 THEN x // d ELSE -((d - 1 - x) // d) END",
    "share_of(u, upto, weight, d) AS floor_div(u * upto, d) - floor_div(u * (upto - weight), d)",
)


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Define the macros of this module on a connection: ``units``, ``money``, ``floor_div``, ``share_of``."""
    for macro in _MACROS:
        connection.execute(f"CREATE OR REPLACE TEMP MACRO {macro}")


#: How Arrow says that 16 bytes are a HUGEINT (DuckDB's extension type, as its lossless export writes it).
_HUGEINT = {
    "ARROW:extension:name": "arrow.opaque",
    "ARROW:extension:metadata": '{"type_name":"hugeint","vendor_name":"DuckDB"}',
}


def as_units(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of DECIMAL(38, 18) as the HUGEINT that they are in memory: nothing is copied, let alone divided."""
    return _reread(table, columns, pa.decimal128(38, 18), pa.binary(16), _HUGEINT)


def as_money(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns of HUGEINT units of 1e-18, as DuckDB exports them, as money."""
    return _reread(table, columns, pa.decimal128(38, 0), pa.decimal128(38, 18), None)


def _reread(
    table: pa.Table, columns: Sequence[str], given: pa.DataType, wanted: pa.DataType, metadata: dict[str, str] | None
) -> pa.Table:
    for name in columns:
        number = table.schema.get_field_index(name)
        column = table.column(number)
        if column.type != given:
            raise TypeError(f"column {name} is {column.type}, not {given}")
        chunks = [pa.Array.from_buffers(wanted, len(c), c.buffers(), offset=c.offset) for c in column.chunks]
        table = table.set_column(number, pa.field(name, wanted, metadata=metadata), pa.chunked_array(chunks, wanted))
    return table


def text(value: str) -> str:
    """A text as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def matches(when: ChargeMatch) -> str:
    """A rule's condition over the columns of ``billing_slots``; texts and tag keys are compared without case.

    A tag key fits with or without the prefix that a provider puts before it (``user:``, ``user_``).
    """
    parts = []
    if when.resource_prefix is not None:
        parts.append(f"starts_with(lower(resource_id), {text(when.resource_prefix.lower())})")
    for column, wanted in (("service", when.service), ("category", when.category)):
        if wanted is not None:
            parts.append(f"lower({column}) = {text(wanted.lower())}")
    for key, value in when.tags.items():
        names = [key, *(f"{prefix}{key}" for prefix in ("user:", "user_"))]
        found = ", ".join(f"json_extract_string(lower(tags_text), {text(_pointer(name))})" for name in names)
        held = f"coalesce({found})"
        parts.append(f"{held} IS NOT NULL" if value == "*" else f"{held} = {text(value.lower())}")
    return "(" + " AND ".join(f"coalesce({part}, false)" for part in parts) + ")"


def _pointer(key: str) -> str:
    return "/" + key.lower().replace("~", "~0").replace("/", "~1")
