"""Files of the shop: written aside and renamed, and the same bytes for the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_atomically(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all; a file that holds these bytes already keeps its time."""
    if path.exists() and path.read_bytes() == data:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    aside.write_bytes(data)
    aside.replace(path)
    return path


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, compress: bool = False) -> Path:
    """Rows as CSV (gzip without a time stamp if `compress`); None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    data = text.getvalue().encode()
    return write_atomically(path, gzip.compress(data, 6, mtime=0) if compress else data)


def write_parquet(path: Path, rows: pa.Table) -> Path:
    """An Arrow table as Parquet."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return write_atomically(path, sink.getvalue())
