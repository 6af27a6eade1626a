"""Why the bill moved: a split that adds up exactly, has no order, and names the cause that a person would."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mlcost_pipeline.clock import model_clock, set_clock
from mlcost_pipeline.cost.asof import note_in_force
from mlcost_pipeline.cost.books import books
from mlcost_pipeline.cost.bridge import Bridge, bridge, last_two_months
from mlcost_pipeline.cost.bridge_split import Factors, split_change, terms, whole_units
from mlcost_pipeline.errors import BillError, Unreconciled
from mlcost_pipeline.reports.as_of import warehouse_as_of
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, past_run
from tests.cost.ledgers import part, write_ledger

FEB = "2026-02"
MARCH = "2026-03"

hours = st.fractions(0, 1000, max_denominator=3600)
pools = st.dictionaries(st.sampled_from("abc"), hours, max_size=3)
money = st.dictionaries(st.sampled_from("abc"), st.integers(-(10**24), 10**24), max_size=3)
shares = st.none() | st.fractions(0, 1, max_denominator=100)
months = st.builds(Factors, st.none() | st.integers(0, 9), pools, money, shares, st.integers(-(10**20), 10**20))


@examples(max_examples=200, deadline=None)
@given(months, months)
def test_the_parts_add_up_and_the_way_back_is_the_negative(before: Factors, after: Factors) -> None:
    parts, back = split_change(before, after), split_change(after, before)
    assert sum(parts.values()) == after.total - before.total
    assert all(parts[factor] == -back[factor] for factor in parts)
    units, returned = whole_units(list(parts.values())), whole_units(list(back.values()))
    assert sum(units) == after.total - before.total
    assert units == [-unit for unit in returned]


@examples(max_examples=200, deadline=None)
@given(months, months)
def test_a_factor_that_did_not_change_has_no_effect(before: Factors, after: Factors) -> None:
    old, new = terms(before, after)
    for factor, amount in split_change(before, after).items():
        if factor != "other" and old.of(factor) == new.of(factor):
            assert amount == 0


@examples(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["count", "hours", "utilisation", "price", "mix"]))
def test_where_one_factor_changed_it_has_everything(n: int, times: int, factor: str) -> None:
    before = Factors(n, {"a": Fraction(6), "b": Fraction(2)}, {"a": 60, "b": 200}, Fraction(1, 4))
    grown = {pool: value * times for pool, value in before.hours.items()}
    paid = {pool: value * times for pool, value in before.spend.items()}
    used = Fraction(1, 4) / times
    after = {
        "count": Factors(n * times, grown, paid, Fraction(1, 4)),
        "hours": Factors(n, grown, paid, Fraction(1, 4)),
        "utilisation": Factors(n, grown, paid, used),
        "price": replace(before, spend=paid),
        "mix": Factors(n, {"a": Fraction(4), "b": Fraction(4)}, {"a": 40, "b": 400}, Fraction(1, 4)),
    }[factor]
    parts = split_change(before, after)
    assert parts.pop(factor) == after.total - before.total
    assert not any(parts.values())


def test_from_nothing_the_number_of_trainings_has_it_all() -> None:
    parts = split_change(Factors(0), Factors(3, {"spot": Fraction(6)}, {"spot": 60}))
    assert {name: value for name, value in parts.items() if value} == {"count": 60}


def _two_months(warehouse: Warehouse) -> None:
    """One training of 2 h at 3 USD in February, three such in March; more idle time; a model that is new."""
    for name in ("f1", "m1", "m2", "m3"):
        past_run(warehouse, name, pool="steady", busy_seconds=3600.0, busy_metric="cpu", busy_coverage=1.0, hours=2)
    write_ledger(warehouse, part("6", run="f1", hours=2), part("1", model=None, method="idle"), period=FEB)
    write_ledger(
        warehouse, *(part("6", run=name, hours=2) for name in ("m1", "m2", "m3")),
        part("3", model=None, method="idle"), part("2", model="recs", stage="features", hours=1), period=MARCH,
    )  # fmt: skip


def causes(found: Bridge) -> dict[str, Decimal]:
    return {row.name: row.amount for row in found.rows}


def test_why_did_it_triple(warehouse: Warehouse, settings: Settings) -> None:
    _two_months(warehouse)
    found = bridge(warehouse, settings, FEB, MARCH)
    assert causes(found) == {
        "fraud: number of trainings": Decimal(12), "unattributed: idle": Decimal(2),
        "recs: new model": Decimal(2),
    }  # fmt: skip
    assert (found.total_a, found.total_b, found.difference) == (Decimal(7), Decimal(23), Decimal(16))
    assert found.sentence == (
        "the bill rose from 7.00 USD in 2026-02 to 23.00 in 2026-03 (3.3 times): mostly fraud: number of "
        "trainings (+12.00 USD, 1 to 3), then recs: new model (+2.00 USD)"
    )
    assert sum(row.amount for row in found.rows) == found.difference
    back = bridge(warehouse, settings, MARCH, FEB)
    assert sorted(-amount for amount in causes(back).values()) == sorted(causes(found).values())
    assert "recs: vanished model" in causes(back)


def test_of_one_model_only_its_money_moves(warehouse: Warehouse, settings: Settings) -> None:
    _two_months(warehouse)
    assert causes(bridge(warehouse, settings, FEB, MARCH, "fraud")) == {"fraud: number of trainings": Decimal(12)}


def test_price_mix_and_hours_are_told_apart(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "f1", pool="steady")
    for name, pool in (("m1", "steady"), ("m2", "spot")):
        past_run(warehouse, name, pool=pool)
    write_ledger(warehouse, part("12", run="f1", hours=4), period=FEB)
    write_ledger(warehouse, part("8", run="m1", hours=2), part("2", run="m2", hours=2), period=MARCH)
    found = bridge(warehouse, settings, FEB, MARCH)
    assert set(causes(found)) == {
        "fraud: number of trainings", "fraud: hours per training",
        "fraud: price of training", "fraud: mix of training",
    }  # fmt: skip
    assert sum(causes(found).values()) == Decimal(-2)
    assert causes(found)["fraud: price of training"] > 0 > causes(found)["fraud: mix of training"]
    [mix] = [row for row in found.rows if row.cause == "mix of training"]
    assert (mix.before, mix.after) == ("spot 0%, steady 100%", "spot 50%, steady 50%")
    assert "Utilisation is not known in both months" in found.notes[0]


def test_a_fall_of_utilisation_is_its_own_cause(warehouse: Warehouse, settings: Settings) -> None:
    busy: dict[str, Any] = {"busy_metric": "cpu", "busy_coverage": 1.0, "busy_seconds": 3600.0}
    past_run(warehouse, "f1", hours=2, **busy)
    past_run(warehouse, "m1", hours=4, **busy)
    write_ledger(warehouse, part("6", run="f1", hours=2), period=FEB)
    write_ledger(warehouse, part("12", run="m1", hours=4), period=MARCH)
    [row] = bridge(warehouse, settings, FEB, MARCH).rows
    assert (row.cause, row.amount, row.before, row.after) == ("utilisation of training", Decimal(6), "50.0%", "25.0%")


def test_money_without_hours_or_a_unit_is_compared_as_what_it_is(warehouse: Warehouse, settings: Settings) -> None:
    write_ledger(warehouse, part("4", stage="features", method="tag", hours=2), part("1", method="rule"), period=FEB)
    write_ledger(warehouse, part("6", stage="features", method="tag", hours=3), part("3", method="rule"), period=MARCH)
    assert causes(bridge(warehouse, settings, FEB, MARCH)) == {
        "fraud: hours of features": Decimal(2), "fraud: training without hours": Decimal(2)
    }  # fmt: skip


def test_only_months_that_close_are_compared(warehouse: Warehouse, settings: Settings) -> None:
    _two_months(warehouse)
    row = next(row for row in warehouse.rows("bill_deliveries") if row["period"] == FEB)
    warehouse.append("bill_deliveries", [{**row, "effective_total": row["effective_total"] + Decimal("1e-18")}])
    with pytest.raises(Unreconciled, match="2026-02"):
        bridge(warehouse, settings, FEB, MARCH)


def test_a_month_without_a_bill_and_no_month_are_refused(warehouse: Warehouse, settings: Settings) -> None:
    _two_months(warehouse)
    with pytest.raises(BillError, match="2026-01: no bill in USD"):
        bridge(warehouse, settings, "2026-01", FEB)
    with pytest.raises(BillError, match="'march' is no month"):
        bridge(warehouse, settings, FEB, "march")


def test_the_last_two_months_are_whole_and_an_open_bill_is_provisional(
    warehouse: Warehouse, settings: Settings
) -> None:
    assert last_two_months(warehouse, settings) is None
    _two_months(warehouse)
    write_ledger(warehouse, part("9"), period="2026-04")  # not over by the models' clock
    assert last_two_months(warehouse, settings) == (FEB, MARCH)
    write_ledger(warehouse, part("9"), period=MARCH, state="open")
    found = bridge(warehouse, settings, FEB, MARCH)
    assert found.provisional and "provisional: d-acct-1-2026-03" in found.sentence


def test_as_of_a_day_a_month_that_was_not_over_then_is_not(warehouse: Warehouse, settings: Settings) -> None:
    _two_months(warehouse)
    write_ledger(warehouse, part("9"), period="2026-04")
    for name in settings.models:
        set_clock(warehouse, name, datetime(2026, 5, 10, tzinfo=UTC), 1.0)
    assert last_two_months(warehouse, settings) == (MARCH, "2026-04")
    day = datetime(2026, 4, 20, tzinfo=UTC)
    for book in books(warehouse, None):
        assert book.version is not None
        note_in_force(warehouse, ACCOUNT, book.bill.period, book.version, book.bill.delivery_id, day)
    then = warehouse_as_of(warehouse, day)
    assert len(books(then, None)) == 3 and last_two_months(then, settings) == (FEB, MARCH)
    assert model_clock(then, settings, PLATFORM).now() == day < model_clock(warehouse, settings, PLATFORM).now()
