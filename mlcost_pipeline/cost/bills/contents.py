"""What every reader of bills gives back, and the registry of readers: a new format is one module and one line here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import MONEY, TAGS, TEXT, TIME

#: A line as a reader gives it; ``delivery_id``, ``line`` and ``slot_id`` are added when it is taken over.
LINE = pa.schema(
    [
        ("line", pa.int64()),
        ("provider", TEXT),
        ("account", TEXT),
        ("period", TEXT),
        ("charge_start", TIME),
        ("charge_end", TIME),
        ("category", TEXT),
        ("charge_class", TEXT),
        ("service", TEXT),
        ("sku", TEXT),
        ("description", TEXT),
        ("resource_id_raw", TEXT),
        ("resource_id", TEXT),
        ("tags", TAGS),
        ("tags_text", TEXT),
        ("currency", TEXT),
        ("billed", MONEY),
        ("effective", MONEY),
        ("list", MONEY),
        ("quantity", MONEY),
        ("quantity_unit", TEXT),
        ("invoice_id", TEXT),
        ("period_closed", pa.bool_()),
        ("allocation", TEXT),
    ]
)


@dataclass(frozen=True)
class BillContents:
    """One file of an export, whole and checked.

    `residues` holds, per measure, what rounding to 18 decimals took off single lines (exact minus stored).
    `absent` names optional columns that the export lacks, each with what cannot be told without it.
    """

    file: Path
    sha256: str
    version: str
    lines: pa.Table
    residues: dict[str, dict[int, Decimal]]
    absent: dict[str, str]


class BillReader(Protocol):
    """A module of this package that reads one format."""

    SUFFIXES: tuple[str, ...]

    def read(self, path: Path) -> BillContents:
        """Read one file whole, or raise BillError naming file, line and column."""


FORMATS = {"focus": "mlcost_pipeline.cost.bills.focus"}


def reader(name: str) -> BillReader:
    """The reader of a format.

    Raises:
        BillError: the format is not read yet; the text lists those that are.
    """
    if name not in FORMATS:
        raise BillError(f"bills of format {name!r} are not read yet; formats that are: {', '.join(sorted(FORMATS))}")
    return cast(BillReader, importlib.import_module(FORMATS[name]))
