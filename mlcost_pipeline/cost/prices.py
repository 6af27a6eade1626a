"""The price book: what a resource costs an hour where no bill says so yet. Everything made from it is an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.deliveries import bills_in_force
from mlcost_pipeline.cost.ledger import ledger_rows
from mlcost_pipeline.cost.slots import from_units, to_units
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_UNIT = Decimal("1e-18")


@dataclass(frozen=True)
class Price:
    """An amount of money and where it comes from."""

    amount: Decimal
    source: str


@dataclass(frozen=True)
class Estimate:
    """What a run that no bill has reached would cost by the price book."""

    run_id: str
    model: str
    stage: str
    purpose: str
    hours: Decimal
    amount: Decimal | None
    source: str


@dataclass(frozen=True)
class PriceBook:
    """Prices an hour by resource, pool and kind, and the capacity that a share is a share of."""

    settings: Settings
    resources: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings) -> PriceBook:
        return cls(settings, {row["resource_id"]: row for row in warehouse.rows("resources")})

    def per_hour(self, run: Mapping[str, Any], resource_id: str) -> Price | None:
        """The price of the whole resource an hour: the run's own, the resource's, its pool's, its kind's, in order."""
        if run["price"] is not None:
            return Price(run["price"], "price recorded with the run")
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
        hours, amount, sources = Decimal(0), Decimal(0), []
        for hold in holds:
            length = _hours(hold["start"], hold["end"] or run["ended_at"] or max(now, hold["start"]))
            price = self.per_hour(run, hold["resource_id"])
            hours += length
            if price is None:
                return _estimate(run, hours, None, f"no price for resource {hold['resource_id']}")
            amount += length * price.amount * Decimal(hold["share_milli"]) / self._capacity(hold)
            sources.append(price.source)
        return _estimate(run, hours, amount.quantize(_UNIT), ", ".join(sorted(set(sources))) or "held no resource")

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
    billed = billed_runs(warehouse)
    chosen = [
        run
        for run in warehouse.rows("run_records")
        if run["run_id"] not in billed
        and model in (None, run["model"])
        and period in (None, run["started_at"].strftime("%Y-%m"))
    ]
    return price_runs(warehouse, settings, chosen, now)


def price_runs(warehouse: Warehouse, settings: Settings, runs: list[dict[str, Any]], now: datetime) -> list[Estimate]:
    """The price book's estimate of each run, by run id."""
    book = PriceBook.of(warehouse, settings)
    holds: dict[str, list[dict[str, Any]]] = {}
    for hold in warehouse.rows("occupancy"):
        holds.setdefault(hold["run_id"], []).append(hold)
    ordered = sorted(runs, key=lambda run: str(run["run_id"]))
    return [book.estimate(run, holds.get(run["run_id"], []), now) for run in ordered]


def billed_runs(warehouse: Warehouse) -> dict[str, Decimal]:
    """Effective cost of every run that the ledgers in force name, over all periods."""
    if not bills_in_force(warehouse):
        return {}
    found: dict[str, int] = {}
    for row in ledger_rows(warehouse).select(["run_id", "effective"]).to_pylist():
        if row["run_id"] is not None:
            found[row["run_id"]] = found.get(row["run_id"], 0) + to_units(row["effective"])
    return {run_id: from_units(units) for run_id, units in found.items()}


def _estimate(run: Mapping[str, Any], hours: Decimal, amount: Decimal | None, source: str) -> Estimate:
    text = f"estimate: {source}"
    return Estimate(run["run_id"], run["model"], run["stage"], run["purpose"], hours, amount, text)


def _hours(start: datetime, end: datetime) -> Decimal:
    length = max(end, start) - start
    return (Decimal(length.days * 86_400 + length.seconds) + Decimal(length.microseconds) / 1_000_000) / 3600
