"""What does exact attribution cost beside a bare scan of the bill, Polars and pandas, at 10 and 50 million lines?

Every task runs in a process of its own; CPU seconds, wall time and peak memory are the operating system's. Bars, for
all from a bill's lines to its ledger on disk (ids, slots, attribution): at most 3 × the CPU of the scan, at most 600 MB
at 10M and 1 GB at 50M, and at most 1.2 × the CPU a line at 50M that it takes at 10M. A bar that is not held ends it
with 1. Run: python benchmarks/attribution.py [--rows N ...] [--quick]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
from bill_generator import COMPRESSION, Shape, connect, snapshot, write_lines

from mlcost_pipeline.cost.attribution import attributing
from mlcost_pipeline.cost.deliveries import scope_of
from mlcost_pipeline.cost.ledger import _with
from mlcost_pipeline.cost.line_ids import identified
from mlcost_pipeline.cost.slots import grouped
from mlcost_pipeline.database import connect as shared_connection
from mlcost_pipeline.warehouse import Warehouse

STAGES = ("identify", "slots", "attribution")
QUICK, SMALL, LARGE = 500_000, 10_000_000, 50_000_000
PANDAS_LIMIT = SMALL


@dataclass(frozen=True)
class Measured:
    """One task in one process: CPU and wall seconds, peak memory in MB, and what it found."""

    cpu: float
    wall: float
    peak: float
    found: dict[str, Any]


def scan(folder: Path, shape: Shape) -> dict[str, Any]:
    """The physical limit: read the columns that attribution needs, and add the money up."""
    columns = ("resource_id", "charge_start", "charge_end", "category", "tags_text")
    seen = ", ".join(f"max({name})" for name in columns)
    found = (
        connect()
        .execute(f"SELECT count(*), sum(billed), sum(effective), {seen} FROM read_parquet('{folder}/raw.parquet')")
        .fetchone()
    )
    assert found is not None
    return {"lines": found[0], "effective": str(found[2])}


def identify(folder: Path, shape: Shape) -> dict[str, Any]:
    """The ids of slots and lines by which an import sorts lines out."""
    # As the importer opens its files: column chunks that are fetched ahead stay in memory until the end.
    batches = pq.ParquetFile(folder / "raw.parquet", pre_buffer=False, buffer_size=1 << 20).iter_batches(131_072)
    return {"lines": sum(identified(batch, shape.buckets).num_rows for batch in batches)}


def slots(folder: Path, shape: Shape) -> dict[str, Any]:
    """Lines → slots, bucket by bucket, written."""
    connection, writer, count = shared_connection(), None, 0
    for place in sorted((folder / "staged").glob("*.arrow")):
        with pa.memory_map(str(place)) as file, pa.ipc.open_stream(file) as stream:
            made = grouped(connection, stream.read_all())
        made = made.append_column("delivery_id", pa.array(["d"] * made.num_rows, pa.string()))
        writer = writer or pq.ParquetWriter(folder / "slots.parquet", made.schema, compression=COMPRESSION)
        writer.write_table(made)
        count += made.num_rows
    assert writer is not None
    writer.close()
    return {"slots": count}


def attribution(folder: Path, shape: Shape) -> dict[str, Any]:
    """Slots → ledger and device time, written to a warehouse as the product writes them."""
    scope, version = scope_of("acct-1", "2026-03"), uuid.uuid4().hex
    named = {"ledger_version": version, "account": "acct-1", "period": "2026-03"}
    warehouse = Warehouse(folder / "warehouse")
    with attributing(folder / "slots.parquet", snapshot(shape)) as made:
        more = {**named, "delivery_id": "d", "currency": "USD"}
        parts = (_with(batch, more) for batch in made.parts())
        written = warehouse.write_version_batches("cost_ledger", scope, version, parts)
        devices = (_with(batch, named) for batch in made.device_time().to_batches())
        device_rows = warehouse.write_version_batches("device_time", scope, version, devices)
    return {"parts": written, "device_rows": device_rows}


def both(folder: Path, shape: Shape) -> dict[str, Any]:
    """Lines → slots → ledger, in one process."""
    return {**slots(folder, shape), **attribution(folder, shape)}


_KEYS = ["resource_id", "charge_start", "charge_end", "category", "tag_run", "tag_model"]


def polars(folder: Path, shape: Shape) -> dict[str, Any]:
    """The same join and apportioning in Polars: direct, overlap and rest, in integers of 1e-12."""
    import polars as pl

    known = snapshot(shape)
    lines = pl.scan_parquet(str(folder / "raw.parquet"))
    amount = (pl.col("effective") * 10**12).cast(pl.Int64).sum().alias("amount")
    cut = lines.group_by(_KEYS).agg(amount)
    holds = pl.LazyFrame(known.holds)
    hours = (
        holds.with_columns(hour=pl.datetime_ranges(pl.col("start").dt.truncate("1h"), "end", "1h", closed="left"))
        .explode("hour")
        .with_columns(weight=_overlap(pl))
    )
    weights = hours.group_by("resource_id", "hour", "run_id").agg(pl.col("weight").sum())
    whole = weights.group_by("resource_id", "hour").agg(pl.col("weight").sum().alias("used"))
    nodes = pl.LazyFrame(known.resources).select("resource_id")
    free = cut.filter(pl.col("tag_run").is_null()).join(nodes, on="resource_id", how="semi")
    shared = (
        free.join(whole, left_on=["resource_id", "charge_start"], right_on=["resource_id", "hour"])
        .join(weights, left_on=["resource_id", "charge_start"], right_on=["resource_id", "hour"])
        .with_columns(room=pl.max_horizontal("used", pl.lit(3600 * 8)))
        .with_columns(part=pl.col("amount") * pl.col("weight") // pl.col("room"))
    )
    plain, shared_sum = pl.collect_all(
        [
            cut.select(pl.col("amount").sum(), pl.len().alias("n")),
            shared.select(pl.col("part").sum(), pl.len().alias("n")),
        ],
        engine="streaming",
    )
    return {"slots": plain["n"][0], "shared_parts": shared_sum["n"][0]}


def _overlap(pl: Any) -> Any:
    ends = pl.min_horizontal(pl.col("end"), pl.col("hour").dt.offset_by("1h"))
    begins = pl.max_horizontal(pl.col("start"), pl.col("hour"))
    return (ends - begins).dt.total_seconds() * (pl.col("share_milli") // 1000)


def pandas(folder: Path, shape: Shape) -> dict[str, Any]:
    """The same in pandas, in int64 of 1e-12."""
    import pandas as pd

    known = snapshot(shape)
    table = pq.read_table(folder / "raw.parquet", columns=[*_KEYS, "effective"])
    scale = pa.scalar(Decimal(10**12), pa.decimal128(13, 0))
    money = pc.multiply(table["effective"].cast(pa.decimal128(24, 12)), scale)
    frame = table.drop_columns(["effective"]).to_pandas()
    frame["amount"] = money.cast(pa.decimal128(38, 0)).cast(pa.int64()).to_numpy()
    cut = frame.groupby(_KEYS, dropna=False, sort=False, observed=True)["amount"].sum().reset_index()
    holds = known.holds.to_pandas()
    spans = [
        pd.date_range(a.floor("h"), b, freq="h", inclusive="left")
        for a, b in zip(holds["start"], holds["end"], strict=True)
    ]
    hours = holds.assign(hour=spans).explode("hour")
    hours["hour"] = pd.to_datetime(hours["hour"], utc=True)
    ends = hours["end"].where(hours["end"] < hours["hour"] + pd.Timedelta("1h"), hours["hour"] + pd.Timedelta("1h"))
    begins = hours["start"].where(hours["start"] > hours["hour"], hours["hour"])
    hours["weight"] = (ends - begins).dt.total_seconds().astype("int64") * (hours["share_milli"] // 1000)
    weights = hours.groupby(["resource_id", "hour", "run_id"])["weight"].sum().reset_index()
    weights["used"] = weights.groupby(["resource_id", "hour"])["weight"].transform("sum").clip(lower=3600 * 8)
    free = cut[cut["tag_run"].isna() & cut["resource_id"].isin(known.resources["resource_id"].to_pylist())]
    shared = free.merge(weights, left_on=["resource_id", "charge_start"], right_on=["resource_id", "hour"])
    shared["part"] = [a * w // d for a, w, d in zip(shared["amount"], shared["weight"], shared["used"], strict=True)]
    return {"slots": len(cut), "shared_parts": len(shared)}


TASKS: dict[str, Callable[[Path, Shape], dict[str, Any]]] = {
    task.__name__: task for task in (scan, slots, attribution, both, polars, pandas, identify)
}


def measure(name: str, folder: Path, shape: Shape) -> Measured | None:
    """A task in a process of its own; None if its library is not there."""
    command = [sys.executable, __file__, "--task", name, "--folder", str(folder), "--rows", str(shape.rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "ModuleNotFoundError" in done.stderr:
            return None
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _peak_mb() -> float:
    """Peak memory of this process alone; the resource module's figure is inherited from the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _one(name: str, folder: Path, shape: Shape) -> None:
    start, before = time.perf_counter(), _cpu_seconds()  # the start of the interpreter is nobody's work
    found = TASKS[name](folder, shape)
    told = Measured(_cpu_seconds() - before, time.perf_counter() - start, _peak_mb(), found)
    print(json.dumps(vars(told)))


