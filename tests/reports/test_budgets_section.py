"""What the month under way will cost, and whether its budget will do."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from mlcost_pipeline.clock import set_clock
from mlcost_pipeline.reports.sections.budgets import budgets
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import two_models
from tests.cost.ledgers import part, write_ledger


def test_a_budget_that_is_spent_is_said_first_and_a_model_without_one_says_so(warehouse: Warehouse) -> None:
    elsewhere = {"ranker": {"unit": "orders", "spend": {"monthly_budget": "5"}}}
    settings = two_models(accounted=elsewhere)
    for model in settings.models:
        set_clock(warehouse, model, datetime(2026, 3, 30, tzinfo=UTC), 1.0)
    write_ledger(warehouse, part("6", model="ranker", method="tag"), part("1"), state="open")
    doc = budgets(warehouse, settings)
    assert "ranker: " in doc.summary and "of a budget of 5.00 USD, crossed: over" in doc.summary
    spent, _, quiet = doc.summary.split("; ")
    assert "no budget set" in spent and quiet == "recs: nothing expected, no budget set."
    assert {number.key: number.value for number in doc.numbers} == {"budgets": 1, "crossed": 1}
    [row] = [row for row in doc.tables[0].rows if row[0] == "ranker"]
    assert row[5].value == Decimal(5) and row[7] == "over"  # type: ignore[union-attr]
    assert "budget of ranker for 2026-03 is spent" in doc.notes[0]
    assert "PROVISIONAL" in doc.marks
