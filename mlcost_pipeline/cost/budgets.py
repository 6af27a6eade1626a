"""A model's monthly budget against what is spent and what the month is expected to cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from mlcost_pipeline.cost.forecast import Forecast, forecast
from mlcost_pipeline.settings import Settings, Spend
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Crossing:
    """A threshold that a month has crossed: its name, which is told once a month, and what to say."""

    name: str
    text: str


@dataclass(frozen=True)
class BudgetStatus:
    """How a month stands against its budget. Money is in the forecast's currency."""

    budget: Decimal
    warn_at: Decimal
    forecast: Forecast

    @property
    def used(self) -> Decimal:
        """Spent ÷ budget."""
        return self.forecast.spent / self.budget

    @property
    def crossings(self) -> list[Crossing]:
        """Thresholds crossed, the gravest first."""
        return list(self._crossings())

    @property
    def sentence(self) -> str:
        """One line for a person."""
        return (
            f"{self.forecast.sentence}; budget {self.budget:,.2f} {self.forecast.currency}, {self.used:.0%} of it used"
        )

    def _crossings(self) -> Iterator[Crossing]:
        told, budget = self.forecast, self.budget
        what = f"budget of {told.model} for {told.period}"
        if told.spent > budget:
            yield Crossing("over", f"{what} is spent. {self.sentence}")
        elif told.expected > budget:
            yield Crossing("forecast", f"{what} will not do. {self.sentence}")
        if told.spent >= budget * self.warn_at:
            yield Crossing(f"spent {self.warn_at:.0%}", f"{what} is used to {self.used:.0%}. {self.sentence}")


def spend_of(settings: Settings, model: str) -> Spend:
    """The budget block of a model, run by the pipeline or only accounted."""
    return settings.accounted[model].spend if model in settings.accounted else settings.model(model).spend


def budget_status(
    warehouse: Warehouse, settings: Settings, model: str, period: str, now: datetime | None = None
) -> BudgetStatus | None:
    """How `model` stands against its budget in `period` ("YYYY-MM"); None if it has no budget."""
    spend = spend_of(settings, model)
    if spend.monthly_budget is None:
        return None
    found = forecast(warehouse, settings, model, period, now)
    return BudgetStatus(spend.monthly_budget, Decimal(str(spend.warn_at)), found)
