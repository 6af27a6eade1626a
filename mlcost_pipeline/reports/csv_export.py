"""Tables as CSV files that a spreadsheet opens without running what stands in their cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mlcost_pipeline.cost.csv_cells import neutral


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header line and the rows, every cell neutral."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([neutral(name) for name in columns])
    writer.writerows([neutral(cell) for cell in row] for row in rows)
    return out.getvalue()


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write :func:`as_csv` to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_text(as_csv(columns, rows), encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
