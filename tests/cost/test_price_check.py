"""The price book held against the bill: what it said of runs that are billed now, and what to set it to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.price_check import check_prices, check_runs, rate
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, two_models, write_bill
from tests.cost.ledgers import part, write_ledger

MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)


@pytest.fixture
def settings() -> Settings:
    return two_models(prices={"gpu": "2.48"})


def test_a_spot_estimate_of_a_hundredth_is_shown_as_what_it_was_short_of(
    warehouse: Warehouse, settings: Settings
) -> None:
    """opencost#882: estimated 0.007, billed 0.210."""
    past_run(warehouse, "r1", pool="spot-a", price=Decimal("0.007"))
    write_ledger(warehouse, part("0.210", run="r1", hours=1))
    [run], _ = check_runs(warehouse, settings, APRIL)
    assert (run.estimated, run.billed, run.difference) == (Decimal("0.007"), Decimal("0.210"), Decimal("0.203"))
    [warning] = check_prices(warehouse, settings, APRIL).warnings
    assert warning == (
        "price recorded with the run (pool spot-a) says 0.00700 USD/h, the bill says 0.210 USD/h "
        "over 1.0 h of 1 run: set capacity.pools spot-a to 0.210"
    )


def test_a_price_is_told_what_the_bill_says_with_derived_charges_in(warehouse: Warehouse, settings: Settings) -> None:
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    past_run(warehouse, "r1", hours=200)
    past_run(warehouse, "r2", hours=220, share=500)
    write_ledger(
        warehouse, part("500", run="r1", hours=200), part("20", run="r1", method="derived", reason="tax"),
        part("286", run="r2", hours=110, method="occupancy"),
    )  # fmt: skip
    found = check_prices(warehouse, settings, APRIL)
    [gpu] = found.sources
    assert (gpu.runs, gpu.resource_hours, gpu.estimated, gpu.billed) == (2, 310, Decimal("768.8"), 806)
    assert found.warnings == []  # 4.8 % off
    assert found.sentence == (
        "The price book said 768.8000 USD of 2 runs, the bill says 806.0000, +4.8%; 0 of 1 prices off by more than 5%."
    )
    dearer = check_prices(warehouse, two_models(prices={"gpu": "2.30"}), APRIL)
    assert dearer.warnings == [
        "prices.gpu says 2.30 USD/h, the bill says 2.60 USD/h (0.0645 of it tax, support and discounts) "
        "over 310.0 h of 2 runs: set it to 2.60"
    ]


def test_a_run_that_is_billed_in_part_is_compared_in_that_part(warehouse: Warehouse, settings: Settings) -> None:
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    past_run(warehouse, "endpoint", stage="serving", hours=100)
    write_ledger(warehouse, part("24.8", run="endpoint", stage="serving", hours=10, method="occupancy"), state="open")
    [run], _ = check_runs(warehouse, settings, APRIL)
    assert (run.covered, run.estimated, run.difference) == (Decimal("0.1"), Decimal("24.8"), Decimal(0))


def test_whole_hours_are_not_taken_for_a_wrong_price(warehouse: Warehouse, settings: Settings) -> None:
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    past_run(warehouse, "r1", hours=0.25)
    write_ledger(warehouse, part("2.48", run="r1", hours=1))
    assert check_prices(warehouse, settings, APRIL).warnings == [
        "prices.gpu says 2.48 USD/h, the bill says 2.48 USD/h over 1.0 h of 1 run: "
        "the runs held 0.25 h, 1.0 h were billed to them (start-up, whole hours)"
    ]


def test_a_resource_without_a_price_is_named_with_the_one_the_bill_implies(
    warehouse: Warehouse, settings: Settings
) -> None:
    register_resource(warehouse, "tpu-1", "tpu", 4000, "milli_tpu", MARCH)
    past_run(warehouse, "r1", resource="tpu-1", hours=2, share=4000)
    past_run(warehouse, "r2", resource="mystery", start=NOON)
    write_ledger(
        warehouse, part("9.00", run="r1", hours=8, resource="tpu-1"),
        part("0.04", run="r2", hours=1, resource="mystery"),
    )  # fmt: skip
    found = check_prices(warehouse, settings, APRIL)
    assert [source.sentence for source in found.unpriced] == [
        "no price for kind tpu: the bill says 4.50 USD/h over 2.0 h of 1 run: set prices.tpu to 4.50",
        "no price for resource mystery: the bill says 0.0400 USD/h over 1.0 h of 1 run: set prices.mystery to 0.0400",
    ]
    assert found.warnings == [source.sentence for source in found.unpriced]


def test_what_was_not_compared_is_never_called_right(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1", price=Decimal(1))
    past_run(warehouse, "r2", price=Decimal(1))
    write_ledger(warehouse, part("7", run="r1"), part("3", run=None, method="idle", hours=5))  # a disk under its tag
    found = check_prices(warehouse, settings, APRIL)
    assert (found.sources, found.not_compared) == ((), 1)
    assert "was held against no bill" in found.sentence


def test_another_currency_is_not_compared(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1", price=Decimal(1))
    write_ledger(warehouse, part("7", run="r1", hours=1), currency="CAD")
    assert check_prices(warehouse, settings, APRIL).sources == ()


@pytest.mark.parametrize(
    ("price", "shown"), [("2.6", "2.60"), ("0.192", "0.192"), ("0.00013579", "0.000136"), ("1234.5", "1,234.50")]
)
def test_a_price_is_shown_with_the_digits_it_needs(price: str, shown: str) -> None:
    assert rate(Decimal(price)) == shown


def test_a_real_bill_is_compared_once_it_is_attributed(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    """Three of four GPU hours are billed so far, at 2.60; tax comes on top."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", MARCH)
    past_run(warehouse, "r1", hours=4)
    hours = [line("2.60", start=NOON + n * HOUR) for n in range(3)]
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [*hours, line("0.78", category="Tax", resource=None)]))
    assert check_prices(warehouse, settings, APRIL).sources == ()
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    [run], not_compared = check_runs(warehouse, settings, APRIL)
    assert (run.covered, run.estimated, not_compared) == (Decimal("0.75"), Decimal("7.44"), 0)
    assert run.billed == Decimal("8.58")
    [warning] = check_prices(warehouse, settings, APRIL).warnings
    assert warning == (
        "prices.gpu says 2.48 USD/h, the bill says 2.86 USD/h (0.260 of it tax, support and discounts) "
        "over 3.0 h of 1 run: set it to 2.86"
    )
