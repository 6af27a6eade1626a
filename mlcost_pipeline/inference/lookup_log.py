"""What was served, as append-only JSON lines, one file a writer; rolled into the tables ``lookups`` and ``requests``.

A line is written whole or not at all as far as a reader is concerned: what follows the last line break is left for
the next roll, or for ever if its writer died. A line belongs to one row by ``request_id``, so rolling twice doubles
nothing.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.warehouse import Warehouse

log = logging.getLogger(__name__)

ROLL_LINES = 100_000
MAX_WAITING = 100_000  # lines held while the disk refuses; beyond that the oldest are lost


@dataclass(frozen=True)
class Rolled:
    """What a roll took over: lines that are `rows` now, lines that fit no row, files with an unfinished last line."""

    rows: int
    damaged: int
    torn: int


class LineLog:
    """Append-only lines of one writer.

    Args:
        flush_seconds: None writes each line before returning; otherwise a background thread writes at this interval
            and a crash loses at most what came in since.
    """

    def __init__(self, folder: Path, *, flush_seconds: float | None = None) -> None:
        self._folder, self._flush_seconds = folder, flush_seconds
        self._stream: int | None = None
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        """Note one row."""
        line = json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n"
        with self._lock:
            self._waiting.append(line)
            if self._flush_seconds is not None and self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._flush_often, name="line-log", daemon=True)
                self._thread.start()
        if self._flush_seconds is None:
            self.flush(sync=False)

    def flush(self, *, sync: bool = True) -> None:
        """Hand all waiting lines to the file system, with `sync` to the disk.

        Raises:
            OSError: the disk refuses; the lines wait for the next flush, which begins a new file.
        """
        with self._writing:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            try:
                self._append("".join(waiting).encode(), sync)
            except OSError:
                with self._lock:
                    self._waiting = [*waiting, *self._waiting][-MAX_WAITING:]
                self._let_go()
                raise

    def close(self) -> None:
        """Write out what is waiting and let go of the file; a later write opens a new one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        with self._writing:
            self._let_go()
        self._thread = None
        self._stop.clear()

    def __del__(self) -> None:
        self._let_go()

    def _append(self, data: bytes, sync: bool) -> None:
        stream = self._open()
        while data:
            data = data[os.write(stream, data) :]
        if sync:
            os.fsync(stream)

    def _let_go(self) -> None:
        if self._stream is not None:
            os.close(self._stream)
        self._stream = None

    def _open(self) -> int:
        if self._stream is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{os.getpid()}-{uuid.uuid4().hex}.jsonl"
            self._stream = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        return self._stream

    def _flush_often(self) -> None:
        assert self._flush_seconds is not None
        while not self._stop.wait(self._flush_seconds):
            try:
                self.flush()
            except OSError as error:
                log.warning("%s: lookups wait to be noted: %s", self._folder, error)


def lookup_log(warehouse: Warehouse, model: str, *, flush_seconds: float | None = None) -> LineLog:
    """The log of a model's lookups."""
    return LineLog(warehouse.root / "logs" / "lookups" / model, flush_seconds=flush_seconds)


def request_log(warehouse: Warehouse, *, flush_seconds: float | None = None) -> LineLog:
    """The log of the HTTP service's requests."""
    return LineLog(warehouse.root / "logs" / "requests" / "http", flush_seconds=flush_seconds)


def roll_lookups(warehouse: Warehouse) -> Rolled:
    """Take the lines since the last roll over into the table ``lookups``."""
    return _roll(warehouse, "lookups", "looked_up_at")


def roll_requests(warehouse: Warehouse) -> Rolled:
    """Take the lines since the last roll over into the table ``requests``."""
    return _roll(warehouse, "requests", "arrived_at")


def _roll(warehouse: Warehouse, table: str, time_column: str) -> Rolled:
    state = f"rolls/{table}"
    stored = warehouse.state.get(state)
    done: dict[str, int] = {} if stored is None else dict(stored.value["offsets"])
    waiting: list[dict[str, Any]] = []
    reached: dict[str, int] = {}
    read, kept, torn = 0, 0, 0

    def store() -> int:
        rows = _as_rows(table, waiting)
        repeated = len(waiting) - len({row["request_id"] for row in waiting})
        waiting.clear()
        warehouse.append(table, rows)
        now = dict(reached)
        warehouse.state.update(state, lambda value: {"offsets": _furthest(value, now)})
        return int(rows.num_rows) + repeated

    for file in sorted((warehouse.root / "logs" / table).glob("*/*.jsonl")):
        name = f"{file.parent.name}/{file.name}"
        end = start = done.get(name, 0)
        for line, reach in _whole_lines(file, start):
            read, end = read + 1, reach
            row = _parse(line, table, time_column)
            if row is not None:
                waiting.append(row)
            reached[name] = end
            if len(waiting) >= ROLL_LINES:
                kept += store()
        torn += file.stat().st_size > end
    if reached:
        kept += store()
    return Rolled(kept, read - kept, torn)


def _furthest(value: dict[str, Any] | None, now: dict[str, int]) -> dict[str, int]:
    offsets: dict[str, int] = {} if value is None else value["offsets"]
    return {**offsets, **{name: max(end, offsets.get(name, 0)) for name, end in now.items()}}


def _whole_lines(file: Path, start: int) -> Iterator[tuple[bytes, int]]:
    with file.open("rb") as stream:
        stream.seek(start)
        for line in stream:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            yield line, start


def _parse(line: bytes, table: str, time_column: str) -> dict[str, Any] | None:
    """The row of a line, or None if it is no row; kinds of values are checked when it becomes one."""
    try:
        row: dict[str, Any] = json.loads(line)
        row[time_column] = datetime.fromisoformat(row[time_column])
        needed = [row[key] for key in TABLES[table].key]
    except (ValueError, KeyError, TypeError):
        return None
    plain = isinstance(row.get("items", []), list) and all(isinstance(value, str) for value in needed)
    return row if plain and row[time_column].tzinfo is not None else None


def _as_rows(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """The rows that fit the table, of each request the last, in id order, so that the same lines make the same part."""
    schema = TABLES[table].schema
    rows = list({row["request_id"]: row for row in rows}.values())
    try:
        data = pa.Table.from_pylist(rows, schema=schema)
    except _MISFIT:
        data = pa.Table.from_pylist([row for row in rows if _fits(row, schema)], schema=schema)
    for field in schema:
        if not field.nullable:
            data = data.filter(pc.is_valid(data.column(field.name)))
    return data.sort_by([("request_id", "ascending")])


_MISFIT = (ValueError, TypeError, OverflowError, pa.ArrowInvalid, pa.ArrowTypeError)


def _fits(row: dict[str, Any], schema: pa.Schema) -> bool:
    try:
        pa.Table.from_pylist([row], schema=schema)
    except _MISFIT:
        return False
    return True
