"""Deliveries of bills: whole, immutable, one per account and period; the newest takes its period over atomically.

Lines are never updated in place: providers reuse line ids, and the same period is delivered many times. What is in
force is one pointer a period, moved last, so that a reader sees the old delivery or the new one and nothing between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.contents import BillContents, BillReader, reader
from mlcost_pipeline.cost.bills.convert import UNIT
from mlcost_pipeline.cost.slots import from_units, to_units, with_slots
from mlcost_pipeline.cost.waiting import note_imported, waiting_places
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.warehouse import Warehouse

_ROUND = Context(prec=400, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Delivery:
    """One export of one account and period as it was taken over.

    `billed_total` is the exact sum of the file to 18 decimals; stored lines plus residue add up to it.
    `took_over` is False for a delivery that had been taken over before.
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
    took_over: bool = True
    absent: dict[str, str] = field(default_factory=dict)


def import_bill(
    warehouse: Warehouse, path: Path, *, format: str = "focus", received_at: datetime | None = None
) -> list[Delivery]:
    """Take over a billing export: a file, or a folder whose files are the parts of one export.

    A row goes to the delivery of its own account and billing period. Importing the same export again is a no-op.
    `received_at` is when the export arrived (default: the newest modification time of its files).

    Raises:
        BillError: any part cannot be read whole, or a period mixes currencies; nothing is stored, and what was in
            force stays in force.
    """
    found = reader(format)
    parts = [found.read(file) for file in _files(path, found)]
    _refuse_repeated_parts(parts)
    received = received_at or datetime.fromtimestamp(max(part.file.stat().st_mtime for part in parts), UTC)
    lines, residues = _joined(parts)
    _refuse_repeated_charges(parts, lines)
    keys = sorted({(row["account"], row["period"]) for row in _groups(lines)})
    prepared = [_prepare(lines, residues, key, parts, path, format, received) for key in keys]
    return [_take_over(warehouse, delivery, rows, digest) for delivery, rows, digest in prepared]


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
    if name is None:
        return None
    [row] = warehouse.rows("bill_deliveries", where="delivery_id = ?", params=[name])
    return Delivery(**{key: value for key, value in row.items() if key != "manifest_hash"}, took_over=False)


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


def _files(path: Path, found: BillReader) -> list[Path]:
    if path.is_file():
        if not path.name.endswith(found.SUFFIXES):
            raise BillError(f"{path}: expected a file named *{', *'.join(found.SUFFIXES)}")
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(found.SUFFIXES))
    if not files:
        raise BillError(f"{path}: holds no billing export (looked for *{', *'.join(found.SUFFIXES)})")
    return files


def _refuse_repeated_parts(parts: list[BillContents]) -> None:
    seen: dict[str, Path] = {}
    for part in parts:
        if part.sha256 in seen:
            raise BillError(f"{part.file}: is the same file as {seen[part.sha256]}; a part must not be counted twice")
        seen[part.sha256] = part.file


def _refuse_repeated_charges(parts: list[BillContents], lines: pa.Table) -> None:
    """Two deliveries of one period in one folder would be counted twice: most of their charges are the same."""
    seen: dict[tuple[str, str], list[tuple[Path, set[str]]]] = {}
    offset = 0
    for part in parts if len(parts) > 1 else []:
        rows = lines.slice(offset, part.lines.num_rows).select(["account", "period", "line_hash"]).to_pylist()
        offset += part.lines.num_rows
        found: dict[tuple[str, str], set[str]] = {}
        for row in rows:
            found.setdefault((row["account"], row["period"]), set()).add(row["line_hash"])
        for key, charges in found.items():
            for file, others in seen.get(key, []):
                if 2 * len(charges & others) > min(len(charges), len(others)):
                    raise BillError(
                        f"{part.file}: repeats most charges of account {key[0]}, period {key[1]} in {file}; files of a "
                        "folder are parts of one export, so keep only the newest delivery of a period there"
                    )
            seen.setdefault(key, []).append((part.file, charges))


def _joined(parts: list[BillContents]) -> tuple[pa.Table, dict[str, dict[int, Decimal]]]:
    """All parts as one table; lines of later parts are numbered on from those of earlier ones."""
    tables, residues, offset = [], {"billed": dict[int, Decimal](), "effective": dict[int, Decimal]()}, 0
    for part in parts:
        moved = pc.add(part.lines["line"], offset)
        tables.append(part.lines.set_column(part.lines.schema.get_field_index("line"), "line", moved))
        for measure, lost in part.residues.items():
            residues[measure] |= {line + offset: amount for line, amount in lost.items()}
        offset += part.lines.num_rows
    return with_slots(pa.concat_tables(tables)), residues


