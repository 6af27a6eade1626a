"""An export on its way into the warehouse: its lines, sorted out by account, period and bucket into files on disk.

Nothing of it is in force, and memory holds one batch, so the size of an export does not matter. What is known of each
account and period is added up on the way: exact sums, currencies, what may be wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.cost.bills.contents import BillFile
from mlcost_pipeline.cost.bills.exports import Export
from mlcost_pipeline.cost.bills.files import untrusted
from mlcost_pipeline.cost.exact import ROUND
from mlcost_pipeline.cost.line_ids import identified
from mlcost_pipeline.cost.repeats import SKETCH, Repeats, Sketch
from mlcost_pipeline.cost.slots import grouped, with_tags
from mlcost_pipeline.cost.sorted_files import SortedFiles
from mlcost_pipeline.cost.split_charges import Doubled, find_doubled, mark
from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TABLES

LINES_OF_A_BUCKET = 100_000
_BYTES_OF_A_LINE = 250  # of a CSV file, to guess its lines before it is read
_TOLD = """
SELECT account, period, count(*) AS rows, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list,
  sum(low::HUGEINT) AS low, sum(high::HUGEINT) AS high, list_sort(list(DISTINCT currency)) AS currencies,
  list_sort(list(DISTINCT provider)) AS providers, list_sort(list(DISTINCT category)) AS categories,
  bool_and(invoice_id IS NOT NULL OR coalesce(period_closed, false)) AS settled,
  bool_or(allocation = 'allocated') AS allocated{sketches}
