"""The price book: what a resource costs an hour where no bill says so yet. Everything made from it is an estimate.

Whether its prices are right is seen when the bill comes: ``price_check``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from mlcost_pipeline.cost.books import closed_books, versions_of
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_FEW_RUNS = 1000  # up to so many are looked up by name
#: Where the price of a run's own record is said to come from.
RECORDED = "price recorded with the run"

_UNBILLED = """
SELECT * FROM run_records r
WHERE NOT EXISTS (FROM cost_ledger l WHERE l.run_id = r.run_id)
  AND (? IS NULL OR r.model = ?) AND (? IS NULL OR strftime(r.started_at, '%Y-%m') = ?) ORDER BY r.run_id
"""


@dataclass(frozen=True)
class Price:
    """An amount of money and where it comes from."""

    amount: Decimal
    source: str


@dataclass(frozen=True)
class Estimate:
    """What a run would cost by the price book; `amount` is None, unknown, where a resource it held has no price.

    `hours` it held resources; `resource_hours` is the same in hours of whole resources (a quarter share for an hour is
    0.25), the hours that a price an hour is for; `device_hours` in hours of one device.
    """

    run_id: str
    model: str
    stage: str
    purpose: str
    hours: Decimal
    amount: Decimal | None
    source: str
    resource_hours: Decimal = Decimal(0)
    device_hours: Decimal = Decimal(0)


class SpotPrices(Protocol):
    """What a provider says it charges for spot capacity before it bills it."""

    def per_hour(self, resource_id: str, start: datetime, end: datetime) -> Price | None:
        """The mean price an hour of a resource over a stretch; None where the provider has not said it for all."""
        ...


@dataclass(frozen=True)
class PriceBook:
    """Prices an hour by resource, pool and kind, and the capacity that a share is a share of."""

    settings: Settings
    resources: Mapping[str, Mapping[str, Any]]
    spot: SpotPrices | None = None

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings, held: Collection[str] | None = None) -> PriceBook:
        """The book of mlcost.yaml and of its spot feeds, as they concern the resources `held` (default: all)."""
        from mlcost_pipeline.cost.spot_feed_estimates import spot_feed_prices  # which speaks of our Price

        known = {row["resource_id"]: row for row in warehouse.rows("resources")}
        return cls(settings, known, spot_feed_prices(settings, held))

    def per_hour(self, run: Mapping[str, Any], resource_id: str, start: datetime, end: datetime) -> Price | None:
        """The price of the whole resource an hour, from the first that knows it.

        In order: the run's own record, the provider's spot prices, the resource, its pool, the worker, its kind.
        """
        if run["price"] is not None:
            return Price(run["price"], RECORDED)
        if self.spot is not None and (said := self.spot.per_hour(resource_id, start, end)) is not None:
            return said
        settings, known = self.settings, self.resources.get(resource_id)
        if resource_id in settings.prices:
            return Price(settings.prices[resource_id], f"prices.{resource_id}")
        for pool in settings.capacity.pools:
            if pool.name == run["pool"]:
                return Price(pool.price_per_hour, f"capacity.pools {pool.name}")
        if resource_id == settings.worker.resource_id:
            return Price(settings.worker.price_per_hour, "worker.price_per_hour")
        if known is not None and known["kind"] in settings.prices:
            return Price(settings.prices[known["kind"]], f"prices.{known['kind']}")
        return None

    def estimate(self, run: Mapping[str, Any], holds: list[dict[str, Any]], now: datetime) -> Estimate:
        """Hours held × price × share; an unknown price is an unknown amount."""
        hours = resource_hours = device_hours = amount = Decimal(0)
        sources, unpriced = set[str](), set[str]()
        for hold in holds:
            end = hold["end"] or run["ended_at"] or max(now, hold["start"])
            length, share = _hours(hold["start"], end), Decimal(hold["share_milli"])
            price = self.of_hold(run, hold, hold["start"], end)
            hours += length
            resource_hours += length * share / self._capacity(hold)
            device_hours += length * share / 1000
            if price is None:
                unpriced.add(str(hold["resource_id"]))
                continue
            amount += price.amount
            sources.add(price.source)
        if unpriced:
            text = f"no price for resource {', '.join(sorted(unpriced))}"
        else:
            text = ", ".join(sorted(sources)) or "held no resource"
        return Estimate(
            run["run_id"], run["model"], run["stage"], run["purpose"], hours,
            None if unpriced else amount.quantize(UNIT), f"estimate: {text}", resource_hours, device_hours,
        )  # fmt: skip

    def of_hold(self, run: Mapping[str, Any], hold: Mapping[str, Any], start: datetime, end: datetime) -> Price | None:
        """Money for a stretch of a run's hold on a resource: hours × price × share."""
        price = self.per_hour(run, hold["resource_id"], start, end)
        if price is None:
            return None
        amount = _hours(start, end) * price.amount * Decimal(hold["share_milli"]) / self._capacity(hold)
        return Price(amount, price.source)

    def _capacity(self, hold: Mapping[str, Any]) -> Decimal:
        """Milli-units of the resource; one held beyond its known capacity is held whole."""
        known = self.resources.get(hold["resource_id"])
        worker = self.settings.worker
        ours = worker.capacity_milli if hold["resource_id"] == worker.resource_id else 1000
        return Decimal(max(int(known["capacity_milli"]) if known else ours, int(hold["share_milli"])))


def unbilled(
    warehouse: Warehouse, settings: Settings, now: datetime, *, model: str | None = None, period: str | None = None
) -> list[Estimate]:
    """Estimates for runs that no ledger in force gives any cost to, of one model and one month of starts, or of all."""
    tables, versions = ["run_records", "cost_ledger"], versions_of(closed_books(warehouse, None))
    chosen = warehouse.query(_UNBILLED, [model, model, period, period], tables=tables, versions=versions).to_pylist()
    return price_runs(warehouse, settings, chosen, now)


def price_runs(warehouse: Warehouse, settings: Settings, runs: list[dict[str, Any]], now: datetime) -> list[Estimate]:
    """The price book's estimate of each run, by run id."""
    if not runs:
        return []
    wanted = sorted({str(run["run_id"]) for run in runs})
    few = len(wanted) <= _FEW_RUNS
    holds: dict[str, list[dict[str, Any]]] = {}
    for hold in warehouse.rows(
        "occupancy", where="list_contains(?, run_id)" if few else None, params=[wanted] if few else []
    ):
        holds.setdefault(hold["run_id"], []).append(hold)
    book = PriceBook.of(warehouse, settings, {hold["resource_id"] for held in holds.values() for hold in held})
    ordered = sorted(runs, key=lambda run: str(run["run_id"]))
    return [book.estimate(run, holds.get(run["run_id"], []), now) for run in ordered]


def billed_runs(warehouse: Warehouse, currency: str | None = None) -> dict[str, Decimal]:
    """Effective cost of every run that the ledgers in force name, over all periods, derived charges included.

    Of the bills in one currency, or of all where there is one only.
    """
    found = warehouse.query(
        "SELECT run_id, sum(effective) AS effective FROM cost_ledger "
        "WHERE run_id IS NOT NULL AND (? IS NULL OR currency = ?) GROUP BY run_id",
        [currency, currency],
        tables=["cost_ledger"],
        versions=versions_of(closed_books(warehouse, currency)),
    )
    return dict(zip(found["run_id"].to_pylist(), found["effective"].to_pylist(), strict=True))


def _hours(start: datetime, end: datetime) -> Decimal:
    length = max(end, start) - start
    return (Decimal(length.days * 86_400 + length.seconds) + Decimal(length.microseconds) / 1_000_000) / 3600
