"""What was in force on a day: deliveries and ledgers as they were known then, for any report to be had as of a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mlcost_pipeline.cost.books import closed_books
from mlcost_pipeline.cost.deliveries import account_key, bills_in_force, scope_of
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class InForce:
    """A ledger version of one account and period, the delivery that it stands on, and since when it was in force."""

    account: str
    period: str
    version: str
    delivery_id: str
    since: datetime

    @property
    def scope(self) -> str:
        return scope_of(self.account, self.period)


def note_in_force(
    warehouse: Warehouse, account: str, period: str, version: str, delivery_id: str, at: datetime
) -> None:
    """Remember that a ledger version came into force at `at`; saying so again changes nothing."""
    entry = {"version": version, "delivery_id": delivery_id, "at": at.isoformat()}

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        entries: list[dict[str, Any]] = (value or {"entries": []})["entries"]
        same = entries and entries[-1]["version"] == version
        return {"entries": entries if same else [*entries, entry]}

    warehouse.state.update(_path(account, period), change)


def history(warehouse: Warehouse, account: str, period: str) -> list[InForce]:
    """Every ledger version that was in force, oldest first."""
    stored = warehouse.state.get(_path(account, period))
    return [
        InForce(account, period, each["version"], each["delivery_id"], datetime.fromisoformat(each["at"]))
        for each in (stored.value["entries"] if stored is not None else [])
    ]


def first_in_force(warehouse: Warehouse) -> datetime | None:
    """When the first ledger of any account and period came into force; None while there is none."""
    known = (history(warehouse, account, period) for account, period in bills_in_force(warehouse))
    return min((entries[0].since for entries in known if entries), default=None)


def came_later(warehouse: Warehouse) -> set[tuple[str, str, str]]:
    """(account, period, version) of ledgers that came into force after the one in force: there are some as of a day."""
    later = set()
    for account, period in bills_in_force(warehouse):
        names = [each.version for each in history(warehouse, account, period)]
        now = warehouse.current("cost_ledger", scope_of(account, period))
        known = len(names) - names[::-1].index(now) if now in names else len(names)
        later |= {(account, period, name) for name in names[known:] if name not in names[:known]}
    return later


def in_force_at(warehouse: Warehouse, at: datetime) -> list[InForce]:
    """What was in force at `at`, for every account and period that had a ledger by then."""
    found = []
    for account, period in bills_in_force(warehouse):
        before = [each for each in history(warehouse, account, period) if each.since <= at]
        found += before[-1:]
    return found


def versions_of(found: Sequence[InForce]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """What :meth:`Warehouse.query` is to show of ledgers, device time, slots and lines."""
    ledgers = [(each.scope, each.version) for each in found]
    bills = [(each.scope, each.delivery_id) for each in found]
    return {"cost_ledger": ledgers, "device_time": ledgers, "billing_slots": bills, "billing_lines": bills}


def standing(warehouse: Warehouse) -> list[InForce]:
    """What is in force now: the ledger of each account and period, with the delivery that it stands on.

    Raises:
        Unreconciled: one of them does not add up to its bill.
    """
    found = []
    for book in closed_books(warehouse, None):
        kept = history(warehouse, book.bill.account, book.bill.period)
        found += [each for each in kept if each.version == book.version][-1:]
    return found


def _path(account: str, period: str) -> str:
    return f"ledgers/{account_key(account)}/{period}/history"
