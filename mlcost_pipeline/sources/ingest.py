"""The sources of one table → the warehouse: everything that is new, or nothing at all.

Every new file is read and mapped before anything is stored; then the rows go in as one part, then the files are
noted as read. Killed in between and called again, the same rows make the same part, which is a no-op.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Settings, Source, digest
from mlcost_pipeline.sources.allowed import first_fault
from mlcost_pipeline.sources.mapping import Mapped, as_written, id_column, map_rows
from mlcost_pipeline.sources.merge import drop_repeated, drop_stored
from mlcost_pipeline.sources.reader import find_files, fingerprint, read_file
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Ingested:
    """What one ingest of one table did.

    ``rows_new`` are the rows stored; ``rows_read = rows_new + sum(rows_dropped.values())``. ``files`` were read,
    ``files_known`` had been read before and are unchanged, ``files_waiting`` lack their completion marker.
    """

    table: str
    rows_read: int
    rows_new: int
    rows_dropped: dict[str, int] = field(default_factory=dict)
    files: int = 0
    files_known: int = 0
    files_waiting: int = 0

    @property
    def sentence(self) -> str:
        """What happened, for a person; an ingest without rows says so."""
        if self.files == 0:
            return (
                f"{self.table}: nothing new, {self.files_known:,} files known, {self.files_waiting:,} not complete yet"
            )
        drops = ", ".join(f"{count:,} {reason}" for reason, count in self.rows_dropped.items())
        dropped = f"; dropped {drops}" if drops else ""
        if self.rows_read == 0:
            return f"{self.table}: {self.files:,} new files hold no rows at all"
        counts = f"{self.rows_new:,} new of {self.rows_read:,} rows in {self.files:,} files"
        nothing = "; not one row was stored, look at the keep conditions" if self.rows_new == 0 and drops else ""
        return f"{self.table}: {counts}{dropped}{nothing}"


@dataclass(frozen=True)
class _File:
    """A file of a source as this ingest sees it."""

    path: Path
    name: str
    source: Source
    size: int
    sha256: str
    changed: bool


def ingest(
    warehouse: Warehouse, settings: Settings, table: str, *, report: Callable[[str], None] = lambda _: None
) -> Ingested:
    """Read what is new in the sources of `table` into the warehouse.

    A file counts as read if path, size, SHA-256 and mapping are those of an earlier ingest; a changed file is read
    again, and rows that it no longer has stay stored. `report` gets one line a file read.

    Raises:
        SourceError: no source or no file, or a file that cannot be taken whole; nothing of this ingest is stored.
    """
    sources = settings.sources.get(table)
    if not sources:
        raise SourceError(f"mlcost.yaml has no sources.{table}; add one or do not ask for it")
    stored = warehouse.state.get(f"sources/{table}/files")
    noted: dict[str, Any] = dict(stored.value) if stored else {}
    known: dict[str, Any] = dict(noted.get("files", {}))
    files, known_count, waiting = _new_files(settings, table, sources, known)
    hashed_over: dict[str, list[str]] = dict(noted.get("hash_columns", {}))
    mapped = [_read(file, table, settings, hashed_over, report) for file in files]
    rows, dropped = _gather(warehouse, table, files, mapped)
    new = 0
    if rows is not None and rows.num_rows:
        appended = warehouse.append(table, rows, holds_now=True)
        new = appended.rows if appended.new else 0
        if not appended.new:
            dropped["already_stored"] += appended.rows
    known.update({file.name: [file.size, file.sha256] for file in files})
    if files:
        warehouse.state.update(f"sources/{table}/files", _note({"files": known, "hash_columns": hashed_over}))
    read = sum(part.rows_read for part in mapped)
    return Ingested(table, read, new, dict(dropped), len(files), known_count, waiting)


def _note(value: dict[str, Any]) -> Callable[[dict[str, Any] | None], dict[str, Any]]:
    """Add to what another ingest may have noted in the meantime."""

    def change(now: dict[str, Any] | None) -> dict[str, Any]:
        now = now or {}
        return {part: {**now.get(part, {}), **entries} for part, entries in value.items()}

    return change


def _new_files(
    settings: Settings, table: str, sources: list[Source], known: dict[str, Any]
) -> tuple[list[_File], int, int]:
    new: list[_File] = []
    known_count = waiting = 0
    for source in sources:
        found = find_files(settings, table, source)
        waiting += len(found.waiting)
        mapping = _mapping(source)
        for path in found.ready:
            name = f"{Path(os.path.relpath(path, settings.base)).as_posix()}#{mapping}"
            size, sha256 = fingerprint(path)
            before = known.get(name)
            if before == [size, sha256]:
                known_count += 1
            else:
                new.append(_File(path, name, source, size, sha256, changed=before is not None))
    return new, known_count, waiting


def _mapping(source: Source) -> str:
    return digest(source.model_dump(mode="json", exclude={"path"}), length=8)


def _read(
    file: _File, table: str, settings: Settings, hashed_over: dict[str, list[str]], report: Callable[[str], None]
) -> Mapped:
    schema = TABLES[table]
    raw = read_file(file.path, file.source)
    columns: list[str] = []
    if id_column(schema, as_written(file.source, raw.column_names, schema)) is not None:
        # Ids must not change when a file gains a column, so the columns of the first file stay the ones hashed.
        columns = hashed_over.setdefault(_mapping(file.source), sorted(raw.column_names))
    mapped = map_rows(file.path, raw, file.source, schema, columns)
    if (fault := first_fault(table, mapped.rows, settings)) is not None:
        theirs = file.source.columns.get(fault.column)
        name = fault.column if theirs is None else theirs.column or "(constant)"
        raise SourceError(
            f"{file.path}, row {mapped.numbers[fault.index].as_py()}, column {name!r}: {fault.text}; "
            "correct the file, or its mapping in mlcost.yaml; nothing of it was taken"
        )
    report(f"{table}: {mapped.rows_read:,} rows from {file.path.name}")
    return mapped


def _gather(
    warehouse: Warehouse, table: str, files: list[_File], mapped: list[Mapped]
) -> tuple[pa.Table | None, Counter[str]]:
    dropped: Counter[str] = Counter()
    for part in mapped:
        dropped.update(part.dropped)
    if not mapped:
        return None, dropped
    rows = pa.concat_tables([part.rows for part in mapped], promote_options="default")
    rows, repeated = drop_repeated(rows, TABLES[table])
    dropped.update(repeated)
    if any(file.changed for file in files):
        rows, already = drop_stored(rows, warehouse.read(table), TABLES[table])
        dropped.update(already)
    return rows, dropped