def _groups(lines: pa.Table) -> Iterator[dict[str, Any]]:
    yield from lines.group_by(["account", "period"]).aggregate([]).to_pylist()


def _prepare(
    lines: pa.Table,
    residues: dict[str, dict[int, Decimal]],
    key: tuple[str, str],
    parts: list[BillContents],
    path: Path,
    format: str,
    received_at: datetime,
) -> tuple[Delivery, pa.Table, str]:
    account, period = key
    chosen = lines.filter(pc.and_(pc.equal(lines["account"], account), pc.equal(lines["period"], period)))
    currencies = sorted(set(chosen["currency"].to_pylist()))
    if len(currencies) > 1:
        raise BillError(
            f"{path}: account {account}, period {period} is billed in {' and '.join(currencies)}; "
            "one delivery has one currency, so export each billing currency apart"
        )
    delivery_id = _content_id(account, period, chosen)
    numbers = set(chosen["line"].to_pylist())
    sums: dict[str, tuple[Decimal, Decimal]] = {}
    for measure in ("billed", "effective"):
        lost = [amount for line, amount in residues[measure].items() if line in numbers]
        sums[measure] = _totals(chosen[measure], lost)
    made = Delivery(
        delivery_id=delivery_id,
        provider=", ".join(sorted(set(chosen["provider"].to_pylist()))),
        format=f"{format} {parts[0].version}",
        account=account,
        period=period,
        currency=currencies[0],
        received_at=received_at.astimezone(UTC),
        rows=chosen.num_rows,
        billed_total=sums["billed"][0],
        effective_total=sums["effective"][0],
        list_total=None if chosen["list"].null_count == chosen.num_rows else _totals(chosen["list"], [])[0],
        billed_residue=sums["billed"][1],
        effective_residue=sums["effective"][1],
        state=_state(chosen),
        source=str(path),
        absent={name: why for part in parts for name, why in part.absent.items()},
    )
    stored = chosen.append_column("delivery_id", pa.array([delivery_id] * chosen.num_rows, pa.string()))
    manifest = hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()
    return made, stored.select(TABLES["billing_lines"].columns), manifest


def _totals(stored: pa.ChunkedArray, lost: list[Decimal]) -> tuple[Decimal, Decimal]:
    """The exact sum of a column to 18 decimals, and the part of it that the stored lines do not hold."""
    units = sum(to_units(amount) for amount in stored.to_pylist() if amount is not None)
    exact = from_units(units)
    for amount in lost:
        exact = _ROUND.add(exact, amount)
    total = exact.quantize(UNIT, context=_ROUND)
    return total, from_units(to_units(total) - units)


def _state(lines: pa.Table) -> str:
    """`final` if every line is invoiced or of a period said to be closed; everything else may still change."""
    settled = pc.or_(pc.is_valid(lines["invoice_id"]), pc.fill_null(lines["period_closed"], False))
    return "final" if pc.all(settled).as_py() else "open"


def _content_id(account: str, period: str, lines: pa.Table) -> str:
    sink = hashlib.sha256(f"{account}\n{period}\n".encode())
    for chunk in lines["line_hash"].chunks:
        sink.update("".join(chunk.to_pylist()).encode())
    return sink.hexdigest()[:24]


def _take_over(warehouse: Warehouse, made: Delivery, lines: pa.Table, manifest_hash: str) -> Delivery:
    """Store and put in force. What was in force before comes back only if it was delivered again, later."""
    known = warehouse.rows("bill_deliveries", where="delivery_id = ?", params=[made.delivery_id])
    if not known:
        warehouse.append("billing_lines", lines)
    if not known or known[0]["received_at"] < made.received_at:
        row = {name: getattr(made, name) for name in TABLES["bill_deliveries"].columns if name != "manifest_hash"}
        warehouse.append("bill_deliveries", [{**row, "manifest_hash": manifest_hash}])
    received, took_over = made.received_at.isoformat(), False

    def move(value: dict[str, Any] | None) -> dict[str, Any]:
        nonlocal took_over
        history = value["history"] if value else []
        again = value is not None and datetime.fromisoformat(value["received_at"]) < made.received_at
        is_current = value is not None and value["delivery_id"] == made.delivery_id
        took_over = made.delivery_id not in history or (again and not is_current)
        if value is not None and not took_over:
            return value
        kept = [name for name in history if name != made.delivery_id]
        return {"delivery_id": made.delivery_id, "received_at": received, "history": [*kept, made.delivery_id]}

    warehouse.state.update(_pointer(made.account, made.period), move)
    return replace(made, took_over=took_over)
