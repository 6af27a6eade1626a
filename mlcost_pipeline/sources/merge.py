"""Rows of one ingest against each other and against what is stored: what is said twice is kept once and counted."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from mlcost_pipeline.tables import TableSchema

_ROW = "__row"


def drop_repeated(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, dict[str, int]]:
    """One row a key: equal rows are ``duplicate``; of different rows with one key the last in file order stays, the
    earlier are ``superseded``."""
    if rows.num_rows == 0:
        return rows, {}
    keys = ", ".join(f'"{name}"' for name in schema.key)
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    with duckdb.connect() as connection:
        connection.register("incoming", numbered)
        last = connection.sql(
            f"SELECT max({_ROW}) AS place FROM incoming GROUP BY {keys} ORDER BY place"
        ).to_arrow_table()
        if last.num_rows == rows.num_rows:
            return rows, {}
        different = connection.sql(
            f"SELECT count(*) FROM (SELECT DISTINCT * EXCLUDE ({_ROW}) FROM incoming)"
        ).fetchall()[0][0]
    dropped = {"duplicate": rows.num_rows - different, "superseded": different - last.num_rows}
    return rows.take(last.column("place")), {reason: count for reason, count in dropped.items() if count}


def drop_stored(rows: pa.Table, stored: pa.Table, schema: TableSchema) -> tuple[pa.Table, dict[str, int]]:
    """Rows that the table holds already, equal in every column, are ``already_stored``."""
    if rows.num_rows == 0 or stored.num_rows == 0 or not set(rows.column_names) <= set(stored.column_names):
        return rows, {}
    keys = " AND ".join(f's."{name}" = i."{name}"' for name in schema.key)
    rest = [name for name in rows.column_names if name not in schema.key]
    same = "".join(f' AND s."{name}" IS NOT DISTINCT FROM i."{name}"' for name in rest)
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    with duckdb.connect() as connection:
        connection.register("incoming", numbered)
        connection.register("stored", stored)
        new = connection.sql(
            f"SELECT {_ROW} AS place FROM incoming i "
            f"WHERE NOT EXISTS (SELECT 1 FROM stored s WHERE {keys}{same}) ORDER BY place"
        ).to_arrow_table()
    known = rows.num_rows - new.num_rows
    return rows.take(new.column("place")), ({"already_stored": known} if known else {})
