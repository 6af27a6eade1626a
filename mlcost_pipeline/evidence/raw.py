"""The raw rows that a look for faults reads: the evidence window, the rows before it, and every delivered copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.evidence.look import Look
from mlcost_pipeline.tables import RECORDED_AT, TABLES
from mlcost_pipeline.warehouse import Warehouse

#: Columns that come and go with the way a row was made, or that say when and which it is.
NOT_CHECKED = frozenset({"happened_at", "request_id", "currency"})


@dataclass(frozen=True)
class Raw:
    """Rows of one table: `window` is the evidence window, `reference` what came before it."""

    table: str
    key: str
    columns: tuple[str, ...]
    groups: tuple[str, ...]
    window: pa.Table
    reference: pa.Table
    window_start: date

    @property
    def first_day(self) -> date:
        """First day that has rows."""
        days = self.rows_by_day()
        return min(days) if days else self.window_start

    def rows_by_day(self) -> dict[date, int]:
        """Rows on each day (UTC) that has any."""
        counts: dict[date, int] = {}
        for table in (self.reference, self.window):
            days = table.column("happened_at").cast(pa.date32())
            for entry in pc.value_counts(days).to_pylist():
                counts[entry["values"]] = counts.get(entry["values"], 0) + int(entry["counts"])
        return counts

    def window_days(self) -> NDArray[np.int64]:
        """Day number of each window row, from the window's start."""
        days = self.window.column("happened_at").cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.int64)
        return np.asarray(days - (self.window_start - date(1970, 1, 1)).days, dtype=np.int64)

    def keys(self, rows: NDArray[np.bool_]) -> Iterable[str]:
        """Keys of the flagged window rows."""
        chosen: list[str] = self.window.column(self.key).filter(pa.array(rows)).to_pylist()
        return chosen


def read_raw(warehouse: Warehouse, look: Look) -> Raw:
    """Rows of the model's table, without those that earlier evidence put into quarantine."""
    schema = TABLES[look.table]
    key = schema.key[0]
    start = look.window_start - timedelta(days=look.settings.windows.training_days)
    rows = warehouse.query(
        f"SELECT * FROM {look.table} WHERE happened_at >= ? AND happened_at < ? AND {key} NOT IN "
        f'(SELECT row_key FROM quarantine WHERE table_name = ? AND "from" < ?) ORDER BY {key}',
        [start, look.cuts.data_cut, look.table, look.cuts.data_cut],
        tables=[look.table, "quarantine"],
    )
    if rows.schema.field("happened_at").type.tz != "UTC":
        place = rows.schema.get_field_index("happened_at")
        rows = rows.set_column(place, "happened_at", rows.column("happened_at").cast(pa.timestamp("us", tz="UTC")))
    newer = pc.greater_equal(rows.column("happened_at"), pa.scalar(look.window_start, pa.timestamp("us", tz="UTC")))
    columns = tuple(name for name in rows.column_names if name not in {key, *NOT_CHECKED})
    texts = [name for name in columns if not _number(rows.schema.field(name).type)]
    wanted = [*look.settings.slices, "merchant_category", "terminal_id"]
    groups = tuple(name for name in dict.fromkeys(wanted) if name in texts)
    return Raw(
        look.table, key, columns, groups, rows.filter(newer), rows.filter(pc.invert(newer)), look.window_start.date()
    )


def newest_event(warehouse: Warehouse, look: Look) -> datetime | None:
    """The newest event known at the data cut."""
    found = warehouse.query(
        f"SELECT max(happened_at) AS newest FROM {look.table} WHERE happened_at < ?",
        [look.cuts.data_cut],
        tables=[look.table],
    )
    newest: datetime | None = found.column("newest")[0].as_py()
    return newest


def conflicting_ids(warehouse: Warehouse, look: Look) -> list[str]:
    """Ids of window rows that were delivered with different contents, sorted.

    The merged view shows one row a key, so this reads the delivered parts themselves.
    """
    parts = sorted((warehouse.root / "tables" / look.table).glob("*.parquet"))
    if len(parts) == 0:
        return []
    key = TABLES[look.table].key[0]
    connection = duckdb.connect(config={"threads": 2})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        files = [str(part) for part in parts]
        rows = connection.execute(
            f"SELECT {key} FROM (SELECT DISTINCT * EXCLUDE ({RECORDED_AT}) "
            "FROM read_parquet(?, union_by_name=true) WHERE happened_at >= ? AND happened_at < ?) "
            f"WHERE {key} NOT IN (SELECT unnest(?)) "
            f"GROUP BY {key} HAVING count(*) > 1 ORDER BY {key}",
            [files, look.window_start, look.cuts.data_cut, _quarantined(warehouse, look)],
        ).fetchall()
    finally:
        connection.close()
    return [str(row[0]) for row in rows]


def _quarantined(warehouse: Warehouse, look: Look) -> list[str]:
    rows = warehouse.query(
        'SELECT row_key FROM quarantine WHERE table_name = ? AND "from" < ?',
        [look.table, look.cuts.data_cut],
        tables=["quarantine"],
    )
    found: list[str] = rows.column("row_key").to_pylist()
    return found


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
