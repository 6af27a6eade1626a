"""The ledger as a FOCUS 1.2 bill of allocated charges, one a part, so that any FinOps tool reads who has what.

Every part keeps its account, time, resource and category; whose it is stands in the tags ``mlcost_run``,
``mlcost_model`` and ``mlcost_stage`` and in columns of our own (``x_``), with the method that gave it. Sums are the
bill's, to the last unit, and are held against it once the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mlcost_pipeline.cost.books import Book, books, closed
from mlcost_pipeline.cost.csv_cells import neutral_column
from mlcost_pipeline.cost.engine.dialect import text
from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.cost.masking import shown_account
from mlcost_pipeline.cost.slots import from_units, money_sum, to_units
from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import BillError, Unreconciled
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

VERSION = "1.2"
_ROWS = 65_536
#: The sum of each measure in a file; a list cost that the effective cost stands in for is not the bill's.
_SUMS = {
    "billed": "BilledCost", "effective": "EffectiveCost",
    "list": "CASE WHEN NOT CAST(x_ListCostIsEffective AS BOOLEAN) THEN ListCost END",
}  # fmt: skip
_CATEGORIES = "('Usage', 'Purchase', 'Tax', 'Credit', 'Adjustment')"

# Slots hold no quantity and no price of a SKU: a part is a quantity of one, and its prices are its costs. Where a bill
# has no list cost, and for the contracted cost that slots do not keep, the effective cost stands in. A part of a
# purchase that has an effective cost is the use of what was bought (FOCUS keeps the effective cost of purchases at 0);
# the bill's own category is in x_ChargeCategory.
_PARTS = f"""
SELECT a.shown AS BillingAccountId, a.shown AS BillingAccountName, 'Billing Account' AS BillingAccountType,
  l.currency AS BillingCurrency,
  strptime(l.period || '-01 +0000', '%Y-%m-%d %z') AS BillingPeriodStart,
  strptime(l.period || '-01 +0000', '%Y-%m-%d %z') + INTERVAL 1 MONTH AS BillingPeriodEnd,
  CASE WHEN s.category = 'Purchase' AND l.effective <> 0 THEN 'Usage'
    WHEN s.category IN {_CATEGORIES} THEN s.category ELSE 'Adjustment' END AS ChargeCategory,
  CASE WHEN s.charge_class = 'Correction' THEN 'Correction' END AS ChargeClass,
  concat_ws(', ', s.category, 'by ' || l.method, l.reason) AS ChargeDescription,
  CASE WHEN s.category = 'Usage' THEN 'Usage-Based' WHEN s.category = 'Purchase' THEN 'Recurring'
    ELSE 'One-Time' END AS ChargeFrequency,
  s.charge_start AS ChargePeriodStart, s.charge_end AS ChargePeriodEnd,
  l.billed AS BilledCost, l.effective AS EffectiveCost, l.effective AS ContractedCost,
  coalesce(l.list, l.effective) AS ListCost,
  CASE WHEN s.category IN ('Usage', 'Purchase') THEN 1::DECIMAL(38, 18) END AS PricingQuantity,
  CASE WHEN s.category IN ('Usage', 'Purchase') THEN 'Allocations' END AS PricingUnit,
  CASE WHEN s.category IN ('Usage', 'Purchase') THEN 'Standard' END AS PricingCategory,
  CASE WHEN s.category = 'Usage' OR (s.category = 'Purchase' AND l.effective <> 0) THEN 1::DECIMAL(38, 18) END
    AS ConsumedQuantity,
  CASE WHEN s.category = 'Usage' OR (s.category = 'Purchase' AND l.effective <> 0) THEN 'Allocations' END
    AS ConsumedUnit,
  a.provider AS ProviderName, a.provider AS PublisherName, a.provider AS InvoiceIssuerName,
  s.invoice_id AS InvoiceId, s.resource_id AS ResourceId, s.resource_id AS ResourceName,
  CASE WHEN s.resource_id IS NOT NULL THEN 'Resource' END AS ResourceType,
  'Other' AS ServiceCategory, coalesce(s.service, 'unknown') AS ServiceName,
  'Other (Other)' AS ServiceSubcategory,
  json_merge_patch(coalesce(s.tags_text, '{{}}'), json_object('mlcost_run', l.run_id, 'mlcost_model', l.model,
    'mlcost_stage', l.stage))::VARCHAR AS Tags,
  l.run_id AS x_RunId, l.model AS x_Model, l.stage AS x_Stage, l.method AS x_AllocationMethod,
  l.reason AS x_AllocationReason, l.base AS x_AllocationBase, s.category AS x_ChargeCategory,
  s.commitment_status AS x_CommitmentDiscountStatus, l.slot_id AS x_SlotId, l.part AS x_Part,
  l.list IS NULL AS x_ListCostIsEffective, a.open AS x_Provisional, l.delivery_id AS x_DeliveryId,
  l.ledger_version AS x_LedgerVersion
FROM cost_ledger l JOIN (FROM billing_slots WHERE bucket = ?) s USING (delivery_id, slot_id)
  JOIN told a ON a.account = l.account
