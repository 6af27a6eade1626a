"""The ledger: every slot of a bill in parts that add up to it, kept as whole versions behind one pointer.

A version is named by what it was made of (delivery, runs, rules), so building it again is a no-op. When a newer
version says something else than the one before, what changed, for whom and why is written to ``restatements``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost import attribution
from mlcost_pipeline.cost.attribution import Part, attribute
from mlcost_pipeline.cost.deliveries import Delivery, account_key, bills_in_force, delivery, scope_of
from mlcost_pipeline.cost.due import is_built, note_built, runs_touching
from mlcost_pipeline.cost.reconciliation import Reconciliation, reconcile, require_reconciled
from mlcost_pipeline.cost.restating import restatements
from mlcost_pipeline.cost.slots import Slot, from_units, slots_of
from mlcost_pipeline.cost.snapshot import digest_of, take
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

__all__ = ["LedgerResult", "build_ledger", "build_ledgers", "ledger_rows", "reconcile", "require_reconciled"]


@dataclass(frozen=True)
class LedgerResult:
    """A ledger in force: its version, the one before, how many restatements tell them apart, and whether it closes."""

    account: str
    period: str
    ledger_version: str
    previous: str | None
    delivery: Delivery
    slots: int
    parts: int
    restated: int
    new: bool
    reconciliation: Reconciliation


def build_ledger(warehouse: Warehouse, settings: Settings, account: str, period: str) -> LedgerResult:
    """Attribute the delivery in force and put the result in force.

    Raises:
        BillError: no bill of that account and period was taken over, or an amount exceeds 128 bits.
    """
    bill = delivery(warehouse, account, period)
    if bill is None:
        raise BillError(f"account {account}, period {period}: no bill was taken over; run: mlcost bill import FILE")
    scope = scope_of(account, period)
    previous = warehouse.current("cost_ledger", scope)
    touched = runs_touching(warehouse, bill.delivery_id)
    stands_on = (bill.delivery_id, touched, sorted(settings.models))
    version, restated = previous, 0
    if version is None or not is_built(warehouse, account, period, *stands_on, version):
        version, restated = _renew(warehouse, settings, bill, scope, previous)
        note_built(warehouse, account, period, *stands_on, version)
    checked = reconcile(warehouse, account, period)
    parts = warehouse.read_version("cost_ledger", scope, version).num_rows
    return LedgerResult(
        account, period, version, previous, bill, checked.slots, parts, restated, version != previous, checked
    )  # fmt: skip


def _renew(
    warehouse: Warehouse, settings: Settings, bill: Delivery, scope: str, previous: str | None
) -> tuple[str, int]:
    """Attribute the bill and put the version in force; returns it and how many restatements it brought."""
    slots = slots_of(warehouse, bill.delivery_id)
    snapshot = take(warehouse, settings, slots)
    runs_version = digest_of(snapshot)
    version = digest("ledger", bill.delivery_id, runs_version, attribution.RULES_VERSION)
    if version == previous:
        return version, 0
    warehouse.write_version("cost_ledger", scope, version, list(_rows(attribute(slots, snapshot), version, bill)))
    made_of = {"delivery_id": bill.delivery_id, "runs": runs_version, "rules": attribution.RULES_VERSION}
    warehouse.state.create(f"ledgers/{account_key(bill.account)}/{bill.period}/{version}", made_of)
    changed: list[dict[str, Any]] = []
    if previous is not None:
        changed = restatements(warehouse, bill.account, bill.period, scope, previous, version)
        warehouse.append("restatements", changed)
    warehouse.point("cost_ledger", scope, version)
    return version, len(changed)


def build_ledgers(warehouse: Warehouse, settings: Settings, period: str | None = None) -> list[LedgerResult]:
    """:func:`build_ledger` for every bill in force, of one period or of all."""
    return [build_ledger(warehouse, settings, *pair) for pair in bills_in_force(warehouse, period)]


def ledger_rows(warehouse: Warehouse, period: str | None = None) -> pa.Table:
    """The ledgers in force of all accounts, of one period or of all, as one table."""
    bills = bills_in_force(warehouse, period)
    tables = [warehouse.read_version("cost_ledger", scope_of(*pair)) for pair in bills]
    return pa.concat_tables(tables) if tables else warehouse.read_version("cost_ledger", "none")


def _rows(attributed: list[tuple[Slot, list[Part]]], version: str, bill: Delivery) -> Iterator[dict[str, Any]]:
    for slot, parts in attributed:
        for number, part in enumerate(parts):
            yield {
                "ledger_version": version, "slot_id": slot.slot_id, "part": number, "delivery_id": bill.delivery_id,
                "account": bill.account, "period": bill.period, "currency": bill.currency, "method": part.method,
                "reason": part.reason, "run_id": part.run_id, "model": part.model, "stage": part.stage,
                "billed": _money(part, "billed"), "effective": _money(part, "effective"), "list": _money(part, "list"),
            }  # fmt: skip


def _money(part: Part, measure: str) -> Decimal | None:
    return from_units(part.amounts[measure]) if measure in part.amounts else None
