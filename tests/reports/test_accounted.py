"""A project that runs no model itself: its bill and its outcomes are accounted, and every part of it works so."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from assets.names import months_of
from mlcost_pipeline.cost.months import mark_month, month_key, months_due
from mlcost_pipeline.reports.document import Document
from mlcost_pipeline.reports.main_report import build, write_report
from mlcost_pipeline.reports.metadata import as_metadata
from mlcost_pipeline.reports.stages import unit_cost_report
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import month, report_key, triggers
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.ledgers import part, write_ledger

MARCH, APRIL = "2024-03", "2024-04"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Settings:
    data = {
        "version": 1, "name": "elsewhere", "warehouse": str(tmp_path / "wh"),
        "accounted": {"ranker": {"unit": "orders", "spend": {"monthly_budget": "10"}}},
    }  # fmt: skip
    return Settings.model_validate(data)


@pytest.fixture
def billed(elsewhere: Settings) -> Warehouse:
    """Twice the money in April, for the same 100 orders."""
    warehouse = Warehouse(elsewhere.path(elsewhere.warehouse))
    for number, period in enumerate((MARCH, APRIL), 1):
        write_ledger(
            warehouse, part(str(20 * number), model="ranker", stage="serving", method="tag", hours=number),
            part("2", model=None, method="idle"), period=period,
        )  # fmt: skip
    warehouse.append("outcomes", [_orders(3), _orders(4)])
    return warehouse


def _orders(number: int, count: float = 100.0) -> dict[str, Any]:
    start, end = (datetime(2024, n, 1, tzinfo=UTC) for n in (number, number + 1))
    return {
        "model": "ranker", "model_version": "v1", "slice": "all", "unit": "orders", "definition_version": "1",
        "start": start, "end": end, "count": count, "low": count, "high": count, "state": "measured",
        "source": "their table",
    }  # fmt: skip


def _said(documents: list[Document]) -> dict[str, Document]:
    return {doc.title: doc for doc in documents}


def test_the_report_of_a_project_without_models_of_its_own(billed: Warehouse, elsewhere: Settings) -> None:
    said = _said(build(billed, elsewhere))
    assert said["In short"].summary.startswith("93.8 % of 64.00 USD is attributed to models, unattributed by reason: ")
    assert said["In short"].tables[0].title == "Why the bill moved, 2024-03 to 2024-04"
    assert "0.40 USD each in 2024-04, 40.00 USD for 100 orders" in said["Cost per outcome"].summary
    reading = next(t for t in said["Cost per outcome"].tables if t.title.startswith("What each month says"))
    assert [row[2] for row in reading.rows] == ["overspending", "first"]
    assert said["What this month will cost"].summary.startswith("ranker: ")
    assert all(as_metadata(doc) for doc in said.values())
    assert write_report(billed, elsewhere).path.exists()


def test_the_report_of_an_empty_project(elsewhere: Settings) -> None:
    assert _said(build(Warehouse(elsewhere.path(elsewhere.warehouse)), elsewhere))["Cost per outcome"].summary == (
        "ranker: cost per outcome unknown, because nothing was spent, run or earned in any month."
    )


def test_its_months_are_counted_and_counted_again_where_outcomes_came_late(
    billed: Warehouse, elsewhere: Settings
) -> None:
    due = months_due(billed, elsewhere, "ranker")
    assert {MARCH, APRIL} <= set(due)
    assert {request.job for request in month(billed, elsewhere, "ranker").requests} == {"ranker_month"}
    for period in due:
        mark_month(billed, "ranker", period, month_key(billed, elsewhere, "ranker", period))
    assert not months_due(billed, elsewhere, "ranker")
    billed.append("outcomes", [_orders(3, 120.0)])
    assert set(months_due(billed, elsewhere, "ranker")) == {MARCH}
    partitions = months_of(elsewhere, "ranker")
    assert partitions.get_first_partition_key() == "2020-01" and partitions.has_partition_key(APRIL)


def test_every_trigger_answers(billed: Warehouse, elsewhere: Settings) -> None:
    found = {name: trigger(billed, elsewhere) for name, trigger in triggers(elsewhere).items()}
    assert list(found) == ["records", "bills", "ledgers", "ranker_month", "budgets", "report"]
    assert all(each.requests or each.reason for each in found.values())
    assert report_key(billed, elsewhere) == report_key(billed, elsewhere)


def test_a_month_has_its_own_numbers(billed: Warehouse, elsewhere: Settings) -> None:
    from mlcost_pipeline.cost.unit_cost import unit_costs

    costs = unit_costs(billed, elsewhere, "ranker")
    doc = unit_cost_report("ranker", costs, elsewhere, period=MARCH)
    numbers = {number.key: number.value for number in doc.numbers}
    assert (numbers["spend"], numbers["cost_per_outcome"], numbers["outcomes"]) == (Decimal(20), Decimal("0.2"), 100)
    assert len(doc.pictures[0].table.rows) == 1, "only the months so far"
