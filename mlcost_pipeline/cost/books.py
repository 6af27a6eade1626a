"""The ledgers in force: each bill's delivery with the version of the ledger that stands for it.

Whatever sums money asks here, so that nothing is told of a ledger that does not close, nor of one that stands on a
delivery that was taken over since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.deliveries import Delivery, account_key, deliveries_in_force, scope_of
from mlcost_pipeline.cost.masking import masked_text
from mlcost_pipeline.cost.reconciliation import reconcile
from mlcost_pipeline.errors import NothingCompared, Unreconciled
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: What a book is: its bill does not change any more, may still change, was taken over since, or has no ledger yet.
FINAL, OPEN, STALE, NO_LEDGER = "final", "open", "stale", "no_ledger"

#: SQL, its parameters and the tables it reads → its rows: of a warehouse, or of plain rows at hand.
Ask = Callable[[str, Sequence[Any], Iterable[str]], pa.Table]


@dataclass(frozen=True)
class Book:
    """One account's month: its delivery in force, and the version of its ledger, None where none was built of it yet.

    `taken_over` is the delivery that the ledger in force stands on, if it is another one.
    """

    bill: Delivery
    version: str | None
    taken_over: str | None = None

    @property
    def scope(self) -> str:
        return scope_of(self.bill.account, self.bill.period)

    @property
    def standing(self) -> str:
        """``final``, ``open``, ``stale`` or ``no_ledger``; figures rest on the first two, once they reconcile."""
        if self.version is None:
            return NO_LEDGER if self.taken_over is None else STALE
        return FINAL if self.bill.state == "final" else OPEN

    @property
    def sentence(self) -> str:
        """One line for a person: whether figures rest on it, and if not, why and what to do."""
        where, bill = f"account {self.bill.account}, {self.bill.period}", self.bill.delivery_id
        if self.standing == STALE:
            return (
                f"{where}: its ledger is not used, for delivery {bill} took over from {self.taken_over}, which it "
                "stands on; run: mlcost tick"
            )
        if self.standing == NO_LEDGER:
            return f"{where}: nothing is attributed, for no ledger was built yet; run: mlcost tick"
        return f"{where}: ledger {self.version} of delivery {bill}, {self.standing}"


def books(warehouse: Warehouse, currency: str | None, period: str | None = None) -> list[Book]:
    """Books of all accounts in `currency` (None: in any), of one period or of all.

    Amounts of two currencies are never added up.
    """
    bills = deliveries_in_force(warehouse, period)
    return [_book(warehouse, bill) for bill in bills if currency in (None, bill.currency)]


def _book(warehouse: Warehouse, bill: Delivery) -> Book:
    """With the ledger in force, unless that stands on an earlier delivery: then none was built of this bill yet."""
    version = warehouse.current("cost_ledger", scope_of(bill.account, bill.period))
    made = warehouse.state.get(f"ledgers/{account_key(bill.account)}/{bill.period}/{version}")
    if made is not None and made.value["delivery_id"] != bill.delivery_id:
        return Book(bill, None, str(made.value["delivery_id"]))
    return Book(bill, version)


def left_out(found: Iterable[Book], settings: Settings) -> tuple[str, ...]:
    """A sentence for each book that no figure rests on; accounts as they may be shown."""
    return tuple(masked_text(b.sentence, b.bill.account, settings) for b in found if b.version is None)


def settled_months(found: Sequence[Book]) -> frozenset[str]:
    """Months that have a bill, and of which every bill is final and has its ledger: nothing in them may change."""
    unsettled = {book.bill.period for book in found if book.standing != FINAL}
    return frozenset({book.bill.period for book in found} - unsettled)


def require_closed(warehouse: Warehouse, book: Book) -> None:
    """Refuse a book whose parts do not add up to its bill, or that no figure may rest on.

    Deliveries and ledger versions never change, so what closed once is not added up again in the same process.

    Raises:
        Unreconciled: with the difference of each measure.
        NothingCompared: the ledger stands on a delivery that was taken over, or none was built yet.
    """
    bill = book.bill
    if book.version is None:
        raise NothingCompared(book.sentence)
    totals = (bill.rows, bill.billed_total, bill.effective_total, bill.list_total)
    key = (str(warehouse.root), book.scope, bill.delivery_id, book.version, totals)
    if key not in _closed:
        checked = reconcile(warehouse, bill.account, bill.period, book.version)
        if not checked.reconciled:
            raise Unreconciled(f"{checked.sentence}; build the ledger again: mlcost bill import, then mlcost tick")
        _closed.add(key)


_closed: set[tuple[Any, ...]] = set()


def closed(warehouse: Warehouse, found: Sequence[Book]) -> list[Book]:
    """Those of the books that a ledger was built for, each of which adds up to its bill.

    Raises:
        Unreconciled: one does not, with the difference of each measure.
    """
    built = [book for book in found if book.version is not None]
    for book in built:
        require_closed(warehouse, book)
    return built


def versions_of(found: Sequence[Book]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """What :meth:`Warehouse.query` is to show of ledgers and device time, and of the slots that ledgers apportion."""
    built = [(book, book.version) for book in found if book.version is not None]
    pairs = [(book.scope, version) for book, version in built]
    slots = [(book.scope, book.bill.delivery_id) for book, _ in built]
    return {"cost_ledger": pairs, "device_time": pairs, "billing_slots": slots}


def closed_books(warehouse: Warehouse, currency: str | None, period: str | None = None) -> list[Book]:
    """:func:`closed` of :func:`books`: all ledgers that a figure may rest on.

    Raises:
        Unreconciled: one does not add up to its bill.
    """
    return closed(warehouse, books(warehouse, currency, period))


def asking(warehouse: Warehouse, found: Sequence[Book]) -> Ask:
    """Queries over a warehouse that see the ledgers of these books and of no others."""
    versions = versions_of(found)

    def ask(sql: str, params: Sequence[Any], tables: Iterable[str]) -> pa.Table:
        return warehouse.query(sql, params, tables=tables, versions=versions)

    return ask
