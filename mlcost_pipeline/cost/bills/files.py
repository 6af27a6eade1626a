"""Files of an export as batches of rows: CSV (plain, gzip or zip) and Parquet, with the line each batch begins at.

A file that ends in the middle is refused: of a gzip stream, of a zip archive, of a row, or of a quoted field.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT

CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.zip")
SUFFIXES = (*CSV_SUFFIXES, ".parquet")
NULLS = ["", "NULL", "null"]  # as exports and the worked examples of FOCUS write them
_BLOCK = 1 << 22
_HEADER_LIMIT = 1 << 20
_UNPACKED, _MOST_PACKED = 1 << 30, 500  # bytes that any file may unpack to, and times its size that a larger one may


@contextmanager
def untrusted(path: Path) -> Iterator[None]:
    """Turn what a value that nobody expected makes the readers' libraries raise into a BillError that names the file.

    Faults of our own (a wrong name, type or index) are not among them: they stay what they are.
    """
    try:
        yield
    except (ValueError, ArithmeticError, RecursionError, MemoryError, pa.ArrowException, duckdb.Error) as error:
        text = " ".join(str(error).split())[:300]
        raise BillError(f"{path}: holds what cannot be read ({text}); nothing was taken over") from error


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BillError(f"{path}: cannot be read ({error.strerror})") from error


def columns_of(path: Path) -> list[str]:
    """The names of a file's columns."""
    if _is_parquet(path):
        with _refusing(path):
            return list(pa.parquet.read_schema(path).names)
    with _refusing(path), opened(path) as stream:
        first = stream.read(_HEADER_LIMIT).decode("utf-8-sig", errors="replace")
        names = next(csv.reader(io.StringIO(first)), [])
    if not names:
        raise BillError(f"{path}: is empty, expected a header line; export it again")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BillError(f"{path}, line 1: columns named twice: {', '.join(twice)}")
    return names


def batches(path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The wanted columns in batches, each with the line of its first row (the header is line 1)."""
    line = 2
    with _refusing(path):
        for batch in _parquet(path, wanted) if _is_parquet(path) else _csv(path, wanted):
            yield line, batch
            line += batch.num_rows


def _csv(path: Path, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with opened(path) as stream:
        counted = _Watched(stream)
        rows = pa.csv.open_csv(
            pa.PythonFile(counted, mode="r"),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, TEXT), include_columns=list(wanted), null_values=NULLS,
                strings_can_be_null=True, quoted_strings_can_be_null=True,
            ),
        )  # fmt: skip
        yield from rows
    if counted.quotes % 2:
        raise BillError(
            f"{path}: ends inside a quoted field, so it is cut off; nothing was taken over, export it again"
        )


def has_open_end(path: Path) -> bool:
    """Whether a CSV does not end with the end of a line, so that nothing shows whether its last field is whole.

    What is packed says itself where it ends.
    """
    if path.suffix != ".csv" or not (size := path.stat().st_size):
        return False
    with path.open("rb") as stream:
        stream.seek(size - 1)
        return stream.read(1) not in b"\r\n"


def _parquet(path: Path, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # Column chunks that are fetched ahead stay in memory until the file is closed: all of it, in the end.
    with pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        for batch in file.iter_batches(columns=list(wanted)):
            batch.validate(full=True)  # a damaged file may hold texts that are no UTF-8, and Arrow does not look
            yield batch


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a CSV file as they were before they were packed.

    Raises:
        BillError: while it is read, that it unpacks to far more than a bill does, or is no single file.
    """
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as packed:
            yield _Bounded(packed, path)  # type: ignore[misc]
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_only_member(path, archive)) as member:
            yield _Bounded(member, path)  # type: ignore[misc]
    else:
        with path.open("rb") as stream:
            yield stream


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """A part of a bill is one file: which of several would be the bill nobody says."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) != 1:
        named = ", ".join(member.filename for member in members[:3]) or "none"
        raise BillError(f"{path}: holds {len(members)} files ({named}), expected one CSV; unpack it and import those")
    if members[0].flag_bits & 0x1:
        raise BillError(f"{path}: is encrypted; unpack it and import what is in it")
    return members[0]


class _Watched(io.RawIOBase):
    """Passes a stream on and counts its quotes (in a whole CSV file they are even)."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.quotes = stream, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.quotes += data.count(b'"')
        return data


class _Bounded(io.RawIOBase):
    """Passes an unpacked stream on, and refuses what was packed to fill a disk: a bill packs 10 to 100 times."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path, self._read = stream, path, 0
        self._most = max(_UNPACKED, _MOST_PACKED * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._read += len(data)
        if self._read > self._most:
            raise BillError(
                f"{self._path}: unpacks to more than {_MOST_PACKED} times its size, as no bill does; if it is one "
                "after all, unpack it and import what is in it; nothing was taken over"
            )
        return data


_DAMAGED = (
    pa.ArrowException, OSError, EOFError, UnicodeError, csv.Error, zlib.error, zipfile.BadZipFile, NotImplementedError,
)  # fmt: skip


class _refusing:
    """Turns what the readers below raise on a damaged file into one BillError that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, _DAMAGED):
            text = str(error).replace("Row #", "line ")
            raise BillError(f"{self._path}: {text}; is the file cut off? nothing was taken over") from error
