"""Charges that a provider split into allocated parts, and that are in the bill as a whole too: only the parts count.

FOCUS 1.3 (split cost allocation): allocated charges have the dimensions of their origin charge, and its metrics as
their sum. A bill holds the parts in place of the origin; one that holds both would be counted twice. An origin is left
out only where the parts add up to it: what merely looks like it counts, and is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.exact import ROUND
from mlcost_pipeline.cost.slots import MEASURES, as_text
from mlcost_pipeline.cost.sorted_files import SortedFiles
from mlcost_pipeline.tables import INTEGER, TEXT

_CHARGE = (
    "resource_id_raw", "epoch_us(charge_start)", "epoch_us(charge_end)", "category", "charge_class",
    "pricing_category", "commitment_id", "commitment_status", "sub_account", "region", "service", "sku",
    "description", "quantity_unit", "invoice_id",
)  # fmt: skip
_HASH = f"md5({as_text(_CHARGE)})"
_SUMMED = ", ".join(
    f"{measure} FILTER (WHERE allocation = '{kind}') AS {prefix}{name}"
    for prefix, kind in (("", "origin"), ("parts_", "allocated"))
    for name, measure in (*((name, f"sum({name})") for name in MEASURES), ("n", "count(*)"))
)
# Doubles are rounded one by one, so sums of them may differ by as many roundings.
_NEAR = " AND ".join(
    f"coalesce(abs({name} - parts_{name}) <= 1e-12::DECIMAL(38, 18) * (n + parts_n), "
    f"{name} IS NULL AND parts_{name} IS NULL)"
    for name in MEASURES
)
_DOUBLED = f"""
SELECT charge, buckets, n, billed, effective, list, {_NEAR} AS whole
FROM (
  SELECT charge, list(DISTINCT bucket) FILTER (WHERE allocation = 'origin') AS buckets, {_SUMMED}
  FROM charge_amounts GROUP BY charge
) WHERE n > 0 AND parts_n > 0"""
_KEY = ("", "")
_CHARGES = pa.schema([("charge", TEXT), ("bucket", INTEGER)])


@dataclass
class Doubled:
    """Origin charges that are in a bill as their parts too: `n` of them, and their sums by measure.

    `charges` holds their hashes and the buckets that hold them. `unsure` counts origins that look like those of parts
    which do not add up to them.
    """

    charges: pa.Table
    n: int = 0
    unsure: int = 0
    sums: dict[str, Decimal] = field(default_factory=lambda: dict.fromkeys(MEASURES, Decimal(0)))


def mark(connection: duckdb.DuckDBPyConnection, lines: pa.Table, doubled: Doubled, bucket: int) -> pa.Table:
    """The lines of a bucket, with `allocation` replaced where they are doubled origins."""
    charges = doubled.charges.filter(pc.equal(doubled.charges["bucket"], bucket))
    if not charges.num_rows:
        return lines
    connection.register("charge_lines", lines)
    connection.register("doubled", charges)
    found = connection.sql(
        f"SELECT line FROM charge_lines WHERE allocation = 'origin' AND {_HASH} IN (SELECT charge FROM doubled)"
    ).to_arrow_table()["line"]
    for name in ("charge_lines", "doubled"):
        connection.unregister(name)
    replaced = pc.is_in(lines["line"], value_set=found.combine_chunks())
    marked = pc.if_else(replaced, pa.scalar("replaced", TEXT), lines["allocation"])
    return lines.set_column(lines.schema.get_field_index("allocation"), "allocation", marked)


def find_doubled(
    connection: duckdb.DuckDBPyConnection, lines: Iterator[pa.RecordBatch], folder: Path, buckets: int
) -> Doubled:
    """The doubled charges among the lines of one account and period, found a bucket of charges at a time.

    `folder` takes a copy of the amounts, sorted out by charge, so that memory holds one bucket of `buckets`.
    """
    folder.mkdir()
    by_charge = SortedFiles(folder)
    for batch in lines:
        connection.register("charge_lines", pa.Table.from_batches([batch]))
        amounts = connection.sql(
            f"SELECT *, (md5_number_lower(charge) % {buckets})::BIGINT AS part FROM ("
            f"SELECT {_HASH} AS charge, bucket, allocation, {', '.join(MEASURES)} FROM charge_lines) ORDER BY part"
        ).to_arrow_table()
        connection.unregister("charge_lines")
        runs, start = pc.run_end_encode(amounts["part"].combine_chunks()), 0
        for part, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            by_charge.add(_KEY, part, amounts.slice(start, end - start))
            start = end
    by_charge.close()
    return _collected(connection, by_charge)


def _collected(connection: duckdb.DuckDBPyConnection, by_charge: SortedFiles) -> Doubled:
    made, hashes = Doubled(_CHARGES.empty_table()), list[pa.Table]()
    for part in by_charge.buckets(_KEY):
        connection.register("charge_amounts", by_charge.reader(_KEY, part))
        found = connection.sql(_DOUBLED).to_arrow_table()
        connection.unregister("charge_amounts")
        made.unsure += pc.sum(found["n"].filter(pc.invert(found["whole"]))).as_py() or 0
        whole = found.filter(found["whole"])
        made.n += pc.sum(whole["n"]).as_py() or 0
        for name in MEASURES:
            made.sums[name] = ROUND.add(made.sums[name], pc.sum(whole[name]).as_py() or Decimal(0))
        buckets = whole["buckets"].combine_chunks()
        charges = whole["charge"].take(pc.list_parent_indices(buckets))
        hashes.append(pa.table([charges, pc.list_flatten(buckets)], names=_CHARGES.names).cast(_CHARGES))
    made.charges = pa.concat_tables([made.charges, *hashes])
    return made
