"""The ledger: every slot of a bill in parts that add up to it, kept as whole versions behind one pointer.

A version is named by what it was made of (delivery, runs, rules), so building it again is a no-op. When a newer
version says something else than the one before, what changed, for whom and why is written to ``restatements``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost import attribution
from mlcost_pipeline.cost.asof import history, note_in_force
from mlcost_pipeline.cost.deliveries import Delivery, account_key, bills_in_force, delivery, scope_of
from mlcost_pipeline.cost.due import is_built, judged_by, note_built, runs_touching
from mlcost_pipeline.cost.reconciliation import Reconciliation, reconcile, require_reconciled
from mlcost_pipeline.cost.restating import restatements
from mlcost_pipeline.cost.snapshot import digest_of, take
from mlcost_pipeline.errors import BillError, Unreconciled
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse

__all__ = ["LedgerResult", "build_ledger", "build_ledgers", "reconcile", "require_reconciled"]


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
        Unreconciled: the parts do not add up to the bill; what was in force stays in force.
    """
    bill = delivery(warehouse, account, period)
    if bill is None:
        raise BillError(f"account {account}, period {period}: no bill was taken over; run: mlcost bill import FILE")
    scope = scope_of(account, period)
    previous = warehouse.current("cost_ledger", scope)
    touched = runs_touching(warehouse, account, period, bill.delivery_id)
    stands_on = (bill.delivery_id, touched, judged_by(settings))
    version, restated = previous, 0
    if version is None or not is_built(warehouse, account, period, *stands_on, version):
        version, restated = _renew(warehouse, settings, bill, scope, previous)
        at = model_clock(warehouse, settings, PLATFORM).now()
        note_in_force(warehouse, account, period, version, bill.delivery_id, at)
        note_built(warehouse, account, period, *stands_on, version)
    checked = reconcile(warehouse, account, period)
    return LedgerResult(
        account, period, version, previous, bill, checked.slots, checked.parts, restated, version != previous, checked
    )  # fmt: skip


def _renew(
    warehouse: Warehouse, settings: Settings, bill: Delivery, scope: str, previous: str | None
) -> tuple[str, int]:
    """Attribute the bill and put the version in force; returns it and how many restatements it brought."""
    known = take(warehouse, settings, scope, bill.delivery_id)
    runs_version = digest_of(known)
    version = digest("ledger", bill.delivery_id, runs_version, attribution.RULES_VERSION)
    if version == previous:
        return version, 0
    slots = warehouse.version_file("billing_slots", scope, bill.delivery_id)
    if slots is None:
        raise BillError(f"account {bill.account}, period {bill.period}: the slots of {bill.delivery_id} are missing; "
                        "import the bill again")  # fmt: skip
    named = {"ledger_version": version, "account": bill.account, "period": bill.period}
    with attribution.attributing(slots, known) as made:
        more = {**named, "delivery_id": bill.delivery_id, "currency": bill.currency}
        parts = (_with(batch, more) for batch in made.parts())
        warehouse.write_version_batches("cost_ledger", scope, version, parts)
        devices = (_with(batch, named) for batch in made.device_time().to_batches())
        warehouse.write_version_batches("device_time", scope, version, devices)
    rules = digest(attribution.RULES_VERSION, [rule.model_dump() for rule in settings.rules])
    made_of = {"delivery_id": bill.delivery_id, "runs": runs_version, "rules": rules}
    warehouse.state.create(f"ledgers/{account_key(bill.account)}/{bill.period}/{version}", made_of)
    checked = reconcile(warehouse, bill.account, bill.period, version)
    if not checked.reconciled:
        _discard(warehouse, bill, version)
        raise Unreconciled(f"{checked.sentence}; it was not put in force")
    changed: list[dict[str, Any]] = []
    if previous is not None:
        changed = restatements(warehouse, bill.account, bill.period, scope, previous, version)
        warehouse.append("restatements", changed)
    warehouse.point("device_time", scope, version)
    warehouse.point("cost_ledger", scope, version)
    return version, len(changed)


def _discard(warehouse: Warehouse, bill: Delivery, version: str) -> None:
    """Take a rejected version away, so that it is written anew once its slots are sound, unless it was in force."""
    if any(each.version == version for each in history(warehouse, bill.account, bill.period)):
        return
    for table in ("cost_ledger", "device_time"):
        file = warehouse.version_file(table, scope_of(bill.account, bill.period), version)
        if file is not None:
            file.unlink(missing_ok=True)


def build_ledgers(warehouse: Warehouse, settings: Settings, period: str | None = None) -> list[LedgerResult]:
    """:func:`build_ledger` for every bill in force, of one period or of all."""
    return [build_ledger(warehouse, settings, *pair) for pair in bills_in_force(warehouse, period)]


def _with(batch: pa.RecordBatch, constants: Mapping[str, str]) -> pa.RecordBatch:
    """A batch with columns that are the same in every row."""
    for name, value in constants.items():
        batch = batch.append_column(name, pa.array([value] * batch.num_rows, pa.string()))
    return batch
