"""A warehouse of schema version 1 brought to version 2: its billing lines as whole versions, with their slots.

Every step can be killed and repeated; the version is written last. Ledgers are built again from the bills at the next
tick: those of version 1 name slots that are made in another way, so none of them stays in force.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.bills.contents import LINE
from mlcost_pipeline.cost.bills.convert import tags_json
from mlcost_pipeline.cost.deliveries import scope_of
from mlcost_pipeline.cost.line_ids import identified
from mlcost_pipeline.cost.slots import grouped, with_tags
from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.tables import RECORDED_AT, SCHEMA_VERSION, TABLES
from mlcost_pipeline.warehouse import Warehouse

_BATCH = 131_072


def migrate(root: Path) -> int:
    """Bring the warehouse in `root` to this version's schema; returns how many deliveries were moved.

    Raises:
        WarehouseError: there is no warehouse, or one of a version that this code does not know.
    """
    file = root / "warehouse.json"
    try:
        version = json.loads(file.read_bytes())["schema_version"]
    except (OSError, ValueError, KeyError) as error:
        raise WarehouseError(f"{file}: is no warehouse that can be migrated ({error})") from error
    if version == SCHEMA_VERSION:
        return 0
    if version != 1:
        raise WarehouseError(f"{file}: schema version {version} is newer than this code's {SCHEMA_VERSION}; upgrade")
    warehouse = Warehouse(root, checked=False)
    parts = sorted((warehouse.root / "tables" / "billing_lines").glob("*.parquet"))
    deliveries = warehouse.rows("bill_deliveries")
    for row in deliveries if parts else []:
        _move(warehouse, parts, row)
    for scope in warehouse.scopes("cost_ledger"):
        warehouse.unpoint("cost_ledger", scope)
    shutil.rmtree(warehouse.root / "tables" / "billing_lines", ignore_errors=True)
    warehouse.write_file(file, json.dumps({"schema_version": SCHEMA_VERSION}).encode())
    return len(deliveries)


def _move(warehouse: Warehouse, parts: list[Path], bill: dict[str, Any]) -> None:
    scope, delivery_id = scope_of(bill["account"], bill["period"]), bill["delivery_id"]
    if warehouse.version_file("billing_slots", scope, delivery_id) is not None:
        return  # moved before a kill, which may have come while the parts were being removed
    connection = connect()
    try:
        lines = connection.sql(
            f"SELECT * EXCLUDE ({RECORDED_AT}) FROM read_parquet($files, union_by_name=true) WHERE delivery_id = $id "
            f"QUALIFY row_number() OVER (PARTITION BY line ORDER BY {RECORDED_AT} DESC) = 1 ORDER BY line",
            params={"files": [str(part) for part in parts], "id": delivery_id},
        ).to_arrow_table()
        if lines.num_rows != bill["rows"]:
            raise WarehouseError(
                f"delivery {delivery_id}: has {bill['rows']} lines on record and {lines.num_rows} in "
                f"{parts[0].parent}; restore the missing parts, then migrate again"
            )
        connection.register("given", identified(with_tags(_as_read(lines, bill)), 1))
        made = connection.sql(f"SELECT *, '{delivery_id}' AS delivery_id FROM given ORDER BY line")
        whole = made.to_arrow_table()
        slots = grouped(connection, whole)
        slots = slots.append_column("delivery_id", pa.array([delivery_id] * slots.num_rows, pa.string()))
    finally:
        connection.close()
    warehouse.write_version_batches("billing_lines", scope, delivery_id, _batches("billing_lines", whole))
    warehouse.write_version_batches("billing_slots", scope, delivery_id, _batches("billing_slots", slots))


def _as_read(lines: pa.Table, bill: dict[str, Any]) -> pa.RecordBatch:
    """Stored lines as a reader gives them today; what was not stored then is null."""
    texts = [tags_json(tags) for tags in lines["tags"].to_pylist()]
    told = {
        "tags_text": pa.array(texts, pa.string()),
        "provider": pa.array([bill["provider"]] * len(texts), pa.string()),
    }
    columns = []
    for field in LINE:
        if field.name in told:
            columns.append(told[field.name])
        elif field.name in lines.column_names:
            columns.append(lines[field.name].cast(field.type).combine_chunks())
        else:
            columns.append(pa.nulls(lines.num_rows, field.type))
    table = pa.table(columns, schema=LINE).combine_chunks()
    return table.to_batches()[0]


def _batches(table: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.select(TABLES[table].schema.names).combine_chunks().to_batches(max_chunksize=_BATCH)
