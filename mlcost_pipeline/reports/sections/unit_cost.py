"""What one outcome cost, per model and month."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from mlcost_pipeline.cost.books import books, left_out
from mlcost_pipeline.cost.unit_cost import UnitCost, unit_costs_of_all
from mlcost_pipeline.reports.document import PROXY, Document, Number
from mlcost_pipeline.reports.dress import dressed, listed
from mlcost_pipeline.reports.stages.unit_costs import (
    by_stage_table,
    ladder_pictures,
    ladder_table,
    marks_of,
    months_table,
    newest_measured,
    ratio_value,
    readings_table,
    run_outcomes_table,
    spend_pictures,
    unit_cost_sentence,
)
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "Cost per outcome"


def unit_cost(warehouse: Warehouse, settings: Settings) -> Document:
    """One sentence a model; months, stages and utilisation below; outcomes of different models are never added up."""
    plans = unit_costs_of_all(warehouse, settings)
    missing = left_out(books(warehouse, settings.currency), settings)
    numbers = []
    for model, costs in plans.items():
        shown = newest_measured(costs)
        each: Decimal | None = ratio_value(shown.per_outcome) if shown else None
        bound = f"{shown.period}" if shown else None
        numbers.append(Number(f"{model}_cost_per_outcome", f"{model}, each", each, settings.currency, bound=bound))
    doc = Document(
        title=TITLE,
        summary=listed(
            [_sentence(model, costs, settings, missing) for model, costs in plans.items()], "no model is configured"
        )
        + ".",
        numbers=numbers,
        tables=[
            months_table(plans),
            readings_table(plans),
            by_stage_table(plans),
            run_outcomes_table(plans),
            ladder_table(plans),
        ],
        pictures=[*spend_pictures(plans), *ladder_pictures(plans)],
        notes=[f"{said}." for said in missing],
    )
    proxy = [PROXY] if any(block.outcome.unit == "hits" for block in settings.models.values()) else []
    every = [cost for costs in plans.values() for cost in costs]
    return dressed(doc.marked(*proxy, *marks_of(every)), settings)


def _sentence(model: str, costs: Sequence[UnitCost], settings: Settings, missing: Sequence[str]) -> str:
    if not costs and missing:
        return f"{model}: cost per outcome unknown, because no ledger stands on the bill yet"
    return unit_cost_sentence(model, costs, settings)
