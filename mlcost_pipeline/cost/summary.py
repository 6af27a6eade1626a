"""Spend of a period by model, stage and method; its first line says how much of the bill is attributed.

Only ledgers that reconcile to their bill are summed; a bill that no ledger was built for is shown as what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.cost.attribution import IDLE, UNATTRIBUTED
from mlcost_pipeline.cost.books import Book, asking, books, closed
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery
from mlcost_pipeline.cost.slots import from_units, money_sum, to_units
from mlcost_pipeline.warehouse import Warehouse

NO_LEDGER = "no_ledger_yet"
_SPENT = """
SELECT model, stage, method, reason, sum(billed) AS billed, sum(effective) AS effective FROM cost_ledger
GROUP BY ALL ORDER BY model NULLS LAST, stage NULLS LAST, method, reason
"""


@dataclass(frozen=True)
class SpendRow:
    """Money of one model, stage, method and reason; billed reconciles to the invoice, effective says what it cost."""

    model: str | None
    stage: str | None
    method: str
    reason: str | None
    billed: Decimal
    effective: Decimal

    @property
    def attributed(self) -> bool:
        return self.model is not None


@dataclass(frozen=True)
class Summary:
    """All bills of one currency in a period (or in all); `share_attributed` is None where they add up to nought."""

    period: str | None
    currency: str
    rows: tuple[SpendRow, ...]
    provisional: bool
    deliveries: tuple[str, ...]

    @property
    def effective(self) -> Decimal:
        return money_sum(row.effective for row in self.rows)

    @property
    def billed(self) -> Decimal:
        return money_sum(row.billed for row in self.rows)

    @property
    def attributed(self) -> Decimal:
        return money_sum(row.effective for row in self.rows if row.attributed)

    @property
    def idle(self) -> Decimal:
        return money_sum(row.effective for row in self.rows if row.method == IDLE)

    @property
    def share_attributed(self) -> Decimal | None:
        return self.attributed / self.effective if self.effective else None

    @property
    def by_reason(self) -> dict[str, Decimal]:
        """Effective cost that is not attributed, by reason; idle capacity is a reason of its own."""
        rest = [row for row in self.rows if not row.attributed]
        names = sorted({row.reason or row.method for row in rest})
        return {name: money_sum(r.effective for r in rest if (r.reason or r.method) == name) for name in names}

    @property
    def first_line(self) -> str:
        """The first line of any report."""
        share = self.share_attributed
        head = "an unknown share" if share is None else f"{share * 100:.1f} %"
        rest = [f"{name.replace('_', ' ')} {amount:,.2f}" for name, amount in self.by_reason.items()]
        tail = "; the rest by reason: " + ", ".join(rest) if rest else "; nothing is left over"
        state = " (provisional)" if self.provisional else ""
        return f"{head} of {self.effective:,.2f} {self.currency} (effective) is attributed{tail}{state}"


def summaries(warehouse: Warehouse, period: str | None = None) -> list[Summary]:
    """One summary a currency: amounts of different currencies are never added up.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill.
    """
    bills = [bill for pair in bills_in_force(warehouse, period) if (bill := delivery(warehouse, *pair)) is not None]
    return [_summary(warehouse, currency, period) for currency in sorted({bill.currency for bill in bills})]


def _summary(warehouse: Warehouse, currency: str, period: str | None) -> Summary:
    found = books(warehouse, currency, period)
    built = closed(warehouse, found)
    rows: list[SpendRow] = []
    if built:
        spent = asking(warehouse, built)(_SPENT, [], ["cost_ledger"]).to_pylist()
        rows = [SpendRow(**row) for row in spent]
    rows += [_unbuilt(book) for book in found if book.version is None]
    provisional = any(book.bill.state != "final" for book in found)
    return Summary(period, currency, tuple(rows), provisional, tuple(book.bill.delivery_id for book in found))


def _unbuilt(book: Book) -> SpendRow:
    bill = book.bill
    amounts: Sequence[Decimal] = [
        from_units(to_units(total) - to_units(residue))
        for total, residue in (
            (bill.billed_total, bill.billed_residue), (bill.effective_total, bill.effective_residue),
        )
    ]  # fmt: skip
    return SpendRow(None, None, UNATTRIBUTED, NO_LEDGER, amounts[0], amounts[1])
