"""How values are written: unknown is never zero, infinity is a sign, money keeps its digits."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcost_pipeline.reports.values import Quantity, show, show_number


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "USD", "unknown"),
        (math.nan, "", "unknown"),
        (Decimal("NaN"), "USD", "unknown"),
        (math.inf, "USD", "∞ USD"),
        (Decimal("-Infinity"), "USD", "−∞ USD"),
        (math.inf, "share", "∞"),
        (Decimal("1234567.891"), "USD", "1\u202f234\u202f567.89 USD"),
        (Decimal("-3.2"), "USD", "−3.20 USD"),
        (Decimal("0"), "USD", "0.00 USD"),
        (Decimal("0.0001234"), "USD", "0.000123 USD"),
        (Decimal("0.5"), "USD", "0.50 USD"),
        (Decimal("-0.00"), "USD", "0.00 USD"),
        (0.8861, "share", "88.6 %"),
        (-0.02, "share", "−2 %"),
        (90, "s", "90 s"),
        (5000.0, "s", "83.3 min"),
        (20000, "s", "5.6 h"),
        (1e6, "s", "11.6 d"),
        (1234, "rows", "1\u202f234 rows"),
        (0.000012345, "", "0.00001234"),
        (1e20, "", "100\u202f000\u202f000\u202f000\u202f000\u202f000\u202f000"),
        (2**70, "", "1\u202f180\u202f591\u202f620\u202f717\u202f411\u202f303\u202f424"),
        (True, "", "yes"),
    ],
)
def test_a_number_reads(value: object, unit: str, shown: str) -> None:
    assert show_number(value, unit) == shown  # type: ignore[arg-type]


def test_exact_money_shows_the_last_unit() -> None:
    assert str(Quantity(Decimal("1000.000000000000000001"), "USD", exact=True)) == "1\u202f000.000000000000000001 USD"
    assert str(Quantity(Decimal("0"), "USD", exact=True)) == "0 USD"


@settings(max_examples=100, deadline=None)
@given(units=st.integers(-(10**38) + 1, 10**38 - 1))
def test_exact_money_keeps_all_digits_that_a_bill_can_have(units: int) -> None:
    amount = Decimal(f"{units}e-18")
    read_back = str(Quantity(amount, "USD", exact=True)).removesuffix(" USD").replace("\u202f", "").replace("−", "-")
    assert Decimal(read_back).compare(amount, context=Context(prec=40)) == 0
    rounded = show_number(amount, "USD").removesuffix(" USD").replace("\u202f", "").replace("−", "-")
    assert abs(Fraction(rounded) - Fraction(units, 10**18)) <= Fraction(1, 200)


def test_cells_of_every_kind() -> None:
    assert show(datetime(2025, 6, 1, 9, 5, tzinfo=UTC)) == "2025-06-01 09:05"
    assert show(date(2025, 6, 1)) == "2025-06-01"
    assert show(None) == "unknown"
    assert show(False) == "no"
    assert show("007") == "007"
