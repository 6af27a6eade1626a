"""What one outcome of a model cost in a month: total, by stage, by what became of the runs, and per outcome.

Spend is effective cost (commitments amortised, credits and derived charges in). Runs that no bill has reached are
priced by the price book, kept apart under the method `estimate`, and make every figure provisional.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.books import Ask, Book, asking, books, closed, require_closed, settled_months
from mlcost_pipeline.cost.counted import Counted, counted_by_month, month_bounds
from mlcost_pipeline.cost.coverage import Covered, covered_by_month
from mlcost_pipeline.cost.device_ladder import Ladder, ladders_of, with_unsettled
from mlcost_pipeline.cost.month_spend import (
    ESTIMATE,
    NOTHING_SPENT,
    MonthSpend,
    Retrains,
    estimates_of,
    retrains_by_month,
    spend_by_month,
)
from mlcost_pipeline.cost.predictions import predictions_by_month
from mlcost_pipeline.cost.ratio import Ratio, divided, per_count
from mlcost_pipeline.cost.utilisation import Utilisation, utilisation
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

__all__ = ["ESTIMATE", "UnitCost", "unit_cost", "unit_costs"]


@dataclass(frozen=True)
class UnitCost:
    """One model's month. Money is in `currency`; `total` is billed (effective) plus estimated.

    `per_thousand_predictions` and `per_retrain` are None where there was none of them; a retrain is a whole job begun
    in the month, with all its attempts. `provisional` says that a bill is open or to come, an outcome not settled, or
    an amount estimated or unknown. `days` are those of the calendar month, `known_days` those that are over by the
    model's clock.
    """

    model: str
    period: str
    currency: str
    total: Decimal
    billed_total: Decimal
    estimated: Decimal
    unpriced_runs: int
    by_stage: Mapping[str, Decimal]
    by_method: Mapping[str, Decimal]
    by_run_outcome: Mapping[str, Decimal]
    outcome: Counted | None
    per_outcome: Ratio
    predictions: int
    per_thousand_predictions: Decimal | None
    retrains: int
    per_retrain: Decimal | None
    utilisation: Mapping[str, Utilisation]
    deliveries: tuple[str, ...]
    provisional: bool
    covered: Covered | None = None
    ladders: tuple[Ladder, ...] = ()
    days: int = 0
    known_days: int = 0

    @property
    def partial(self) -> bool:
        """Whether the outcomes cover only part of the days that the spend covers."""
        return self.covered is not None and not self.covered.whole

    @property
    def method_shares(self) -> dict[str, float]:
        """The share of the spend that each rung of attribution, and estimates, gave; empty where nothing was spent."""
        return {name: float(amount / self.total) for name, amount in self.by_method.items()} if self.total else {}

    @property
    def sentence(self) -> str:
        """One line for a person."""
        spend = f"{self.model}, {self.period}: {self.total:,.4f} {self.currency}"
        estimated = f" (of it {self.estimated:,.4f} estimated)" if self.estimated else ""
        what = "outcomes not measured" if self.outcome is None else self.outcome.sentence
        each = f"{self.per_outcome.show(self.currency)} each"
        if self.covered is not None and self.partial and self.outcome is not None:
            each = f"cost of each unknown, because {self.covered.reason}"
        unpriced = f", {self.unpriced_runs} runs of unknown price left out" if self.unpriced_runs else ""
        tail = ", provisional" if self.provisional else ""
        return f"{spend}{estimated}, {what}: {each}{unpriced}{tail}"


def unit_cost(warehouse: Warehouse, settings: Settings, model: str, period: str) -> UnitCost:
    """The cost of one outcome of `model` in `period` ("YYYY-MM"), over all bills in the settings' currency.

    Raises:
        Unreconciled: the parts of a bill do not add up to it; nothing is reported then.
        NothingCompared: no ledger stands on a bill of the month.
    """
    return _Months.of(warehouse, settings, model, _Bills.of(warehouse, settings)).month(period)


def unit_costs(warehouse: Warehouse, settings: Settings, model: str) -> list[UnitCost]:
    """:func:`unit_cost` for every month in which the model spent, ran or earned anything, in order.

    Raises:
        Unreconciled, NothingCompared: a bill of any of these months does not close, or no ledger stands on it.
    """
    return _Months.of(warehouse, settings, model, _Bills.of(warehouse, settings)).every()


def unit_costs_of_all(warehouse: Warehouse, settings: Settings) -> dict[str, list[UnitCost]]:
    """:func:`unit_costs` of every model; what does not depend on the model is read once.

    A month with a bill that has no ledger is not among them, for it would look cheap: see :func:`books.left_out`.
    """
    bills = _Bills.of(warehouse, settings)
    without = {book.bill.period for book in bills.books if book.version is None}
    return {model: _Months.of(warehouse, settings, model, bills).every(without) for model in settings.owners}


@dataclass(frozen=True)
class _Bills:
    """All ledgers in force, none of which is off, and the ladders of the device time that they bill."""

    books: Sequence[Book]
    ask: Ask
    ladders: Sequence[Ladder]

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings) -> _Bills:
        found = books(warehouse, settings.currency)
        closed(warehouse, found)  # a retrain, or a run's device time, may be on the bills of several months
        ask = asking(warehouse, found)
        return cls(found, ask, with_unsettled(ladders_of(ask), settled_months(found)))


@dataclass(frozen=True)
class _Months:
    """Everything about one model, by month: each table is read once, however many months there are."""

    warehouse: Warehouse
    settings: Settings
    model: str
    now: datetime
    books: Sequence[Book]
    spent: Mapping[str, MonthSpend]
    retrains: Mapping[str, Retrains]
    outcomes: Mapping[str, Counted]
    covered: Mapping[str, Covered]
    predictions: Mapping[str, int]
    ladders: Sequence[Ladder]

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings, model: str, bills: _Bills) -> _Months:
        if model not in settings.owners:
            settings.model(model)  # says which models there are
        now, ask = model_clock(warehouse, settings, model).now(), bills.ask
        estimates = estimates_of(warehouse, settings, model, now)
        outcomes = counted_by_month(warehouse, settings, model)
        block = settings.models.get(model)
        return cls(
            warehouse, settings, model, now, bills.books,
            spent=spend_by_month(ask, model, estimates),
            retrains=retrains_by_month(ask, model, estimates),
            outcomes=outcomes,
            covered={} if block is None else covered_by_month(warehouse, block, model, outcomes, now),
            predictions=predictions_by_month(warehouse, settings, model),
            ladders=[ladder for ladder in bills.ladders if ladder.model == model],
        )  # fmt: skip

    def every(self, without: Collection[str] = ()) -> list[UnitCost]:
        periods = {*self.spent, *self.retrains, *self.outcomes}.difference(without)
        return [self.month(period) for period in sorted(periods)]

    def month(self, period: str) -> UnitCost:
        ours = [book for book in self.books if book.bill.period == period]
        for book in ours:
            require_closed(self.warehouse, book)  # one without a ledger would make the month look cheap
        bills = [book.bill for book in ours]
        spent = self.spent.get(period, NOTHING_SPENT)
        outcome, days = self.outcomes.get(period), self.covered.get(period)
        whole = outcome if days is None or days.whole else None
        predictions, retrains = self.predictions.get(period, 0), self.retrains.get(period, Retrains(0, Decimal(0)))
        ladders = tuple(ladder for ladder in self.ladders if ladder.period == period)
        unsettled = outcome is not None and outcome.state == "provisional"
        start, end = month_bounds(period)
        return UnitCost(
            self.model, period, self.settings.currency, spent.total, spent.billed, spent.estimated, spent.unpriced_runs,
            spent.by_stage, spent.by_method, spent.by_run_outcome, outcome,
            per_outcome=per_count(spent.total, *(whole.bounds if whole else (None, None, None))),
            predictions=predictions,
            per_thousand_predictions=divided(spent.total * 1000, predictions),
            retrains=retrains.jobs,
            per_retrain=divided(retrains.cost, retrains.jobs),
            utilisation={stage: utilisation(ladder for ladder in ladders if ladder.stage == stage)
                         for stage in ("training", "serving")},
            deliveries=tuple(bill.delivery_id for bill in bills),
            provisional=bool(spent.estimated or spent.unpriced_runs or retrains.estimated) or unsettled
            or not {period, *retrains.rests_on} <= settled_months(self.books),
            covered=days,
            ladders=ladders,
            days=(end - start).days,
            known_days=max(0, (min(self.now, end) - start).days),
        )  # fmt: skip
