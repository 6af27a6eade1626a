"""FOCUS Cost and Usage, versions 1.0 to 1.4, as CSV (plain or gzip) or Parquet.

Column definitions: focus.finops.org. Columns that FOCUS calls conditional may be absent; the contents then say what
cannot be attributed without them. Unknown charge categories are kept as they are, custom columns are not looked at.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.contents import LINE, BillContents
from mlcost_pipeline.cost.bills.convert import Place, to_money, to_tags, to_texts, to_times
from mlcost_pipeline.cost.bills.files import batches, columns_of, sha256_of
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TAGS, TEXT

SUFFIXES = (".csv", ".csv.gz", ".parquet")
REQUIRED = (
    "BillingAccountId", "BillingPeriodStart", "BillingCurrency", "ChargeCategory", "ChargePeriodStart",
    "ChargePeriodEnd", "BilledCost", "EffectiveCost",
)  # fmt: skip
ABSENT = {
    "ResourceId": "no cost can follow a resource to its runs; export the bill with resource ids",
    "Tags": "no cost can be attributed by tag; activate the tags mlcost_run, mlcost_model and mlcost_stage",
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
_TEXTS = {
    "charge_class": "ChargeClass", "service": "ServiceName", "sku": "SkuId", "description": "ChargeDescription",
    "resource_id_raw": "ResourceId", "quantity_unit": "ConsumedUnit", "invoice_id": "InvoiceId",
}  # fmt: skip
_CLOSED = ("closed", "final", "finalized", "invoiced")
# A period starts at its month's first midnight somewhere between UTC-12 and UTC+14.
_WIDEST_ZONE = timedelta(hours=14)


def read(path: Path) -> BillContents:
    """Read one FOCUS file whole.

    Raises:
        BillError: a required column is missing, or a value is not what its column must hold; names file, line, column.
    """
    present = columns_of(path)
    missing = [name for name in REQUIRED if name not in present]
    if missing:
        raise BillError(
            f"{path}, line 1: column {', '.join(missing)} is missing, so this is no FOCUS cost and usage file"
        )
    wanted = [name for name in _wanted() if name in present]
    residues: dict[str, dict[int, Decimal]] = {"billed": {}, "effective": {}}
    parts = [_lines(Place(str(path), line), batch, residues) for line, batch in batches(path, wanted)]
    lines = pa.Table.from_batches(parts, schema=LINE)
    if lines.num_rows == 0:
        raise BillError(f"{path}: holds no charge; an empty bill takes nothing over")
    version = next(version for mark, version in _MARKS if mark in present)
    absent = {name: why for name, why in ABSENT.items() if name not in present}
    return BillContents(path, sha256_of(path), version, lines, residues, absent)


def _wanted() -> list[str]:
    extra = ["BillingPeriodStatus", "AllocatedMethodId"]
    return [*dict.fromkeys([*REQUIRED, *ABSENT, *_PROVIDERS, *extra])]


def _lines(place: Place, batch: pa.RecordBatch, residues: dict[str, dict[int, Decimal]]) -> pa.RecordBatch:
    rows = batch.num_rows

    def column(name: str) -> pa.Array:
        return batch.column(name) if name in batch.schema.names else pa.nulls(rows, TEXT)

    made: dict[str, pa.Array] = {"line": pa.array(range(place.first_line, place.first_line + rows), pa.int64())}
    for name, theirs in {
        "account": "BillingAccountId",
        "category": "ChargeCategory",
        "currency": "BillingCurrency",
    }.items():
        made[name] = to_texts(place, theirs, column(theirs), required=True)
    for name, theirs in _TEXTS.items():
        made[name] = to_texts(place, theirs, column(theirs), required=False)
    made["provider"] = _provider(place, batch)
    made["period"] = _period(to_times(place, "BillingPeriodStart", column("BillingPeriodStart")))
    made["charge_start"] = to_times(place, "ChargePeriodStart", column("ChargePeriodStart"))
    made["charge_end"] = to_times(place, "ChargePeriodEnd", column("ChargePeriodEnd"))
    _refuse_backwards(place, made["charge_start"], made["charge_end"])
    for name, theirs in {"billed": "BilledCost", "effective": "EffectiveCost"}.items():
        made[name], lost = to_money(place, theirs, column(theirs), required=True)
        residues[name].update(lost)
    for name, theirs in {"list": "ListCost", "quantity": "ConsumedQuantity"}.items():
        made[name] = to_money(place, theirs, column(theirs), required=False)[0]
    made["resource_id"] = _canonical(made["resource_id_raw"])
    made["tags"], made["tags_text"] = to_tags(place, "Tags", column("Tags")) if rows else (pa.nulls(0, TAGS),) * 2
    status = to_texts(place, "BillingPeriodStatus", column("BillingPeriodStatus"), required=False)
    made["period_closed"] = pc.is_in(pc.utf8_lower(status), value_set=pa.array(_CLOSED))
    made["allocation"] = pc.if_else(column("AllocatedMethodId").is_valid(), "allocated", "origin")
    return pa.RecordBatch.from_arrays([made[name].cast(LINE.field(name).type) for name in LINE.names], schema=LINE)


def _provider(place: Place, batch: pa.RecordBatch) -> pa.Array:
    found = [
        to_texts(place, name, batch.column(name), required=False) for name in _PROVIDERS if name in batch.schema.names
    ]
    return pc.coalesce(*found, pa.scalar("unknown", TEXT)) if found else pa.array(["unknown"] * batch.num_rows, TEXT)


def _period(starts: pa.Array) -> pa.Array:
    encoded = starts.dictionary_encode()
    periods = [(start + _WIDEST_ZONE).strftime("%Y-%m") for start in encoded.dictionary.to_pylist()]
    return pa.array(periods, TEXT).take(encoded.indices)


def _canonical(raw: pa.Array) -> pa.Array:
    encoded = raw.dictionary_encode()
    return pa.array([canonical(text) for text in encoded.dictionary.to_pylist()], TEXT).take(encoded.indices)


def _refuse_backwards(place: Place, starts: pa.Array, ends: pa.Array) -> None:
    backwards = pc.less(ends, starts)
    if pc.any(backwards).as_py():
        row = backwards.to_pylist().index(True)
        raise place.fault(row, "ChargePeriodEnd", f"{ends[row].as_py()} lies before the start {starts[row].as_py()}")
