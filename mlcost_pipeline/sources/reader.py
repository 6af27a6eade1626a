"""Files of a source, each read whole or refused: a file cut off in the middle must never look like a short day.

CSV is read with every column as text, so that ids keep their leading zeros and their size.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Settings, Source, digest

CSV_ENDINGS = (".csv", ".csv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
_UNFINISHED = (".tmp", ".part", ".crdownload")
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Found:
    """Files that a source names: those ready to be read, and those whose marker is not there yet."""

    ready: list[Path]
    waiting: list[Path]


def find_files(settings: Settings, table: str, source: Source) -> Found:
    """The files of a source, sorted by path. Hidden and unfinished files (``.tmp``, ``.part``) are not looked at.

    Raises:
        SourceError: the path names no file at all.
    """
    path = settings.path(source.path)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file() and _format_of(file) is not None]
    else:
        pattern = path.relative_to(path.anchor).as_posix()
        files = [file for file in Path(path.anchor).glob(pattern) if file.is_file()]
    marker = source.complete_marker
    files = sorted(
        file
        for file in files
        if not file.name.startswith((".", "_"))
        and not file.name.endswith(_UNFINISHED)
        and not (marker and file.name.endswith(marker))
    )
    ready = [file for file in files if marker is None or file.with_name(file.name + marker).exists()]
    if not files:
        raise SourceError(
            f"sources.{table}: {path} names no file; set path to a CSV or Parquet file, a folder or a glob of them"
        )
    return Found(ready, sorted(set(files) - set(ready)))


def seen_files(settings: Settings, table: str) -> str:
    """Names, sizes and times of the files that the sources of `table` name now: another text, other files.

    Files that are not ready and places without any are left out: asking reads no content and refuses nothing.
    """
    stats = []
    for source in settings.sources[table]:
        with suppress(SourceError, FileNotFoundError):
            files = [(str(file), file.stat()) for file in find_files(settings, table, source).ready]
            stats += [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    return digest(stats)


def fingerprint(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return stream.tell(), sha256


def read_file(path: Path, source: Source) -> pa.Table:
    """One whole file: CSV with every column as text, Parquet in its own types.

    Raises:
        SourceError: the file is cut off, damaged, empty, not UTF-8 or of an unknown kind.
    """
    kind = source.format if source.format != "auto" else _format_of(path)
    if kind is None:
        raise SourceError(f"{path}: neither .csv, .csv.gz nor .parquet; rename it or set format: csv or parquet")
    table = _read_csv(path) if kind == "csv" else _read_parquet(path)
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise SourceError(f"{path}: column {', '.join(twice)} occurs more than once; give every column its own name")
    return table


def _format_of(path: Path) -> str | None:
    name = path.name.lower()
    if name.endswith(CSV_ENDINGS):
        return "csv"
    return "parquet" if name.endswith(PARQUET_ENDINGS) else None


def _read_parquet(path: Path) -> pa.Table:
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise SourceError(
            f"{path}: is cut off or damaged and cannot be read as Parquet ({_first_line(error)}); "
            "copy it again, nothing of it was taken"
        ) from error
    return table


def _read_csv(path: Path) -> pa.Table:
    data = _bytes(path)
    _check_whole(path, data)
    header = _header(data)
    try:
        return pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=pa_csv.ReadOptions(use_threads=False),  # with threads, errors name no row
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in header}, strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        raise SourceError(
            f"{path}: is not whole CSV ({_first_line(error)}; row 1 is the header); "
            "if the file was cut off, copy it again, nothing of it was taken"
        ) from error


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(
            f"{path}: gzip ends too early or is damaged ({error}); copy it again, nothing of it was taken"
        ) from error


def _check_whole(path: Path, data: bytes) -> None:
    """Two signs of a cut that a CSV parser accepts in silence: an open quote, and a last line without its end."""
    last = data.count(b"\n") + 1
    if not data.strip():
        raise SourceError(f"{path}: is empty, not even a header; an empty day is a file with a header and no rows")
    if data.count(b'"') % 2:
        raise SourceError(
            f"{path}: a quote that is opened is never closed (the file ends at line {last}); "
            "if the file was cut off, copy it again, nothing of it was taken"
        )
    if not data.endswith((b"\n", b"\r")):
        tail = data[-60:].rsplit(b"\n", 1)[-1].decode("utf-8", "replace")
        raise SourceError(
            f"{path}: line {last} ends in the middle ({tail!r}, no line end); "
            "copy the file again, or end its last line, nothing of it was taken"
        )


def _header(data: bytes) -> list[str]:
    one_line = pa_csv.ReadOptions(use_threads=False, block_size=max(len(data), 1))
    try:
        schema = pa_csv.open_csv(pa.BufferReader(data), read_options=one_line).schema
    except pa.ArrowException:  # a header alone, or a fault that the full read names better
        schema = None
    if schema is not None:
        return list(schema.names)
    return next(csv.reader(data.decode("utf-8-sig", "replace").splitlines()[:1]), [])


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
