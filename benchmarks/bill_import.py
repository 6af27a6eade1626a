"""What does taking a bill over cost beside merely reading its file, in lines a CPU second and in memory?

A FOCUS bill of one account and month is generated as Parquet (doubles, tags as a map) and as CSV (decimal texts, tags
as JSON), and each task runs in a process of its own: a bare pyarrow read of the columns that an import needs, and the
import into a new warehouse. CPU seconds and peak memory are the operating system's.
Bar: at most 600 MB at 10 million lines. Run: python benchmarks/bill_import.py [--rows 200000] [--only parquet|csv]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

ROWS, BATCH, BAR_MB = 200_000, 131_072, 600
_HOURS, _NODES, _RUNS = 31 * 24, 4_000, 100_000
_START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
_SERVICES = ("Amazon Elastic Compute Cloud", "Amazon Simple Storage Service", "AWS Data Transfer")


def _batches(rows: int, *, csv: bool) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    for first in range(0, rows, BATCH):
        yield _batch(random, first, min(BATCH, rows - first), csv=csv)


def _batch(random: np.random.Generator, first: int, rows: int, *, csv: bool) -> pa.Table:
    """Lines in the order of a bill: hour by hour, three kinds of charge on thousands of resources."""
    number = np.arange(first, first + rows)
    hour = number // (3 * _NODES) % _HOURS
    node = (number // 3) % _NODES
    cost = np.round(random.gamma(2.0, 0.4, rows), 10)
    cost[random.random(rows) < 0.01] *= -1
    run = random.integers(0, _RUNS, rows)
    named = random.random(rows) < 0.3
    starts = pa.array((_START + hour * 3600) * 1_000_000, pa.timestamp("us", tz="UTC"))
    ends = pa.array((_START + (hour + 1) * 3600) * 1_000_000, pa.timestamp("us", tz="UTC"))
    month = pa.array([_START * 1_000_000] * rows, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    pairs = [
        [("team", f"team-{n % 17}"), ("mlcost_run", f"run-{r}")] if is_named else [("team", f"team-{n % 17}")]
        for n, r, is_named in zip(node.tolist(), run.tolist(), named.tolist(), strict=True)
    ]
    constant = {
        "BillingAccountId": "100000000001", "BillingCurrency": "USD", "ProviderName": "AWS",
        "ChargeCategory": "Usage", "PricingCategory": "Standard", "RegionId": "eu-west-1", "InvoiceId": "INV-1",
        "SubAccountId": "100000000002", "ConsumedUnit": "Hours",
    }  # fmt: skip
    columns: dict[str, Any] = {name: pa.array([value] * rows) for name, value in constant.items()}
    columns |= {
        "BillingPeriodStart": month, "ChargePeriodStart": starts, "ChargePeriodEnd": ends,
        "BilledCost": cost, "EffectiveCost": np.round(cost * 0.8, 10), "ListCost": np.round(cost * 1.2, 10),
        "ConsumedQuantity": np.ones(rows),
        "ServiceName": pa.array(_SERVICES).take(pa.array(number % 3)),
        "SkuId": pa.array([f"SKU-{n % 97}" for n in node.tolist()]),
        "ChargeDescription": pa.array([f"$0.{n % 97:04d} per hour of use" for n in node.tolist()]),
        "ResourceId": pa.array([f"arn:aws:ec2:eu-west-1:100000000001:instance/i-{n:017x}" for n in node.tolist()]),
    }  # fmt: skip
    if not csv:
        return pa.table(columns | {"Tags": pa.array(pairs, pa.map_(pa.string(), pa.string()))})
    columns["Tags"] = pa.array([json.dumps(dict(tags)) for tags in pairs])
    for name in ("BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd"):
        columns[name] = pc.strftime(columns[name], format="%Y-%m-%dT%H:%M:%SZ")
    for name in ("BilledCost", "EffectiveCost", "ListCost"):
        columns[name] = pa.array([f"{value:.10f}" for value in columns[name].tolist()])
    return pa.table(columns)


def generate(place: Path, rows: int) -> None:
    """Write the bill, batch by batch."""
    batches = _batches(rows, csv=place.suffix == ".csv")
    first = next(batches)
    kind = pq.ParquetWriter if place.suffix == ".parquet" else pa.csv.CSVWriter
    with kind(place, first.schema) as writer:
        writer.write_table(first)
        for batch in batches:
            writer.write_table(batch)


def read(place: Path, _folder: Path) -> dict[str, Any]:
    """The limit: decode every column, in batches, and add the money up."""
    rows, total = 0, 0.0
    if place.suffix == ".parquet":
        with pq.ParquetFile(place) as file:
            for batch in file.iter_batches():
                rows, total = rows + batch.num_rows, total + pc.sum(batch["BilledCost"]).as_py()
    else:
        options = pa.csv.ReadOptions(use_threads=False, block_size=1 << 22)
        for batch in pa.csv.open_csv(place, read_options=options):
            rows, total = rows + batch.num_rows, total + pc.sum(batch["BilledCost"]).as_py()
    return {"lines": rows, "billed": f"{total:.6f}"}


def take_over(place: Path, folder: Path) -> dict[str, Any]:
    """The import: every line checked, exact, sorted out, slots made, written and put in force."""
    from mlcost_pipeline.cost.deliveries import import_bill
    from mlcost_pipeline.warehouse import Warehouse

    with tempfile.TemporaryDirectory(dir=folder) as root:
        [made] = import_bill(Warehouse(Path(root)), place)
    return {"lines": made.rows, "slots": made.slots, "billed": f"{made.billed_total:.6f}"}


TASKS = {"read": read, "import": take_over}


def measured(task: str, place: Path, folder: Path) -> dict[str, Any]:
    """One task in a process of its own: CPU seconds, wall seconds, peak MB, and what it found."""
    command = [sys.executable, __file__, "--task", task, "--place", str(place), "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{task} of {place.name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _as_task(task: str, place: Path, folder: Path) -> None:
    before, wall = time.process_time(), time.perf_counter()
    found = TASKS[task](place, folder)
    found |= {"cpu": time.process_time() - before, "wall": time.perf_counter() - wall}
    print(json.dumps(found | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", choices=["parquet", "csv"])
    parser.add_argument("--keep", type=Path, help="a folder in which the generated bills stay")
    for hidden in ("--task", "--place", "--folder", "--data"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        _as_task(given.task, Path(given.place), Path(given.folder))
        return
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for kind in [given.only] if given.only else ["parquet", "csv"]:
            failed |= not _compare(kind, given.rows, given.keep or Path(folder), Path(folder))
    if failed:
        raise SystemExit(1)


def _compare(kind: str, rows: int, kept: Path, folder: Path) -> bool:
    """Print both tasks on one bill; whether they saw the same bill and memory stayed below the bar."""
    place = kept / f"bill-{rows}.{kind}"
    if not place.exists():
        generate(place, rows)
    print(f"{kind}: {rows:,} lines, {place.stat().st_size / 1e6:,.0f} MB")
    found = {task: measured(task, place, folder) for task in TASKS}
    for task, one in found.items():
        speed = one["lines"] / one["cpu"]
        print(f"  {task:<7} {speed:>11,.0f} lines/CPU-s  {one['cpu']:>7.1f} CPU-s  {one['wall']:>7.1f} s  "
              f"{one['peak']:>6,.0f} MB  {one.get('slots', ''):>}")  # fmt: skip
    same = found["read"]["lines"] == found["import"]["lines"] == rows
    same &= abs(Decimal(found["read"]["billed"]) - Decimal(found["import"]["billed"])) < Decimal(rows) / 10**9
    small = found["import"]["peak"] <= BAR_MB
    print(f"  same bill: {'yes' if same else 'NO'}; at most {BAR_MB} MB: {'yes' if small else 'NO'}")
    return same and small


if __name__ == "__main__":
    main()
