"""Azure cost exports (cost and usage details) as CSV: Enterprise Agreement, Customer Agreement and their kin.

ActualCost and AmortizedCost are different sets of rows of one month: in the first a commitment is a purchase and what
it covers costs nothing, in the second it is spread over what it covers and the unused rest. Either has one cost column,
so billed and effective are both that cost; the version says which was read, the warnings what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.azure_columns import ABSENT, columns_by_use
from mlcost_pipeline.cost.bills.azure_kind import ACTUAL, AMORTIZED, COMMITTED, kind_of, refuse_mix
from mlcost_pipeline.cost.bills.azure_values import dates, with_braces
from mlcost_pipeline.cost.bills.batch_values import Lost, Residues, each_text, keep, refusing
from mlcost_pipeline.cost.bills.contents import LINE, BillFile
from mlcost_pipeline.cost.bills.convert import Place, to_money, to_tags, to_texts
from mlcost_pipeline.cost.bills.files import CSV_SUFFIXES, batches, sha256_of
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT

SUFFIXES = CSV_SUFFIXES
PROVIDER = "Microsoft"
#: Charge type in lower case → FOCUS category; one that is not here keeps its own name as category.
CATEGORIES = {
    "usage": "Usage", "unusedreservation": "Usage", "unusedsavingsplan": "Usage", "purchase": "Purchase",
    "refund": "Credit", "credit": "Credit", "tax": "Tax", "adjustment": "Adjustment",
    "roundingadjustment": "Adjustment",
}  # fmt: skip
_TEXTS = ("sku", "quantity_unit", "invoice_id", "service", "region", "sub_account")
_MEANING = {
    ACTUAL: "commitments are billed where they were bought and what they cover costs nothing, so what such usage cost "
    "effectively is not told; an AmortizedCost export tells it",
    AMORTIZED: "commitments are spread over what they cover, so billed costs are not those of the invoice; an "
    "ActualCost export has them",
}


def open_bill(path: Path) -> AzureFile:
    """One file of an export.

    Raises:
        BillError: it cannot be read, lacks a column that is needed, or is ActualCost and AmortizedCost at once.
    """
    return AzureFile(path)


def refuse_parts(files: Sequence[BillFile]) -> None:
    """Refuse files of one export that cannot be parts of one bill: some ActualCost, some AmortizedCost.

    Raises:
        BillError: names one file of each.
    """
    refuse_mix((file.file, file.version) for file in files)


class AzureFile:
    """One file of an export; `residues` and `warnings` are whole once `batches` is exhausted."""

    def __init__(self, path: Path) -> None:
        self.file = path
        self._columns = columns_by_use(path)
        self.sha256 = sha256_of(path)
        self.version = kind_of(path, self._columns)
        self.absent: Mapping[str, str] = {use: why for use, why in ABSENT.items() if use not in self._columns}
        self.residues: Residues = {}
        self.warnings: list[str] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The file's lines of schema ``LINE``.

        Raises:
            BillError: a value is not what its column must hold, or the file holds no charge; names file and line.
        """
        self.residues, rows = {}, 0
        for first, batch in batches(self.file, list(dict.fromkeys(self._columns.values()))):
            rows += batch.num_rows
            if batch.num_rows:
                with refusing(Place(str(self.file), first)):
                    lines, lost = _Batch(Place(str(self.file), first), batch, self._columns).lines()
                keep(self.residues, lost, lines)
                yield lines
        if rows == 0:
            raise BillError(f"{self.file}: holds no charge; an empty bill takes nothing over")
        meaning = _MEANING.get(self.version)
        self.warnings = [] if meaning is None else [f"{self.file}: is {self.version}: {meaning}"]


