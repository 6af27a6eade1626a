"""The ledgers in force, summed for display: by account, period, currency, model, stage, method and reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from mlcost_pipeline.cost.attribution import UNATTRIBUTED
from mlcost_pipeline.cost.books import Book, books, closed, versions_of
from mlcost_pipeline.cost.slots import from_units, to_units
from mlcost_pipeline.reports.dress import summed
from mlcost_pipeline.warehouse import Warehouse

_KEYS = ["account", "period", "currency", "model", "stage", "method", "reason"]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Spend:
    """A sum of ledger parts that are equal in all that is shown; `parts` is how many."""

    account: str
    period: str
    currency: str
    model: str | None
    stage: str | None
    method: str
    reason: str | None
    billed: Decimal
    effective: Decimal
    parts: int

    @property
    def attributed(self) -> bool:
        """Whether this money has a model."""
        return self.model is not None


#: Reason of a bill that no ledger was built for: of its first, or of one that a newer delivery took over.
NO_LEDGER = "no_ledger_yet"


def read_spend(warehouse: Warehouse) -> list[Spend]:
    """All bills in force, summed exactly, in a stable order; one without a ledger is unattributed as a whole.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill; no report is made of it.
    """
    found = books(warehouse, None)
    built = closed(warehouse, found)
    return [*_spend(warehouse, versions_of(built)), *(_unbuilt(book) for book in found if book.version is None)]


def _unbuilt(book: Book) -> Spend:
    bill = book.bill
    billed, effective = (
        from_units(to_units(total) - to_units(residue))
        for total, residue in (
            (bill.billed_total, bill.billed_residue), (bill.effective_total, bill.effective_residue),
        )
    )  # fmt: skip
    return Spend(bill.account, bill.period, bill.currency, None, None, UNATTRIBUTED, NO_LEDGER, billed, effective, 0)


def spend_of(warehouse: Warehouse, scope: str, version: str) -> list[Spend]:
    """One ledger, summed exactly."""
    return _spend(warehouse, {"cost_ledger": [(scope, version)]})


def _spend(warehouse: Warehouse, versions: Mapping[str, Sequence[tuple[str, str]]]) -> list[Spend]:
    keys = ", ".join(_KEYS)
    sql = (
        f"SELECT {keys}, sum(billed) AS billed, sum(effective) AS effective, count(*) AS parts FROM cost_ledger "
        f"GROUP BY {keys} ORDER BY {', '.join(f'{key} NULLS FIRST' for key in _KEYS)}"
    )
    return [Spend(**row) for row in warehouse.query(sql, tables=["cost_ledger"], versions=versions).to_pylist()]


def by(spend: Iterable[Spend], key: Callable[[Spend], K]) -> dict[K, Decimal]:
    """Effective cost by a key, in the order in which keys appear."""
    groups: dict[K, list[Decimal]] = {}
    for entry in spend:
        groups.setdefault(key(entry), []).append(entry.effective)
    return {name: summed(values) for name, values in groups.items()}


def total(spend: Iterable[Spend]) -> Decimal:
    """Effective cost in all."""
    return summed([entry.effective for entry in spend])
