"""FOCUS Cost and Usage, versions 1.0 to 1.4, as CSV (plain or gzip) or Parquet.

Column definitions: focus.finops.org. Columns that FOCUS calls conditional may be absent; the contents then say what
cannot be attributed without them. Unknown charge categories are kept as they are, custom columns are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.batch_values import Lost, Residues, each_text, keep, refusing
from mlcost_pipeline.cost.bills.binary_floats import keep_floats
from mlcost_pipeline.cost.bills.contents import LINE
from mlcost_pipeline.cost.bills.convert import (
    Place,
    to_money_and_residue,
    to_stored_money,
    to_tags,
    to_texts,
    to_times,
    with_more_tags,
)
from mlcost_pipeline.cost.bills.files import SUFFIXES, batches, columns_of, sha256_of
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT

__all__ = ["SUFFIXES", "open_bill"]

REQUIRED = (
    "BillingAccountId", "BillingPeriodStart", "BillingCurrency", "ChargeCategory", "ChargePeriodStart",
    "ChargePeriodEnd", "BilledCost", "EffectiveCost",
)  # fmt: skip
ABSENT = {
    "ResourceId": (
        "no cost can follow a resource to its runs; export the bill with resource ids (AWS: choose the column in the "
        "data export; Google Cloud: export detailed usage cost)"
    ),
    "Tags": (
        "no cost can be attributed by tag; activate the tags mlcost_run, mlcost_model and mlcost_stage (AWS: Billing, "
        "Cost allocation tags; Azure: Cost Management, tag inheritance; Google Cloud: labels), then export with them"
    ),
    "InvoiceId": "whether the period is final cannot be told, so its figures stay provisional",
    "ListCost": "savings against the list price are not shown",
    "ChargeClass": "corrections of invoiced periods cannot be told apart",
    "ServiceName": "services are not shown",
    "SkuId": "SKUs are not shown",
    "ChargeDescription": "descriptions are not shown",
    "ConsumedQuantity": "consumed quantities are not shown",
    "ConsumedUnit": "units of quantities are not shown",
}
#: What tells the versions apart; looked at only to name the version.
_MARKS = (
    ("InvoiceDetailId", "1.4"), ("ServiceProviderName", "1.3"), ("InvoiceId", "1.2"),
    ("CapacityReservationId", "1.1"), ("BilledCost", "1.0"),
)  # fmt: skip
_PROVIDERS = ("ServiceProviderName", "ProviderName", "InvoiceIssuerName")
_NEEDED_TEXTS = {"account": "BillingAccountId", "category": "ChargeCategory", "currency": "BillingCurrency"}
_TEXTS = {
    "charge_class": "ChargeClass", "service": "ServiceName", "sku": "SkuId", "description": "ChargeDescription",
    "resource_id_raw": "ResourceId", "quantity_unit": "ConsumedUnit", "invoice_id": "InvoiceId",
    "sub_account": "SubAccountId", "region": "RegionId", "pricing_category": "PricingCategory",
    "commitment_id": "CommitmentDiscountId", "commitment_status": "CommitmentDiscountStatus",
}  # fmt: skip
_MEASURES = {"billed": "BilledCost", "effective": "EffectiveCost"}
_ALL_MEASURES = {**_MEASURES, "list": "ListCost"}
_EXTRA = ("BillingPeriodStatus", "AllocatedMethodId", "AllocatedResourceId", "AllocatedTags")
_CLOSED = ("closed", "final", "finalized", "invoiced")
# A period starts at its month's first midnight somewhere between UTC-12 and UTC+14.
_WIDEST_ZONE = timedelta(hours=14)


def open_bill(path: Path) -> FocusFile:
    """One FOCUS file.

    Raises:
        BillError: a required column is missing, so this is no FOCUS cost and usage file.
    """
    return FocusFile(path)


class FocusFile:
    """One file of an export; `residues` and `warnings` are whole once `batches` is exhausted."""

    def __init__(self, path: Path) -> None:
        present = columns_of(path)
        missing = [name for name in REQUIRED if name not in present]
        if missing:
            raise BillError(
                f"{path}, line 1: column {', '.join(missing)} is missing, so this is no FOCUS cost and usage file"
            )
        self.file, self.sha256 = path, sha256_of(path)
        self.version = _version(set(present))
        self.absent = {name: why for name, why in ABSENT.items() if name not in present}
        self.residues: Residues = {}
        self.warnings: list[str] = []
        self._wanted = [name for name in _wanted() if name in present]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The file's lines of schema ``LINE``.

        Raises:
            BillError: a value is not what its column must hold, or there is no charge; names file, line and column.
        """
        self.residues, rows, bought = {}, 0, Decimal(0)
        for line, batch in batches(self.file, self._wanted):
            rows += batch.num_rows
            if batch.num_rows:
                with refusing(Place(str(self.file), line)):
                    lines, lost = _lines(Place(str(self.file), line), batch)
                    keep(self.residues, lost, lines)
                    for measure, theirs in _ALL_MEASURES.items():
                        if measure not in lost and theirs in batch.schema.names:
                            keep_floats(self.residues, measure, batch.column(theirs), lines)
                fees = pc.equal(lines.column("commitment_status"), "Fee")
                bought += pc.sum(lines.column("effective").filter(pc.fill_null(fees, False))).as_py() or 0
                yield lines
        if rows == 0:
            raise BillError(f"{self.file}: holds no charge; an empty bill takes nothing over")
        if bought:
            self.warnings = [
                f"{self.file.name}: purchases of commitments have an effective cost of {plain(bought)}, which "
                "the usage that they cover has too: so much of the effective cost is counted twice"
            ]


