"""What the month under way will cost each model, and whether its budget will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.budgets import BudgetStatus, Crossing, spend_of
from mlcost_pipeline.cost.forecast import Forecast, forecast
from mlcost_pipeline.reports.document import ESTIMATE, PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import dressed, listed
from mlcost_pipeline.reports.pictures import bars
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "What this month will cost"


@dataclass(frozen=True)
class _Month:
    told: Forecast
    status: BudgetStatus | None

    @property
    def crossing(self) -> Crossing | None:
        """The gravest threshold that was crossed."""
        return next(iter(self.status.crossings), None) if self.status else None


def budgets(warehouse: Warehouse, settings: Settings) -> Document:
    """A row a model at its own clock: spent, expected with its interval, budget; a model without a budget says so."""
    months = [_month(warehouse, settings, model) for model in settings.owners]
    crossed = [month for month in months if month.crossing is not None]
    with_budget = [month for month in months if month.status is not None]
    doc = Document(
        title=TITLE,
        summary=_summary(months),
        numbers=[
            Number("budgets", "models with a budget", len(with_budget)),
            Number("crossed", "budgets that will not do, or nearly so", len(crossed), bound="0 wanted"),
        ],
        tables=[_table(months)],
        pictures=_pictures(months, settings.currency),
        notes=[
            *(month.crossing.text for month in crossed if month.crossing is not None),
            *dict.fromkeys(f"{said}." for month in months for said in month.told.left_out),
        ],
    )
    marks = [ESTIMATE] if any(month.told.estimated for month in months) else []
    return dressed(doc.marked(*marks, PROVISIONAL), settings)


def _month(warehouse: Warehouse, settings: Settings, model: str) -> _Month:
    now, spend = model_clock(warehouse, settings, model).now(), spend_of(settings, model)
    told = forecast(warehouse, settings, model, now.strftime("%Y-%m"), now)
    if spend.monthly_budget is None:
        return _Month(told, None)
    return _Month(told, BudgetStatus(spend.monthly_budget, Decimal(str(spend.warn_at)), told))


def _summary(months: Sequence[_Month]) -> str:
    """A sentence each where there is something to say; models without a budget that spend nothing share one."""
    told = [month for month in months if month.status is not None or month.told.expected or month.told.spent]
    quiet = [month.told.model for month in months if month not in told]
    said = [_sentence(month) for month in told]
    if len(quiet) > 1:
        said.append(f"no budget is set and nothing expected for {len(quiet)} {'others' if told else 'models'}")
    elif quiet:
        said.append(f"{quiet[0]}: nothing expected, no budget set")
    return listed(said, "no model is named") + "."


def _sentence(month: _Month) -> str:
    told = month.told
    head = f"{told.model}: {show_number(told.expected, told.currency)} expected for {told.period}"
    sure = f" ({_interval(told)})" if told.low != told.high else ""
    if month.status is None:
        return f"{head}{sure}, no budget set"
    budget = show_number(month.status.budget, told.currency)
    crossing = month.crossing
    does = "which will do" if crossing is None else f"crossed: {crossing.name}"
    return f"{head}{sure} of a budget of {budget}, {does}"


def _interval(told: Forecast) -> str:
    return f"{show_number(told.low, told.currency)} to {show_number(told.high, told.currency)}"


def _table(months: Sequence[_Month]) -> Table:
    rows: list[list[Cell]] = []
    for month in months:
        told, status = month.told, month.status
        rows.append(
            [
                told.model, told.period, Quantity(told.expected, told.currency), Quantity(told.low, told.currency),
                Quantity(told.high, told.currency),
                "none" if status is None else Quantity(status.budget, told.currency),
                "" if status is None else Quantity(float(status.used), "share"),
                "" if month.crossing is None else month.crossing.name,
                Quantity(told.billed, told.currency), Quantity(told.estimated, told.currency), told.rate_days,
            ]
        )  # fmt: skip
    columns = ["model", "month", "expected", "low", "high", "budget", "used", "crossed", "billed", "estimated",
               "from days"]  # fmt: skip
    return Table("Spent, expected and budget", columns, rows, empty="no model is named")


def _pictures(months: Sequence[_Month], currency: str) -> list[Picture]:
    entries: list[tuple[str, Decimal]] = []
    for month in months:
        model = month.told.model
        entries += [(f"spent, {model}", month.told.spent), (f"expected, {model}", month.told.expected)]
        if month.status is not None:
            entries.append((f"budget, {model}", month.status.budget))
    if not any(amount for _, amount in entries):
        return []
    return [bars("Spent, expected and budget", entries, unit=currency, columns=("what", "money"))]
