"""What runs cost: the ledgers' word, or the price book's where no bill has reached a run; and whether it may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from mlcost_pipeline.cost.books import FINAL, Ask, Book
from mlcost_pipeline.cost.month_spend import estimates_of
from mlcost_pipeline.cost.run_months import unsettled_runs
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_PAID = "SELECT run_id, sum(effective) AS effective FROM cost_ledger WHERE run_id IS NOT NULL GROUP BY run_id"


@dataclass(frozen=True)
class Paid:
    """Effective cost of some runs, None where neither a bill nor a price says all of it.

    `estimated`: the price book says a part of it. `provisional`: it may change, for a bill of it is open or to come.
    """

    amount: Decimal | None
    estimated: bool
    provisional: bool


@dataclass(frozen=True)
class RunCosts:
    """Of all runs: what bills say, estimates for the others, and which of them a bill to come may say more of.

    `may_change` are the months of which a bill is open, or has no ledger.
    """

    billed: Mapping[str, Decimal]
    estimates: Mapping[str, Decimal | None]
    unsettled: frozenset[str]
    may_change: frozenset[str]

    def of_runs(self, runs: Sequence[str]) -> Paid:
        """What these runs cost together; of no run that is not known."""
        amounts = [self.billed.get(run, self.estimates.get(run)) for run in runs]
        known = None if not amounts or None in amounts else money_sum(each for each in amounts if each is not None)
        estimated = any(self.estimates.get(run) is not None for run in runs if run not in self.billed)
        return Paid(known, estimated, any(run not in self.billed or run in self.unsettled for run in runs))


def open_months(found: Sequence[Book]) -> frozenset[str]:
    """Months of which a bill is open, or has no ledger yet."""
    return frozenset(book.bill.period for book in found if book.standing != FINAL)


def run_costs(warehouse: Warehouse, settings: Settings, ask: Ask, found: Sequence[Book], now: datetime) -> RunCosts:
    """Costs of every run on record, as of `now`."""
    paid = {row["run_id"]: row["effective"] for row in ask(_PAID, [], ["cost_ledger"]).to_pylist()}
    priced: dict[str, Decimal | None] = {}
    for model in settings.owners:
        priced |= estimates_of(warehouse, settings, model, now).by_run
    return RunCosts(paid, priced, unsettled_runs(warehouse, found), open_months(found))