def _version(present: set[str]) -> str:
    """The newest version that a column says; 1.4 is also told by what it dropped."""
    found = next(version for mark, version in _MARKS if mark in present)
    return "1.4" if found == "1.3" and not present & {"ProviderName", "PublisherName"} else found


def _wanted() -> list[str]:
    return [*dict.fromkeys([*REQUIRED, *ABSENT, *_PROVIDERS, *_TEXTS.values(), *_EXTRA])]


def _lines(place: Place, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, Lost]]:
    rows = batch.num_rows

    def column(name: str) -> pa.Array:
        return batch.column(name) if name in batch.schema.names else pa.nulls(rows, TEXT)

    def text(name: str) -> pa.Array:
        return to_texts(place, name, column(name), required=False)

    lost: dict[str, Lost] = {}
    made: dict[str, pa.Array] = {"line": pa.array(range(place.first_line, place.first_line + rows), pa.int64())}
    for name, theirs in _NEEDED_TEXTS.items():
        made[name] = to_texts(place, theirs, column(theirs), required=True)
    for name, theirs in _TEXTS.items():
        made[name] = text(theirs)
    made["provider"] = _provider(place, batch)
    made["period"] = _period(to_times(place, "BillingPeriodStart", column("BillingPeriodStart")))
    made["charge_start"] = to_times(place, "ChargePeriodStart", column("ChargePeriodStart"))
    made["charge_end"] = to_times(place, "ChargePeriodEnd", column("ChargePeriodEnd"))
    _refuse_backwards(place, made["charge_start"], made["charge_end"])
    for name, theirs in _ALL_MEASURES.items():
        made[name], by_line = to_money_and_residue(place, theirs, column(theirs), required=name in _MEASURES)
        if by_line is not None:
            lost[name] = by_line
    made["quantity"] = to_stored_money(place, "ConsumedQuantity", column("ConsumedQuantity"))
    # A part that the provider allocated is its consumer's: the resource that it was allocated to, and its tags besides
    # those of the charge (AllocatedTags leaves out what Tags has already). A part without a consumer is what was left
    # over of the charge: it stays with the resource.
    allocated = pc.is_valid(text("AllocatedMethodId"))
    made["allocation"] = pc.if_else(allocated, "allocated", "origin")
    consumer = pc.if_else(allocated, text("AllocatedResourceId"), pa.scalar(None, TEXT))
    made["resource_id"] = each_text(pc.coalesce(consumer, made["resource_id_raw"]), canonical)
    made["tags"], made["tags_text"] = to_tags(place, "Tags", column("Tags"))
    if "AllocatedTags" in batch.schema.names:
        theirs = to_tags(place, "AllocatedTags", column("AllocatedTags"))[1]
        theirs = pc.if_else(allocated, theirs, pa.scalar(None, TEXT))
        made["tags"], made["tags_text"] = with_more_tags(made["tags"], made["tags_text"], theirs)
    bought = pc.and_(pc.equal(made["category"], "Purchase"), made["commitment_id"].is_valid())
    made["commitment_status"] = pc.if_else(bought, pa.scalar("Fee", TEXT), made["commitment_status"])
    status = text("BillingPeriodStatus")
    made["period_closed"] = pc.is_in(pc.utf8_lower(status), value_set=pa.array(_CLOSED))
    arrays = [made[name].cast(LINE.field(name).type) for name in LINE.names]
    return pa.RecordBatch.from_arrays(arrays, schema=LINE), lost


def _provider(place: Place, batch: pa.RecordBatch) -> pa.Array:
    found = [
        to_texts(place, name, batch.column(name), required=False) for name in _PROVIDERS if name in batch.schema.names
    ]
    return pc.coalesce(*found, pa.scalar("unknown", TEXT)) if found else pa.array(["unknown"] * batch.num_rows, TEXT)


def _period(starts: pa.Array) -> pa.Array:
    encoded = starts.dictionary_encode()
    periods = [(start + _WIDEST_ZONE).strftime("%Y-%m") for start in encoded.dictionary.to_pylist()]
    return pa.array(periods, TEXT).take(encoded.indices)


def _refuse_backwards(place: Place, starts: pa.Array, ends: pa.Array) -> None:
    backwards = pc.less(ends, starts)
    if pc.any(backwards).as_py():
        row = backwards.to_pylist().index(True)
        raise place.fault(row, "ChargePeriodEnd", f"{ends[row].as_py()} lies before the start {starts[row].as_py()}")
