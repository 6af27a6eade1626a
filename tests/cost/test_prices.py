"""Prices of what no bill has reached: who is asked first, and that the sums are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from mlcost_pipeline.cost.prices import Price, PriceBook, billed_runs, unbilled
from mlcost_pipeline.cost.pricing import retrain_price
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import NOON, past_run, two_models
from tests.cost.ledgers import part, write_ledger

MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Feed:
    """What the provider says of one instance."""

    def per_hour(self, resource_id: str, start: datetime, end: datetime) -> Price | None:
        return Price(Decimal("0.9"), "spot feed") if resource_id == "i-1" else None


def test_the_first_that_knows_a_price_is_asked_first() -> None:
    settings = two_models(prices={"i-1": "5", "gpu": "6"})
    kinds = {name: {"kind": "gpu", "capacity_milli": 1000} for name in ("i-1", "i-2")}
    book = PriceBook(settings, kinds, Feed())

    def source(resource: str, price: str | None = None, pool: str | None = None) -> str | None:
        found = book.per_hour({"price": price and Decimal(price), "pool": pool}, resource, NOON, NOON + HOUR)
        return found and found.source

    assert source("i-1", "7", "steady") == "price recorded with the run"
    assert source("i-1", pool="steady") == "spot feed"
    book = PriceBook(settings, kinds)
    assert source("i-1", pool="steady") == "prices.i-1"
    assert source("i-2", pool="steady") == "capacity.pools steady"
    assert source("i-2") == "prices.gpu"
    assert source(settings.worker.resource_id) == "worker.price_per_hour"
    assert source("somewhere") is None


def test_an_estimate_is_exact_and_says_in_hours_of_what(warehouse: Warehouse) -> None:
    settings = two_models(prices={"gpu": "1"})
    register_resource(warehouse, "gpu-4", "gpu", 4000, "milli_gpu", MARCH)
    past_run(warehouse, "r1", resource="gpu-4", hours=1, share=3000)
    warehouse.append("occupancy", [{
        "run_id": "r1", "resource_id": "gpu-4", "start": NOON + HOUR, "end": NOON + HOUR + timedelta(seconds=20),
        "share_milli": 1000,
    }])  # fmt: skip
    [found] = unbilled(warehouse, settings, APRIL)
    assert found.amount == (Decimal("0.75") + Decimal(20) / 3600 / 4).quantize(Decimal("1e-18"))
    assert found.resource_hours.quantize(Decimal("1e-9")) == Decimal("0.751388889")
    assert found.device_hours.quantize(Decimal("1e-9")) == Decimal("3.005555556")
    assert unbilled(warehouse, settings, APRIL, model="recs") == []
    assert unbilled(warehouse, settings, APRIL, period="2026-04") == []


def test_what_runs_are_billed_is_added_up_to_the_last_digit_in_one_currency(
    warehouse: Warehouse, settings: Settings
) -> None:
    tiny = "0.000000000000000001"
    write_ledger(warehouse, *(part(tiny, run="r1") for _ in range(3)), part("-5", run="r1"), part("9", run=None))
    write_ledger(warehouse, part("2", run="r1", method="derived", reason="tax"), period="2026-04")
    write_ledger(warehouse, part("100", run="r2"), currency="CAD", account="acct-2")
    assert billed_runs(warehouse, "USD") == {"r1": Decimal("-2.999999999999999997")}
    assert set(billed_runs(warehouse)) == {"r1", "r2"}
    past_run(warehouse, "r2")
    assert unbilled(warehouse, settings, APRIL) == []  # billed, if in another currency


def test_the_price_of_a_retrain_has_its_tax_in_it(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "j1/1", purpose="retrain", job_id="j1", attempt=1)
    write_ledger(warehouse, part("10", run="j1/1"), part("2", run="j1/1", method="derived", reason="tax"))
    assert retrain_price(warehouse, settings, "fraud").amount == 12


def test_no_bill_and_no_run_cost_nothing(warehouse: Warehouse, settings: Settings) -> None:
    assert billed_runs(warehouse) == {}
    assert unbilled(warehouse, settings, APRIL) == []
