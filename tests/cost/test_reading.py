"""The monthly reading: what spend and cost per outcome say together, and which months say nothing together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from mlcost_pipeline.clock import set_clock
from mlcost_pipeline.cost.counted import Counted, month_bounds
from mlcost_pipeline.cost.coverage import Covered
from mlcost_pipeline.cost.ratio import per_count
from mlcost_pipeline.cost.reading import NAMES, Reading, reading, readings
from mlcost_pipeline.cost.trend import ratio_trend, spend_trend
from mlcost_pipeline.cost.unit_cost import UnitCost, unit_costs
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import NOON, past_run
from tests.cost.ledgers import part, write_ledger

DAYS = {"2026-03": 31, "2026-04": 30, "2026-05": 31}


def month(
    period: str, spent: str, count: float | None, low: float | None = None, high: float | None = None,
    definition: str = "1", **more: Any,
) -> UnitCost:  # fmt: skip
    """A month of the fraud model; without bounds its count is exact."""
    bounds = (count if low is None else low, count if high is None else high)
    start, end = month_bounds(period)
    outcome = None
    if count is not None:
        outcome = Counted(count, *bounds, "fraud_caught", definition, "measured", start, end)
    cost = UnitCost(
        "fraud", period, "USD", Decimal(spent), Decimal(spent), Decimal(0), 0, {}, {}, {}, outcome,
        per_count(Decimal(spent), count, *bounds), 0, None, 0, None, {}, (), False, days=DAYS[period],
        known_days=DAYS[period],
    )  # fmt: skip
    return replace(cost, **more)


def read(before: UnitCost | None, now: UnitCost) -> Reading:
    return reading(before, now)


@pytest.mark.parametrize(
    ("spent", "caught", "name"),
    [
        ("300", 10, "starved"),
        ("600", 40, "growing"),
        ("300", 20, "steady"),
        ("300", 40, "improving"),
        ("600", 20, "overspending"),
        ("600", 80, "scaling"),
        ("150", 5, "cut_too_deep"),
        ("150", 10, "shrinking"),
        ("150", 20, "leaner"),
    ],
)
def test_each_pair_of_trends_has_its_name(spent: str, caught: float, name: str) -> None:
    found = read(month("2026-03", "310", 20), month("2026-04", spent, caught))
    assert (found.name, found.provisional) == (name, False)
    assert len(NAMES) == 9 and len({name for name, _ in NAMES.values()}) == 9
    assert found.sentence.startswith(f"fraud, 2026-04: {name.replace('_', ' ')}, ")


def test_the_sentence_carries_the_numbers() -> None:
    found = read(month("2026-03", "310", 20, 10, 31), month("2026-04", "300", 5, 4, 6))
    assert found.sentence == (
        "fraud, 2026-04: starved, spend is flat (310.00 to 300.00 USD, +0.0% a day) and the cost of one of its fraud "
        "cases caught rose (15.50 USD [10.00 to 31.00] to 60.00 USD [50.00 to 75.00], +287.1%): the same money earns "
        "less"
    )
    exact = read(month("2026-03", "310", 20), month("2026-04", "300", 20)).sentence
    assert "(15.50 USD to 15.00 USD, -3.2%)" in exact


def test_a_change_inside_the_interval_is_none() -> None:
    before = month("2026-03", "310", 20, 10, 31)  # 15.5 each, 10 to 31
    assert read(before, month("2026-04", "300", 12, 6, 18)).name == "steady"  # 25 each: inside the old interval
    assert read(month("2026-03", "310", 20), month("2026-04", "300", 12, 6, 25)).name == "steady"  # the old inside its
    assert read(before, month("2026-04", "300", 9, 6, 18)).name == "starved"  # 33 each (17 to 50): outside both


def test_a_count_that_may_be_nought_has_no_bound_and_hides_every_rise() -> None:
    before = month("2026-03", "310", 20, 0, 31)
    found = read(before, month("2026-04", "300", 1))
    assert found.each is not None and found.each.direction == "flat"
    assert "[10.00 to ∞]" in found.sentence


def test_months_without_an_outcome_cost_without_end() -> None:
    some, none = month("2026-03", "310", 20), month("2026-04", "300", 0)
    found = read(some, none)
    assert (found.name, found.each and found.each.now) == ("starved", Decimal("Infinity"))
    assert "∞ [no outcome]" in found.sentence
    assert read(replace(none, period="2026-03"), month("2026-04", "300", 20)).name == "improving"
    assert read(replace(none, period="2026-03"), none).name == "steady"


def test_a_bill_is_compared_by_the_day() -> None:
    assert spend_trend(Decimal(310), Decimal(280), 31, 28).direction == "flat"
    assert spend_trend(Decimal(310), Decimal(310), 31, 28).direction == "rising"
    assert spend_trend(Decimal(0), Decimal(0), 31, 30).direction == "flat"
    assert spend_trend(Decimal(0), Decimal(1), 31, 30).direction == "rising"
    assert spend_trend(Decimal(-10), Decimal(-20), 30, 30).direction == "falling"  # more credits
    unknown = per_count(Decimal(3), None)
    assert ratio_trend(unknown, unknown).direction == "unknown"


WHOLE = month("2026-03", "310", 20)


@pytest.mark.parametrize(
    ("before", "now", "name", "why"),
    [
        (None, month("2026-04", "300", 9), "first", "nothing is known of the month before"),
        (WHOLE, month("2026-04", "300", None), "unknown", "no outcome of 2026-04 was measured, for 300.00 USD spent"),
        (month("2026-03", "310", None), month("2026-04", "300", 9), "unknown", "no outcome of 2026-03 was measured"),
        (WHOLE, month("2026-04", "90", 3, known_days=9), "partial", "2026-04 has 9 of 30 days so far, with 90.00 USD"),
        (WHOLE, month("2026-04", "300", 9, covered=Covered(20, 30)), "partial", "only 20 of 30 days were scored"),
        (month("2026-03", "310", 9, covered=Covered(0, 31, "served")), month("2026-04", "300", 9), "partial",
         "in 2026-03 only 0 of 31 days were served, for 310.00 USD spent of the whole month"),
        (WHOLE, month("2026-04", "300", 9, definition="2"), "not_comparable",
         "2026-03 counts fraud_caught v1 at 15.50 USD (15.50 to 15.50) each, 2026-04 counts fraud_caught v2 at"),
        (WHOLE, month("2026-04", "300", 9, currency="EUR"), "not_comparable", "2026-03 is in USD and 2026-04 in EUR"),
    ],
)  # fmt: skip
def test_months_that_say_nothing_together_are_not_compared(
    before: UnitCost | None, now: UnitCost, name: str, why: str
) -> None:
    found = read(before, now)
    assert (found.name, found.each) == (name, None)
    assert why in found.sentence and found.sentence.startswith(f"fraud, 2026-04: {name.replace('_', ' ')}: ")


def test_what_may_still_change_says_so_and_what_has_no_price_is_named() -> None:
    found = read(WHOLE, month("2026-04", "300", 9, provisional=True, unpriced_runs=2))
    assert found.provisional and found.name == "starved"
    assert found.sentence.endswith("; 2 runs of unknown price are not in it (provisional, may still change)")
    assert read(replace(WHOLE, provisional=True), month("2026-04", "300", 9)).provisional


def test_only_the_calendar_month_before_is_compared_with() -> None:
    march, may = month("2026-03", "310", 20), month("2026-05", "310", 20)
    assert [found.name for found in readings([march, may])] == ["first", "first"]
    january = replace(march, period="2026-01")
    assert [found.name for found in readings([replace(march, period="2025-12"), january])] == ["first", "steady"]


def test_a_year_of_ledgers_is_read_and_an_old_definition_is_not_compared(
    warehouse: Warehouse, settings: Settings
) -> None:
    counts = {"2026-01": (8, "0"), "2026-02": (28, "1"), "2026-03": (31, "1"), "2026-04": (6, "1")}
    for number, (period, (count, definition)) in enumerate(counts.items()):
        start, end = month_bounds(period)
        past_run(warehouse, period, start=start)
        write_ledger(warehouse, part(str(10 * (end - start).days + number), run=period), period=period)
        warehouse.append("outcomes", [{
            "model": "fraud", "model_version": "v1", "start": start, "end": end, "slice": "all",
            "unit": "fraud_caught", "definition_version": definition, "count": count, "low": count, "high": count,
            "state": "measured", "source": "labels",
        }])  # fmt: skip
    set_clock(warehouse, "fraud", datetime(2026, 5, 2, tzinfo=UTC), 1)
    found = readings(unit_costs(warehouse, settings, "fraud"))
    assert [(reading.period, reading.name) for reading in found] == [
        ("2026-01", "first"), ("2026-02", "not_comparable"), ("2026-03", "steady"), ("2026-04", "starved"),
    ]  # fmt: skip
    set_clock(warehouse, "fraud", NOON + timedelta(days=30), 1)
    assert readings(unit_costs(warehouse, settings, "fraud"))[-1].name == "partial"