def compare(rows: int) -> dict[str, Measured]:
    """All tasks over one generated bill, printed as they end."""
    shape, found = Shape(rows), dict[str, Measured]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder, shape)
        for task in TASKS:
            if task == "pandas" and rows > PANDAS_LIMIT:
                continue
            made = measure(task, folder, shape)
            if made is None:
                print(f"{rows:>11,} {task:<12} not installed", flush=True)
                continue
            found[task] = made
            told = f"{made.cpu:7.1f} CPU-s {made.wall:7.1f} s {made.peak:6.0f} MB"
            print(f"{rows:>11,} {task:<12} {told}  {made.found}", flush=True)
    return found


def whole(found: dict[str, Measured]) -> float:
    """CPU seconds from lines to the ledger."""
    return sum(found[name].cpu for name in STAGES)


def bars(rows: int, found: dict[str, Measured]) -> list[tuple[str, float, float]]:
    """(what, measured, at most)."""
    alone = found["attribution"].cpu / found["scan"].cpu
    peak = max(found[name].peak for name in (*STAGES, "both"))
    return [(f"{rows:,} lines: {' + '.join(STAGES)} ÷ scan, CPU", whole(found) / found["scan"].cpu, 3.0),
            (f"{rows:,} lines: attribution alone ÷ scan, CPU", alone, 3.0),
            (f"{rows:,} lines: peak memory, MB", peak, 600.0 if rows <= SMALL else 1000.0)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[SMALL, LARGE])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} lines only; says nothing about the bars")
    parser.add_argument("--task", choices=sorted(TASKS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="not used: the bill is generated")
    given = parser.parse_args()
    if given.task:
        _one(given.task, given.folder, Shape(given.rows[0]))
        return
    sizes = [QUICK] if given.quick else given.rows
    found = {rows: compare(rows) for rows in sizes}
    held = [bar for rows in sizes for bar in bars(rows, found[rows])]
    if len(sizes) > 1:
        small, large = min(sizes), max(sizes)
        per_line = [whole(found[n]) / n for n in (small, large)]
        held.append((f"CPU a line at {large:,} ÷ at {small:,}", per_line[1] / per_line[0], 1.2))
    for what, value, most in held:
        verdict = "held" if value <= most else f"NOT HELD by {value - most:,.2f}"
        print(f"{what}: {value:,.2f}, at most {most:,.2f}: {verdict}")
    if not given.quick and any(value > most for _, value, most in held):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
