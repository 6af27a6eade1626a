"""AWS CUR 2.0 (Data Exports), as Parquet or as CSV, plain or gzip; snake_case columns, tags in a map."""

from __future__ import annotations

from pathlib import Path

from mlcost_pipeline.cost.bills.cur_columns import ABSENT_CUR2
from mlcost_pipeline.cost.bills.cur_file import CurFile
from mlcost_pipeline.cost.bills.files import SUFFIXES, columns_of
from mlcost_pipeline.errors import BillError

__all__ = ["SUFFIXES", "open_bill"]


def open_bill(path: Path) -> CurFile:
    """One file of a data export.

    Raises:
        BillError: it cannot be read, is a legacy report, or lacks a column that is needed.
    """
    if any("/" in name for name in columns_of(path)):
        raise BillError(f"{path}: its columns are those of a legacy cost and usage report; its format is cur_legacy")
    return CurFile(path, "2.0", ABSENT_CUR2)