class _Batch:
    """One batch of a file, its columns by what they are used for."""

    def __init__(self, place: Place, batch: pa.RecordBatch, columns: dict[str, str]) -> None:
        self._place, self._batch, self._columns = place, batch, columns

    def lines(self) -> tuple[pa.RecordBatch, dict[str, Lost]]:
        """The lines, and by measure and line number what rounding took off."""
        rows, first = self._batch.num_rows, self._place.first_line
        cost, lost = self._money("cost", required=True)
        listed, lost_of_list = self._money("list")
        days = self._date("date", required=True)
        types, pricing = pc.utf8_lower(self._text("type")), pc.utf8_lower(self._text("pricing"))
        written = pc.coalesce(self._text("type"), pa.scalar("Usage", TEXT))
        category = each_text(written, lambda name: CATEGORIES.get(name.lower(), name))
        empty = pa.scalar(None, TEXT)
        made: dict[str, pa.Array] = {name: self._text(name) for name in _TEXTS}
        made |= {
            "line": pa.array(range(first, first + rows), pa.int64()),
            "provider": pa.array([PROVIDER] * rows, TEXT),
            "account": self._account(),
            "period": self._period(days),
            "charge_start": days,
            "charge_end": pc.add(days, pa.scalar(timedelta(days=1), pa.duration("us"))),
            "category": category,
            "commitment_status": _status(types, pricing),
            "commitment_id": pc.coalesce(self._text("benefit"), self._text("reservation")),
            "pricing_category": pc.if_else(pc.equal(category, "Usage"), each_text(pricing, _pricing), empty),
            "description": pc.coalesce(self._text("product"), self._text("meter")),
            "resource_id_raw": self._text("resource_id"),
            "currency": self._text("currency", required=True),
            "billed": cost,
            "effective": cost,
            "list": listed,
            "quantity": self._money("quantity")[0],
            "allocation": pa.array(["origin"] * rows, TEXT),
            "period_closed": pa.array([False] * rows),
        }
        made["resource_id"] = each_text(made["resource_id_raw"], canonical)
        made["tags"], made["tags_text"] = to_tags(self._place, self._own("tags"), with_braces(self._raw("tags")))
        arrays = [
            made[field.name].cast(field.type) if field.name in made else pa.nulls(rows, field.type) for field in LINE
        ]
        losses = {"billed": lost, "effective": lost, "list": lost_of_list}
        return pa.RecordBatch.from_arrays(arrays, schema=LINE), losses

    def _own(self, use: str) -> str:
        return self._columns.get(use, use)

    def _raw(self, use: str) -> pa.Array:
        return self._batch.column(self._own(use)) if use in self._columns else pa.nulls(self._batch.num_rows, TEXT)

    def _text(self, use: str, *, required: bool = False) -> pa.Array:
        return to_texts(self._place, self._own(use), self._raw(use), required=required)

    def _money(self, use: str, *, required: bool = False) -> tuple[pa.Array, Lost]:
        return to_money(self._place, self._own(use), self._raw(use), required=required)

    def _date(self, use: str, *, required: bool = False) -> pa.Array:
        return dates(self._place, self._own(use), self._text(use, required=required))

    def _account(self) -> pa.Array:
        """The billing account, for whom the invoice is made; where a file has none, its profile or subscription."""
        account = pc.coalesce(self._text("account"), self._text("profile"), self._text("sub_account"))
        if account.null_count:
            row = account.is_null().to_pylist().index(True)
            raise self._place.fault(row, self._own("account"), "is empty, and it must not be")
        return account

    def _period(self, days: pa.Array) -> pa.Array:
        """The month of the billing period; its end is read too, for only there a day-first date must show itself."""
        self._date("period_end")
        return pc.strftime(pc.coalesce(self._date("period_start"), days), format="%Y-%m")


def _status(types: pa.Array, pricing: pa.Array) -> pa.Array:
    unused = pc.fill_null(pc.starts_with(types, pattern="unused"), False)
    used = pc.and_(pc.is_in(pricing, value_set=COMMITTED), pc.fill_null(pc.equal(types, "usage"), False))
    empty = pa.scalar(None, TEXT)
    return pc.if_else(unused, pa.scalar("Unused", TEXT), pc.if_else(used, pa.scalar("Used", TEXT), empty))


def _pricing(model: str) -> str:
    """FOCUS pricing category of a pricing model in lower case; Dynamic is spot."""
    told = {"spot": "Dynamic", "reservation": "Committed", "savingsplan": "Committed", "ondemand": "Standard"}
    return told.get(model, "Other")
