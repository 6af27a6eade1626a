"""A generated month of bill in the stored form of a delivery, with the runs that it is for.

Hourly lines of three usage types for each resource, hour by hour as exports have them and not by resource, with
amounts of eleven and more random decimals: 30 % of resources carry a run tag, 20 % are nodes that runs share
by time, 10 % carry a model tag, the rest nothing; one hour in fifty also has a credit; tax rows span the month, as
they do in published bills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from mlcost_pipeline.cost.line_ids import identified
from mlcost_pipeline.cost.snapshot import HOLDS, RESOURCES, RUNS, Snapshot
from mlcost_pipeline.cost.staging import LINES_OF_A_BUCKET

HOURS, USAGE_TYPES, RUN_COUNT = 744, 3, 100_000
SHARED_RUNS = 60_000
START = datetime(2026, 3, 1, tzinfo=UTC)
COMPRESSION = "zstd"
_START_US = int(START.timestamp() * 1_000_000)
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Shape:
    """How many of what a bill of `rows` lines has."""

    rows: int

    @property
    def resources(self) -> int:
        return max(10, self.rows // (HOURS * USAGE_TYPES))

    @property
    def buckets(self) -> int:
        return max(1, self.rows // LINES_OF_A_BUCKET)


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 2})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def raw_lines(shape: Shape, first: int, last: int) -> str:
    """SQL of the lines of hours first to last - 1, as a reader gives them and `with_tags` completes them."""
    direct_runs = RUN_COUNT - SHARED_RUNS
    return f"""
WITH hours AS (SELECT r, h, u FROM range({shape.resources}) a(r), range({first}, {last}) b(h),
    range({USAGE_TYPES}) c(u) ORDER BY h, hash(r, u)),
kinds AS (SELECT *, r % 10 AS k, CASE WHEN (r * 7 + h) % 50 = 0 AND u = 2 THEN 'Credit'
    WHEN h % 24 = 23 AND u = 2 AND r % 97 = 0 THEN 'Tax' ELSE 'Usage' END AS category FROM hours),
named AS (SELECT *, (r * {HOURS} + h) // 8 % {direct_runs} AS run,
    CASE WHEN category = 'Tax' THEN NULL ELSE 'arn:aws:ec2:eu-west-1:1:instance/i-' || lpad(r::VARCHAR, 12, '0') END
      AS resource_id,
    CASE WHEN category = 'Credit' THEN -1 ELSE 1 END * ((hash(r, h, u) % 1000000000000)::BIGINT + 1) AS amount
  FROM kinds),
tagged AS (SELECT *, CASE WHEN k < 3 AND category <> 'Tax' THEN printf('run-%06d', run) END AS tag_run,
    CASE WHEN k = 5 AND category <> 'Tax' THEN 'recs' END AS tag_model FROM named)
SELECT row_number() OVER () + {first * shape.resources * USAGE_TYPES} AS line, 'acct-1' AS account, '2026-03' AS period,
  make_timestamptz({_START_US}
    + CASE WHEN category = 'Tax' THEN 0 ELSE h END * {_HOUR_US}) AS charge_start,
  make_timestamptz({_START_US}
    + CASE WHEN category = 'Tax' THEN {HOURS} ELSE h + 1 END * {_HOUR_US}) AS charge_end,
  category, NULL::VARCHAR AS charge_class,
  'AmazonEC2' AS service, 'sku-' || u AS sku, 'Usage of type ' || u AS description, resource_id AS resource_id_raw,
  resource_id, CASE WHEN tag_run IS NOT NULL THEN '{{"user:mlcost_run":"' || tag_run || '"}}'
    WHEN tag_model IS NOT NULL THEN '{{"user:mlcost_model":"' || tag_model || '"}}' ELSE '{{}}' END AS tags_text,
  'USD' AS currency, amount * 1e-11::DECIMAL(38, 18) AS billed, amount * 9e-12::DECIMAL(38, 18) AS effective,
  amount * 12e-12::DECIMAL(38, 18) AS list, 1::DECIMAL(38, 18) AS quantity, 'Hours' AS quantity_unit,
  'INV-1' AS invoice_id, 'origin' AS allocation, 'AWS' AS provider, true AS period_closed, NULL::VARCHAR AS sub_account,
  'eu-west-1' AS region, 'Standard' AS pricing_category, NULL::VARCHAR AS commitment_id,
  NULL::VARCHAR AS commitment_status, tag_run, tag_model, NULL::VARCHAR AS tag_stage
