"""AWS legacy Cost and Usage Reports: slash names in CSV, snake_case in Parquet; columns vary by month."""

from __future__ import annotations

from pathlib import Path

from mlcost_pipeline.cost.bills.cur_columns import ABSENT_LEGACY
from mlcost_pipeline.cost.bills.cur_file import CurFile
from mlcost_pipeline.cost.bills.files import SUFFIXES

__all__ = ["SUFFIXES", "open_bill"]


def open_bill(path: Path) -> CurFile:
    """One file of a report.

    Raises:
        BillError: it cannot be read, or lacks a column that is needed.
    """
    return CurFile(path, "1", ABSENT_LEGACY)
