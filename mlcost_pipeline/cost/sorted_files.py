"""Lines sorted out into files by account, period and bucket, in the order they came; few files are open at a time."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

_OPEN_FILES = 512  # a bill of 50 million lines has 500 buckets; fewer where a process may hold fewer
_Key = tuple[tuple[str, str], int]


class SortedFiles:
    """Arrow streams in a folder. What is added is on disk once :meth:`close` has returned."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, 0
        self._open: dict[_Key, pa.ipc.RecordBatchStreamWriter] = {}
        self._places: dict[tuple[str, str], dict[int, list[int]]] = {}
        self._schema: pa.Schema | None = None

    def add(self, key: tuple[str, str], bucket: int, rows: pa.Table) -> None:
        """Add rows to a bucket of an account and period."""
        self._schema = self._schema or rows.schema
        self._writer((key, bucket)).write_table(rows)

    def close(self) -> None:
        for writer in self._open.values():
            writer.close()
        self._open.clear()

    def buckets(self, key: tuple[str, str]) -> list[int]:
        """The buckets of an account and period that hold lines, in order."""
        return sorted(self._places.get(key, {}))

    def read(self, key: tuple[str, str], bucket: int | None = None) -> Iterator[pa.RecordBatch]:
        """The lines of a bucket, or of all."""
        for number in self.buckets(key) if bucket is None else [bucket]:
            for serial in self._places[key][number]:
                with pa.OSFile(self._place(serial)) as file, pa.ipc.open_stream(file) as stream:
                    yield from stream

    def reader(self, key: tuple[str, str], bucket: int | None = None) -> pa.RecordBatchReader:
        """The same as one stream that SQL can read."""
        assert self._schema is not None
        return pa.RecordBatchReader.from_batches(self._schema, self.read(key, bucket))

    def _writer(self, key: _Key) -> pa.ipc.RecordBatchStreamWriter:
        if key not in self._open:
            if len(self._open) >= _most_open():
                self._open.pop(next(iter(self._open))).close()
            place = self._place(self._made)
            self._places.setdefault(key[0], {}).setdefault(key[1], []).append(self._made)
            self._made += 1
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            self._open[key] = pa.ipc.new_stream(place, self._schema, options=options)
        return self._open[key]

    def _place(self, serial: int) -> str:
        return str(self._folder / f"{serial:06d}.arrow")


def _most_open() -> int:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _OPEN_FILES if allowed == resource.RLIM_INFINITY else max(1, min(_OPEN_FILES, allowed // 2))
