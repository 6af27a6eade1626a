"""Deliveries of bills: whole, immutable, one per account and period; the newest takes its period over atomically.

Lines are never updated in place: providers reuse line ids, and the same period is delivered many times. What is in
force is one pointer a period, moved last, so that a reader sees the old delivery or the new one and nothing between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlcost_pipeline.cost.aside import folder_aside
from mlcost_pipeline.cost.bills.beside import refuse_beside
from mlcost_pipeline.cost.bills.contents import BillFile, BillReader, reader
from mlcost_pipeline.cost.bills.exports import Export, find_exports
from mlcost_pipeline.cost.bills.files import untrusted
from mlcost_pipeline.cost.delivery_totals import content_id, held_against_files, totals
from mlcost_pipeline.cost.import_warnings import warnings, warnings_of_files
from mlcost_pipeline.cost.slots import MEASURES, from_units, to_units
from mlcost_pipeline.cost.staging import Found, Staging, as_table
from mlcost_pipeline.cost.take_over import News, moved
from mlcost_pipeline.cost.waiting import note_imported, waiting_places
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.warehouse import Warehouse

_LONGEST_SCOPE = 200  # of a file's name, which may be 255 bytes long
_JSON = ("absent", "warnings", "control")


@dataclass(frozen=True)
class Delivery:
    """One export of one account and period as it was taken over.

    `billed_total` is the exact sum of the file to 18 decimals; stored lines plus residue add up to it.
    `took_over` is False for a delivery that had been taken over before, or that arrived before the one in force, whose
    id is then `behind`. `control` names the measures that were held against control sums of the raw files, and how far
    those go: over the rows of this `delivery`, or over the whole `export`; None before such sums were taken.
    """

    delivery_id: str
    provider: str
    format: str
    account: str
    period: str
    currency: str
    received_at: datetime
    rows: int
    billed_total: Decimal
    effective_total: Decimal
    list_total: Decimal | None
    billed_residue: Decimal
    effective_residue: Decimal
    state: str
    source: str
    manifest: str | None = None
    slots: int | None = None
    absent: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    list_residue: Decimal | None = None
    control: dict[str, str] | None = None
    took_over: bool = True
    behind: str | None = None


def import_bill(
    warehouse: Warehouse, path: Path, *, format: str = "focus", received_at: datetime | None = None
) -> list[Delivery]:
    """Take over a billing export: a file, a folder whose files are the parts of one export, or what manifests name.

    A row goes to the delivery of its own account and billing period. Importing the same export again is a no-op.
    `received_at` is when the export arrived (default: when its manifest says that it was made, else the newest
    modification time of its files); of two deliveries of a period the one that arrived later is in force, whichever is
    imported first, and of two that arrived at the same time the one imported last.

    Raises:
        BillError: any part cannot be read whole or adds up to another sum than was read of it, a period mixes
            currencies, or the folder holds more of a period than its manifest names; nothing is stored, and what was
            in force stays in force.
    """
    found = reader(format)
    made: list[Delivery] = []
    exports = find_exports(path, found.SUFFIXES)
    if path.is_dir():
        refuse_beside(found, exports)
    for export in exports:
        touched = datetime.fromtimestamp(max(file.stat().st_mtime for file in export.files), UTC)
        received = received_at or export.made_at or touched
        files = [_opened(found, file) for file in export.files]
        if (refuse_parts := getattr(found, "refuse_parts", None)) is not None:
            refuse_parts(files)
        made += _import(warehouse, export, files, path, format, received)
    return made


def import_new(warehouse: Warehouse, settings: Settings) -> list[Delivery]:
    """Import every configured place whose files changed since the last time.

    Raises:
        BillError: after the sound places were imported, the faults of those that are not.
    """
    made: list[Delivery] = []
    faults: list[BillError] = []
    for source, place, seen in waiting_places(warehouse, settings):
        try:
            made += import_bill(warehouse, place, format=source.format)
        except BillError as fault:
            faults.append(fault)
        else:
            note_imported(warehouse, place, seen)
    if faults:
        raise BillError("\n".join(str(fault) for fault in faults)) from faults[0]
    return made


def in_force(warehouse: Warehouse, account: str, period: str) -> str | None:
    """The id of the delivery in force for an account and period, or None."""
    stored = warehouse.state.get(_pointer(account, period))
    return None if stored is None else str(stored.value["delivery_id"])


def delivery(warehouse: Warehouse, account: str, period: str) -> Delivery | None:
    """The delivery in force for an account and period, or None."""
    name = in_force(warehouse, account, period)
    return None if name is None else delivery_of(warehouse, name)


def delivery_of(warehouse: Warehouse, delivery_id: str) -> Delivery:
    """One delivery by its id, in force or not.

    Raises:
        BillError: there is none of that id.
    """
    rows = warehouse.rows("bill_deliveries", where="delivery_id = ?", params=[delivery_id])
    if not rows:
        raise BillError(f"delivery {delivery_id}: is not on record; see: mlcost bill status")
    return _delivery(rows[0])


def deliveries_in_force(warehouse: Warehouse, period: str | None = None) -> list[Delivery]:
    """Every delivery in force by account and period, of one period or of all, in one look."""
    names = [in_force(warehouse, *pair) for pair in bills_in_force(warehouse, period)]
    rows = warehouse.rows("bill_deliveries", where="list_contains(?, delivery_id)", params=[names])
    known = {row["delivery_id"]: row for row in rows}
    return [_delivery(known[name]) for name in names if name in known]


def _delivery(row: dict[str, Any]) -> Delivery:
    told = {name: json.loads(row.pop(name) or "null") for name in _JSON}
    row.pop("manifest_hash")
    if row["list_total"] is not None and row["list_residue"] is None:
        row["list_residue"] = Decimal(0)  # taken over before it was kept: list prices were summed as stored
    return Delivery(**row, absent=told["absent"] or {}, warnings=tuple(told["warnings"] or ()),
                    control=told["control"], took_over=False)  # fmt: skip


def bills_in_force(warehouse: Warehouse, period: str | None = None) -> list[tuple[str, str]]:
    """(account, period) of every delivery in force, sorted; of one period or of all."""
    known = warehouse.query("SELECT DISTINCT account, period FROM bill_deliveries", tables=["bill_deliveries"])
    pairs = sorted((row["account"], row["period"]) for row in known.to_pylist())
    return [pair for pair in pairs if period in (None, pair[1]) and in_force(warehouse, *pair) is not None]


def account_key(account: str) -> str:
    """An account id as one word of a path; ids of letters, digits and dashes stay as they are."""
    return quote(account, safe=" :@+") if account.strip(".") else account.replace(".", "%2E")


def scope_of(account: str, period: str) -> str:
    """The scope of one account and period in the table ``cost_ledger``."""
    return f"{account_key(account)}|{period}"


def _pointer(account: str, period: str) -> str:
    return f"bills/{account_key(account)}/{period}"


def _import(
    warehouse: Warehouse, export: Export, files: Sequence[BillFile], path: Path, format: str, received: datetime
) -> list[Delivery]:
    _refuse_repeated_parts(files)
    with folder_aside(warehouse.folder("imports")) as folder:
        staging = Staging(folder, export)
        try:
            staging.take(files)
            for key in sorted(staging.found):
                _refuse_unfit(path, staging.found[key])
            control = held_against_files(path, format, export.files, staging.found)
            prepared = [
                _prepare(warehouse, staging, staging.found[key], files, export, path, format, received, control)
                for key in sorted(staging.found)
            ]
        finally:
            staging.close()
    manifest = hashlib.sha256("".join(sorted(file.sha256 for file in files)).encode()).hexdigest()
    return [_take_over(warehouse, delivery, manifest) for delivery in prepared]


def _opened(found: BillReader, file: Path) -> BillFile:
    with untrusted(file):
        return found.open_bill(file)


def _refuse_repeated_parts(parts: Sequence[BillFile]) -> None:
    seen: dict[str, Path] = {}
    for part in parts:
        if part.sha256 in seen:
            raise BillError(f"{part.file}: is the same file as {seen[part.sha256]}; a part must not be counted twice")
        seen[part.sha256] = part.file


def _refuse_unfit(path: Path, found: Found) -> None:
    if len(quote(scope_of(*found.key), safe="")) > _LONGEST_SCOPE:
        raise BillError(f"{path}: the account {found.account[:60]!r}… is longer than an account id; is it shifted?")
    if len(found.currencies) > 1:
        raise BillError(
            f"{path}: account {found.account}, period {found.period} is billed in "
            f"{' and '.join(sorted(found.currencies))}; "
            "one delivery has one currency, so export each billing currency apart"
        )


def _prepare(
    warehouse: Warehouse, staging: Staging, found: Found, files: Sequence[BillFile], export: Export, path: Path,
    format: str, received_at: datetime, control: dict[str, str],
) -> Delivery:  # fmt: skip
    """Write lines and slots under the name of their content; nothing of it is in force yet."""
    delivery_id = content_id(found)
    scope = scope_of(*found.key)
    doubled = staging.doubled(found.key)
    if warehouse.version_file("billing_lines", scope, delivery_id) is None:
        warehouse.write_version_batches(
            "billing_lines", scope, delivery_id, as_table("billing_lines", staging.lines(found.key), delivery_id)
        )
    slots = warehouse.write_version_batches(
        "billing_slots", scope, delivery_id, as_table("billing_slots", staging.slots(found.key), delivery_id)
    )
    sums = {name: _less(totals(found, name), doubled.sums[name]) for name in MEASURES}
    return Delivery(
        delivery_id=delivery_id,
        provider=", ".join(sorted(found.providers)),
        format=f"{format} {files[0].version}",
        account=found.account,
        period=found.period,
        currency=min(found.currencies),
        received_at=received_at.astimezone(UTC),
        rows=found.rows,
        billed_total=sums["billed"][0],
        effective_total=sums["effective"][0],
        list_total=None if found.sums["list"] is None else sums["list"][0],
        billed_residue=sums["billed"][1],
        effective_residue=sums["effective"][1],
        list_residue=None if found.sums["list"] is None else sums["list"][1],
        state="final" if found.settled else "open",
        source=str(path),
        manifest=None if export.manifest is None else str(export.manifest),
        slots=slots,
        control=control,
        absent={name: why for file in files for name, why in file.absent.items()},
        warnings=(
            *warnings(found, doubled),
            *(text for file in files for text in file.warnings),
            *warnings_of_files(export),
        ),
    )


def _less(sums: tuple[Decimal, Decimal], left_out: Decimal) -> tuple[Decimal, Decimal]:
    return from_units(to_units(sums[0]) - to_units(left_out)), sums[1]


def _take_over(warehouse: Warehouse, made: Delivery, manifest_hash: str) -> Delivery:
    """Put on record, and in force unless what is in force arrived later.

    What was in force before comes back only if it was delivered again, later.
    """
    known = warehouse.rows("bill_deliveries", where="delivery_id = ?", params=[made.delivery_id])
    if not known or known[0]["received_at"] < made.received_at:
        row = {name: getattr(made, name) for name in TABLES["bill_deliveries"].columns if name != "manifest_hash"}
        row |= {"absent": json.dumps(made.absent, sort_keys=True), "warnings": json.dumps(list(made.warnings)),
                "control": json.dumps(made.control, sort_keys=True)}  # fmt: skip
        warehouse.append("bill_deliveries", [{**row, "manifest_hash": manifest_hash}])
    news = News()

    def move(value: dict[str, Any] | None) -> dict[str, Any]:
        return moved(value, made.delivery_id, made.received_at, news)

    warehouse.state.update(_pointer(made.account, made.period), move)
    return replace(made, took_over=news.took_over, behind=news.behind)
