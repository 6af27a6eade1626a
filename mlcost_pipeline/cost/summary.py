"""Spend of a period by model, stage and method; its first line says how much of the bill is attributed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.attribution import ATTRIBUTED, IDLE
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery
from mlcost_pipeline.cost.ledger import ledger_rows
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class SpendRow:
    """Money of one model, stage, method and reason; billed reconciles to the invoice, effective says what it cost."""

    model: str | None
    stage: str | None
    method: str
    reason: str | None
    billed: Decimal
    effective: Decimal


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
    def attributed(self) -> Decimal:
        return money_sum(row.effective for row in self.rows if row.method in ATTRIBUTED)

    @property
    def idle(self) -> Decimal:
        return money_sum(row.effective for row in self.rows if row.method == IDLE)

    @property
    def share_attributed(self) -> Decimal | None:
        return self.attributed / self.effective if self.effective else None

    @property
    def by_reason(self) -> dict[str, Decimal]:
        """Effective cost that is not attributed, by reason; idle capacity is a reason of its own."""
        rest = [row for row in self.rows if row.method not in ATTRIBUTED]
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
        return f"{head} of {self.effective:,.2f} {self.currency} is attributed{tail}{state}"


def summaries(warehouse: Warehouse, period: str | None = None) -> list[Summary]:
    """One summary a currency: amounts of different currencies are never added up."""
    bills = [bill for pair in bills_in_force(warehouse, period) if (bill := delivery(warehouse, *pair)) is not None]
    rows = ledger_rows(warehouse, period).to_pylist()
    found = []
    for currency in sorted({bill.currency for bill in bills}):
        ours = [bill for bill in bills if bill.currency == currency]
        spent = tuple(_spend(row for row in rows if row["currency"] == currency))
        ids = tuple(bill.delivery_id for bill in ours)
        found.append(Summary(period, currency, spent, any(bill.state != "final" for bill in ours), ids))
    return found


def by_model_and_stage(summary: Summary) -> dict[tuple[str, str], Decimal]:
    """Effective cost by model and stage of what is attributed."""
    found: dict[tuple[str, str], list[Decimal]] = {}
    for row in summary.rows:
        if row.model is not None:
            found.setdefault((row.model, row.stage or "no stage"), []).append(row.effective)
    return {key: money_sum(amounts) for key, amounts in sorted(found.items())}


def _spend(rows: Iterable[dict[str, Any]]) -> Sequence[SpendRow]:
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["stage"], row["method"], row["reason"]), []).append(row)
    ordered = sorted(groups.items(), key=lambda entry: tuple(word or "~" for word in entry[0]))
    return [
        SpendRow(
            model, stage, str(method), reason,
            money_sum(row["billed"] for row in found), money_sum(row["effective"] for row in found),
        )
        for (model, stage, method, reason), found in ordered
    ]  # fmt: skip