ORDER BY s.charge_start, l.slot_id, l.part
"""


@dataclass(frozen=True)
class Exported:
    """What was written: rows, the exact effective cost of each currency, and whether any bill of it is open."""

    file: Path
    rows: int
    effective: dict[str, Decimal]
    provisional: bool


def export_focus(
    warehouse: Warehouse, settings: Settings, period: str, file: Path, account: str | None = None
) -> Exported:
    """Write the ledgers of a month, of all accounts or one, as FOCUS rows: Parquet, or CSV by the file's name.

    Raises:
        BillError: a bill of that month and account has no ledger, or there is none, or the file is neither.
        Unreconciled: a ledger does not add up to its bill, or the file not to the ledger; no file is left then.
    """
    if file.suffix not in (".parquet", ".csv"):
        raise BillError(f"{file}: expected a file named *.parquet or *.csv")
    found = _closed(warehouse, period, account)
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.part{file.suffix}")
    try:
        rows = _write(warehouse, settings, found, aside)
        _held_against(found, aside, file)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    currencies = sorted({book.bill.currency for book in found})
    effective = {name: money_sum(_stored(b, "effective") for b in found if b.bill.currency == name)
                 for name in currencies}  # fmt: skip
    return Exported(file, rows, effective, any(book.bill.state != "final" for book in found))


def _closed(warehouse: Warehouse, period: str, account: str | None) -> list[Book]:
    """The month's books, all of them: a sum that leaves an account out would pass for the whole bill."""
    found = [book for book in books(warehouse, None, period) if account in (None, book.bill.account)]
    if not found:
        who = "no account" if account is None else f"account {account}"
        raise BillError(f"{period}: {who} has a ledger to export; see: mlcost bill status")
    without = [book.bill.account for book in found if book.version is None]
    if without:
        raise BillError(
            f"{period}: no ledger stands on the bill in force of account {', '.join(without)}, so nothing was "
            "exported; run: mlcost tick, or choose another account by --account"
        )
    return closed(warehouse, found)


def _write(warehouse: Warehouse, settings: Settings, found: list[Book], file: Path) -> int:
    rows, connection = 0, connect()
    try:
        with _sink(file) as write:
            for book in found:
                for batch in _parts_of(connection, warehouse, settings, book):
                    write(batch)
                    rows += batch.num_rows
    finally:
        connection.close()
    return rows


def _parts_of(
    connection: duckdb.DuckDBPyConnection, warehouse: Warehouse, settings: Settings, book: Book
) -> Iterator[pa.RecordBatch]:
    bill = book.bill
    ledger = warehouse.version_file("cost_ledger", book.scope, book.version)
    slots = warehouse.version_file("billing_slots", book.scope, bill.delivery_id)
    if ledger is None or slots is None:
        raise BillError(f"{bill.period}: the ledger or the slots of {bill.delivery_id} are missing; import it again")
    told = {
        "account": bill.account, "shown": shown_account(bill.account, settings),
        "provider": bill.provider or "unknown", "open": bill.state != "final",
    }  # fmt: skip
    connection.register("told", pa.Table.from_pylist([told]))
    connection.execute(f"CREATE OR REPLACE TEMP VIEW cost_ledger AS FROM read_parquet({text(str(ledger))})")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW billing_slots AS FROM read_parquet({text(str(slots))})")
    buckets = connection.sql("SELECT DISTINCT bucket FROM billing_slots ORDER BY bucket").fetchall()
    for bucket in buckets:  # sorted one by one, so that a bill of any size takes the memory of a bucket
        yield from connection.sql(_PARTS, params=list(bucket)).to_arrow_reader(_ROWS)


@contextmanager
def _sink(file: Path) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Takes batches into a Parquet or CSV file; the schema is that of the first."""
    opened: list[pq.ParquetWriter | pacsv.CSVWriter] = []

    def write(batch: pa.RecordBatch) -> None:
        if file.suffix == ".csv":
            batch = _cells(batch)
        if not opened and file.suffix == ".csv":
            opened.append(pacsv.CSVWriter(file, batch.schema))
        elif not opened:
            opened.append(pq.ParquetWriter(file, batch.schema, compression="zstd"))
        opened[0].write_batch(batch)

    try:
        yield write
    finally:
        for one in opened:
            one.close()


def _cells(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as FOCUS writes them, and texts that no spreadsheet runs."""
    columns = [
        pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ") if pa.types.is_timestamp(column.type)
        else neutral_column(column) if pa.types.is_string(column.type) else column
        for column in batch.columns
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _stored(book: Book, measure: str) -> Decimal:
    """What the ledger's parts of a bill add up to: the bill without what rounding kept aside."""
    bill = book.bill
    total, residue = {
        "billed": (bill.billed_total, bill.billed_residue), "effective": (bill.effective_total, bill.effective_residue),
        "list": (bill.list_total, bill.list_residue),
    }[measure]  # fmt: skip
    return from_units(to_units(total or Decimal(0)) - to_units(residue or Decimal(0)))


def _held_against(found: list[Book], file: Path, named: Path) -> None:
    """The file, which is to be `named`, read back: its sums are those of the bills, by currency and measure."""
    source = f"read_csv({text(str(file))}, all_varchar = true)" if file.suffix == ".csv" else text(str(file))
    sums = ", ".join(f"sum(CAST({column} AS DECIMAL(38, 18))) AS {name}" for name, column in _SUMS.items())
    rows = connect().sql(f"SELECT BillingCurrency AS currency, {sums} FROM {source} GROUP BY 1").fetchall()
    written = {currency: dict(zip(_SUMS, amounts, strict=True)) for currency, *amounts in rows}
    for currency in sorted({book.bill.currency for book in found}):
        for measure in _SUMS:
            due = money_sum(_stored(book, measure) for book in found if book.bill.currency == currency)
            there = written.get(currency, {}).get(measure) or Decimal(0)
            if there != due:
                raise Unreconciled(
                    f"{named}: {measure} adds up to {plain(there)} {currency} and the bills to "
                    f"{plain(due)}; nothing was exported"
                )