FROM tagged"""


def write_lines(folder: Path, shape: Shape) -> None:
    """Lines in a stream a bucket under ``staged/``, as an import stages them, and raw in ``raw.parquet``."""
    connection = connect()
    (folder / "staged").mkdir(parents=True, exist_ok=True)
    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    raw: pq.ParquetWriter | None = None
    for lines in _batches(connection, shape):
        raw = raw or pq.ParquetWriter(folder / "raw.parquet", lines.schema, compression=COMPRESSION)
        raw.write_table(lines)
        connection.register("given", identified(lines.combine_chunks().to_batches()[0], shape.buckets))
        made = connection.sql("FROM given ORDER BY bucket").to_arrow_table()
        connection.register("made", made)
        start = 0
        counts = connection.sql("SELECT bucket, count(*) FROM made GROUP BY 1 ORDER BY 1").fetchall()
        for bucket, count in counts:
            if bucket not in writers:
                place, options = folder / "staged" / f"{bucket:06d}.arrow", pa.ipc.IpcWriteOptions(compression="lz4")
                writers[bucket] = pa.ipc.new_stream(str(place), made.schema, options=options)
            writers[bucket].write_table(made.slice(start, count))
            start += count
    for writer in (*writers.values(), *([raw] if raw else [])):
        writer.close()
    connection.close()


def _batches(connection: duckdb.DuckDBPyConnection, shape: Shape) -> Iterator[pa.Table]:
    step = max(1, 1_000_000 // (shape.resources * USAGE_TYPES))
    for first in range(0, HOURS, step):
        yield connection.sql(raw_lines(shape, first, min(HOURS, first + step))).to_arrow_table()


def snapshot(shape: Shape) -> Snapshot:
    """100,000 runs: those of the tags, and 60,000 that hold shares of the shared nodes, of eight devices each."""
    connection = connect()
    nodes = [r for r in range(shape.resources) if r % 10 in (3, 4)]
    connection.register("nodes", pa.table({"number": list(range(len(nodes))), "r": nodes}))
    name = "'arn:aws:ec2:eu-west-1:1:instance/i-' || lpad(r::VARCHAR, 12, '0')"
    runs = connection.sql(
        f"SELECT printf('run-%06d', n) AS run_id, CASE WHEN n % 3 = 0 THEN 'recs' ELSE 'fraud' END AS model, "
        f"'training' AS stage FROM range({RUN_COUNT}) t(n)"
    ).to_arrow_table()
    begin = f"{_START_US} + (hash(n) % {HOURS * 3600})::BIGINT * 1000000"
    holds = connection.sql(
        f"SELECT printf('run-%06d', n + {RUN_COUNT - SHARED_RUNS}) AS run_id, {name} AS resource_id, "
        f'make_timestamptz({begin}) AS "start", '
        f'make_timestamptz({begin} + (600 + hash(n, 1) % 36000)::BIGINT * 1000000) AS "end", '
        f"1000 * (1 + hash(n, 2) % 8)::BIGINT AS share_milli "
        f"FROM range({SHARED_RUNS}) t(n) JOIN nodes ON nodes.number = n % {len(nodes)}"
    ).to_arrow_table()
    resources = connection.sql(
        f"SELECT {name} AS resource_id, make_timestamptz({_START_US}) AS valid_from, NULL::TIMESTAMPTZ AS valid_to, "
        "'gpu' AS kind, 8000::BIGINT AS capacity_milli, 'gpu' AS capacity_unit FROM nodes"
    ).to_arrow_table()
    connection.close()
    return Snapshot(runs.cast(RUNS), holds.cast(HOLDS), resources.cast(RESOURCES), frozenset({"recs", "fraud"}))
