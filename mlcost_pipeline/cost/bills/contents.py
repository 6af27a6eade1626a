"""What every reader of bills gives back, and the registry of readers: a new format is one module and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import MONEY, TAGS, TEXT, TIME

#: A line as a reader gives it; ``delivery_id`` and ``slot_id`` are added when it is taken over.
LINE = pa.schema(
    [
        ("line", pa.int64()),
        ("provider", TEXT),
        ("account", TEXT),
        ("sub_account", TEXT),
        ("period", TEXT),
        ("charge_start", TIME),
        ("charge_end", TIME),
        ("category", TEXT),
        ("charge_class", TEXT),
        ("pricing_category", TEXT),
        ("commitment_id", TEXT),
        ("commitment_status", TEXT),
        ("service", TEXT),
        ("region", TEXT),
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


class BillFile(Protocol):
    """One file of an export, opened and named by its content.

    `absent` names optional columns that the export lacks, each with what cannot be told without it and how to get it.
    `residues` and `warnings` are whole once :meth:`batches` is exhausted: per account and period, and per measure, what
    rounding to 18 decimals took off (exact minus stored).
    """

    file: Path
    sha256: str
    version: str
    absent: Mapping[str, str]
    residues: dict[tuple[str, str], dict[str, Decimal]]
    warnings: list[str]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The lines in schema ``LINE``, or BillError naming file, line and column."""


class BillReader(Protocol):
    """A module of this package that reads one format."""

    SUFFIXES: tuple[str, ...]

    def open_bill(self, path: Path) -> BillFile:
        """Open one file, or raise BillError naming it."""


FORMATS = {
    "focus": "mlcost_pipeline.cost.bills.focus",
    "cur2": "mlcost_pipeline.cost.bills.cur2",
    "cur_legacy": "mlcost_pipeline.cost.bills.cur_legacy",
    "azure_ea": "mlcost_pipeline.cost.bills.azure_ea",
    "spot_feed": "mlcost_pipeline.cost.bills.spot_feed",  # an estimate, which says so when it is opened as a bill
}


def reader(name: str) -> BillReader:
    """The reader of a format.

    Raises:
        BillError: the format is not read yet; the text lists those that are.
    """
    if name not in FORMATS:
        raise BillError(f"bills of format {name!r} are not read yet; formats that are: {', '.join(sorted(FORMATS))}")
    return cast(BillReader, importlib.import_module(FORMATS[name]))
