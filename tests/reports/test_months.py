"""Months that changed are counted again, and no others; a report of then sees the ledgers of then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from assets.names import months_of
from mlcost_pipeline.clock import set_clock
from mlcost_pipeline.cost.asof import note_in_force
from mlcost_pipeline.cost.months import mark_counted, mark_month, month_key, months_due
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.reports.as_of import warehouse_as_of
from mlcost_pipeline.reports.ledger_view import read_spend
from mlcost_pipeline.reports.waterfall import Step, waterfall
from mlcost_pipeline.triggers import month
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, PERIOD, two_models
from tests.cost.ledgers import part, write_ledger

SETTINGS = two_models()
APRIL_9 = datetime(2026, 4, 9, 6, tzinfo=UTC)


def _count(warehouse: Warehouse) -> list[str]:
    due = sorted(months_due(warehouse, SETTINGS, "fraud"))
    for period in due:
        mark_month(warehouse, "fraud", period, month_key(warehouse, SETTINGS, "fraud", period))
    return due


def test_only_months_that_changed_are_counted_again(warehouse: Warehouse) -> None:
    set_clock(warehouse, "fraud", APRIL_9, 1.0)
    write_ledger(warehouse, part("4"), period="2026-02")  # before the model's first day: it has no such month
    write_ledger(warehouse, part("4"))
    assert _count(warehouse) == [PERIOD, "2026-04"]
    assert month(warehouse, SETTINGS, "fraud").reason.endswith("up to 2026-04-08 on the ledgers in force")
    write_ledger(warehouse, part("5"))
    [request] = month(warehouse, SETTINGS, "fraud").requests
    assert (request.job, request.partition) == ("fraud_month", PERIOD)
    assert _count(warehouse) == [PERIOD]
    set_clock(warehouse, "fraud", APRIL_9 + timedelta(days=1), 1.0)
    assert _count(warehouse) == ["2026-04"]
    row = {"model_version": "v", "slice": "all", "definition_version": "1", "low": 1, "high": 1, "state": "measured"}
    mark_counted(warehouse, "fraud", [{**row, "start": datetime(2026, 3, 1, tzinfo=UTC), "count": 1}])
    assert _count(warehouse) == [PERIOD]


def test_a_clock_that_leaves_its_months_says_so(warehouse: Warehouse) -> None:
    partitions = months_of(SETTINGS, "fraud")
    assert partitions.get_first_partition_key() == PERIOD and partitions.has_partition_key("2028-04")
    set_clock(warehouse, "fraud", datetime(2028, 5, 3, tzinfo=UTC), 1.0)
    found = month(warehouse, SETTINGS, "fraud")
    assert not found.requests and "its clock reads 2028-05, and months are kept up to 2028-04" in found.reason


def test_a_report_of_then_sees_the_ledgers_of_then(warehouse: Warehouse) -> None:
    for day, amount in ((5, "4"), (8, "7")):
        write_ledger(warehouse, part(amount))
        version = warehouse.current("cost_ledger", f"{ACCOUNT}|{PERIOD}")
        assert version is not None
        at = datetime(2026, 4, day, tzinfo=UTC)
        note_in_force(warehouse, ACCOUNT, PERIOD, version, version.removeprefix("l-"), at)
    seen = [read_spend(warehouse_as_of(warehouse, datetime(2026, 4, day, tzinfo=UTC))) for day in (6, 9)]
    assert [[entry.effective for entry in entries] for entries in seen] == [[Decimal(4)], [Decimal(7)]]
    with pytest.raises(BillError, match="no ledger was in force yet; the first came into force at 2026-04-05"):
        warehouse_as_of(warehouse, datetime(2026, 4, 1, tzinfo=UTC))


def test_a_waterfall_reaches_the_second_total() -> None:
    made = waterfall(
        "moved", ("a", Decimal(900)), [Step("x", Decimal(30)), Step("y", Decimal(-10))], ("b", Decimal(920))
    )
    assert [row[2].value for row in made.table.rows] == [900, 930, 920, 920]  # type: ignore[union-attr]
    assert "axis from" in made.svg and "axis from" not in waterfall("m", ("a", Decimal(0)), [], ("b", Decimal(0))).svg