FROM staged_batch GROUP BY account, period ORDER BY account, period"""

_SKETCHES = f""",
  list_slice(list_sort(list(DISTINCT low)), 1, {SKETCH}) AS charges,
  list_slice(list_sort(list(DISTINCT place)), 1, {SKETCH}) AS places"""

_MOST_DELIVERIES = 10_000
_ROWS = 131_072
_ROW_GROUP = 65_536


@dataclass
class Found:
    """What an export says of one account and period; money is exact, of scale 18 or finer."""

    account: str
    period: str
    rows: int = 0
    sums: dict[str, Decimal | None] = field(default_factory=lambda: dict.fromkeys(("billed", "effective", "list")))
    residues: dict[str, Decimal] = field(default_factory=dict)
    currencies: set[str] = field(default_factory=set)
    providers: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    settled: bool = True
    allocated: bool = False
    identity: tuple[int, int] = (0, 0)
    repeated: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.period

    def add(self, row: dict[str, Any]) -> None:
        self.rows += row["rows"]
        for measure, total in self.sums.items():
            if row[measure] is not None:
                self.sums[measure] = ROUND.add(total or Decimal(0), row[measure])
        self.currencies |= set(row["currencies"])
        self.providers |= set(row["providers"])
        self.categories |= set(row["categories"])
        self.settled &= row["settled"]
        self.allocated |= row["allocated"]
        self.identity = self.identity[0] + int(row["low"]), self.identity[1] + int(row["high"])


class Staging:
    """A folder that an export is sorted out into; `found` is whole once :meth:`take` has returned."""

    def __init__(self, folder: Path, export: Export) -> None:
        self._connection = connect()
        self._buckets = max(1, _guess(export.files) // LINES_OF_A_BUCKET)
        self._told_rows = export.rows
        self._is_told_whole = export.manifest is not None
        self._folder, self._sorted = folder, SortedFiles(folder)
        self._doubled: dict[tuple[str, str], Doubled] = {}
        self.found: dict[tuple[str, str], Found] = {}

    def take(self, files: Sequence[BillFile]) -> None:
        """Read all files of the export.

        Raises:
            BillError: one cannot be read whole, or repeats most charges of another.
        """
        offset, repeats = 0, None if self._is_told_whole or len(files) < 2 else Repeats()
        try:
            for file in files:
                with untrusted(file.file):
                    offset += self._file(file, offset, repeats)
        finally:
            self._sorted.close()

    def lines(self, key: tuple[str, str]) -> Iterator[pa.RecordBatch]:
        """Lines of one account and period, bucket by bucket, in the order they came; replaced origins are marked."""
        for bucket in self._sorted.buckets(key):
            yield from self._marked(key, bucket)

    def slots(self, key: tuple[str, str]) -> Iterator[pa.RecordBatch]:
        """Slots of one account and period, bucket by bucket, in the order of their ids."""
        for bucket in self._sorted.buckets(key):
            made = grouped(self._connection, self._marked(key, bucket).read_all())
            yield from made.to_batches(max_chunksize=_ROWS)

    def close(self) -> None:
        self._connection.close()

    def doubled(self, key: tuple[str, str]) -> Doubled:
        """Origin charges of an account and period that are in the bill as their allocated parts too."""
        if key not in self._doubled:
            found = self.found[key]
            lines = self._sorted.read(key) if found.allocated else iter(())
            folder = self._folder / f"charges-{len(self._doubled)}"
            self._doubled[key] = find_doubled(self._connection, lines, folder, max(1, found.rows // LINES_OF_A_BUCKET))
            shutil.rmtree(folder, ignore_errors=True)
        return self._doubled[key]

    def _marked(self, key: tuple[str, str], bucket: int) -> pa.RecordBatchReader:
        lines, doubled = self._sorted.reader(key, bucket), self.doubled(key)
        return mark(self._connection, lines.read_all(), doubled, bucket).to_reader() if doubled.n else lines

    def _file(self, file: BillFile, offset: int, repeats: Repeats | None) -> int:
        last, ours = 0, dict[tuple[str, str], Sketch]()
        for batch in file.batches():
            if not batch.num_rows:
                continue
            last = batch.column("line")[-1].as_py()
            numbered = batch.set_column(
                batch.schema.get_field_index("line"), "line", pc.add(batch.column("line"), offset)
            )
            for row in self._batch(with_tags(numbered), sketched=repeats is not None):
                found = self.found.setdefault((row["account"], row["period"]), Found(row["account"], row["period"]))
                if len(self.found) > _MOST_DELIVERIES:
                    raise BillError(
                        f"{file.file}: more than {_MOST_DELIVERIES} accounts and periods; is this one bill?"
                    )
                found.add(row)
                if repeats is not None:
                    ours.setdefault(found.key, Sketch()).add(row["rows"], row["charges"], row["places"])
        expected = self._told_rows.get(file.file)
        if expected is not None and last - 1 != expected:
            raise BillError(
                f"{file.file}: holds {max(0, last - 1)} charges, its manifest says {expected}; nothing was taken over"
            )
        for key, lost in file.residues.items():
            for measure, amount in lost.items():
                kept_so_far = self.found[key].residues.get(measure, Decimal(0))
                self.found[key].residues[measure] = ROUND.add(kept_so_far, amount)
        for key, sketch in ours.items():
            if repeats is not None and (warning := repeats.hold(file.file, key, sketch)):
                self.found[key].repeated.append(warning)
        return max(0, int(last) - 1)  # lines are counted from the header on, and a later part has one of its own

    def _batch(self, lines: pa.RecordBatch, *, sketched: bool) -> list[dict[str, Any]]:
        """Sort one batch out into its files; what it says of each account and period."""
        self._connection.register("given_batch", identified(lines, self._buckets, places=sketched))
        sql = "FROM given_batch ORDER BY account, period, bucket, line"
        made = self._connection.sql(sql).to_arrow_table().combine_chunks()
        self._connection.register("staged_batch", made)
        told: list[dict[str, Any]] = (
            self._connection.sql(_TOLD.format(sketches=_SKETCHES if sketched else "")).to_arrow_table().to_pylist()
        )
        groups = self._connection.sql(
            "SELECT account, period, bucket, count(*) AS n FROM staged_batch GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        start = 0
        for account, period, bucket, rows in groups:
            self._sorted.add((account, period), int(bucket), made.slice(start, rows))
            start += rows
        for name in ("given_batch", "staged_batch"):
            self._connection.unregister(name)
        return told


def as_table(table: str, batches: Iterator[pa.RecordBatch], delivery_id: str) -> Iterator[pa.RecordBatch]:
    """Staged batches in the columns of a table; small ones are joined, for each becomes a row group."""
    schema, waiting, rows = TABLES[table].schema, list[pa.RecordBatch](), 0
    for batch in batches:
        named = pa.array([delivery_id] * batch.num_rows, pa.string())
        columns = [named if name == "delivery_id" else batch.column(name) for name in schema.names]
        waiting.append(pa.RecordBatch.from_arrays(columns, names=schema.names))
        rows += batch.num_rows
        if rows >= _ROW_GROUP:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _guess(files: Sequence[Path]) -> int:
    """About how many lines an export has."""
    total = 0
    for file in files:
        if file.suffix == ".parquet":
            try:
                total += pq.read_metadata(file).num_rows
            except (pa.ArrowException, OSError):
                total += 0  # the reader will say what is wrong with it
        else:
            total += file.stat().st_size * (10 if file.suffix in (".gz", ".zip") else 1) // _BYTES_OF_A_LINE
    return total
