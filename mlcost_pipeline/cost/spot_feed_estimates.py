"""Prices of spot instances from the EC2 spot data feed, for hours that no bill has reached: estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from mlcost_pipeline.cost.bills.spot_feed import SpotHour, read_spot_feed
from mlcost_pipeline.cost.prices import Price
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings

SOURCE = "EC2 spot data feed"
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class SpotFeed:
    """What the feeds say, by instance id, hours in order; the `spot` of a price book."""

    hours: Mapping[str, tuple[SpotHour, ...]]

    def per_hour(self, resource_id: str, start: datetime, end: datetime) -> Price | None:
        """The mean price of an instance per hour over [start, end), each hour of the feed by its time in it.

        The feed comes hours late: time that it does not cover has the price of the time that it does, where it covers
        none that of the last hour before `start`, or else of the first one after; an instance that it knows never
        falls back to an on-demand price (opencost#3725). None: the feed has never seen the instance.
        """
        known = self.hours.get(resource_id, ())
        if not known:
            return None
        within = [(hour.rate, min(end, hour.hour_end) - max(start, hour.hour_start)) for hour in known]
        weighed = [(rate, Decimal(length // _TICK)) for rate, length in within if length > timedelta()]
        covered = sum((length for _, length in weighed), Decimal())
        if covered:
            return Price(sum((rate * length for rate, length in weighed), Decimal()) / covered, SOURCE)
        before = [hour for hour in known if hour.hour_start <= start]
        return Price((before[-1] if before else known[0]).rate, SOURCE)


def spot_feed_prices(settings: Settings, instances: Collection[str] | None = None) -> SpotFeed | None:
    """The feeds named under ``bills:`` with format spot_feed, as prices; of the named instances only, or of all.

    None: no feed is named there.

    Raises:
        BillError: a feed cannot be read, or is in another currency than ``currency:``.
    """
    places = [settings.path(source.path) for source in settings.bills if source.format == "spot_feed"]
    found: dict[str, list[SpotHour]] = {}
    for place in places:
        for hour in read_spot_feed(place, instances) if place.exists() else []:
            if hour.currency != settings.currency:
                raise BillError(
                    f"{place}: instance {hour.instance_id} is charged in {hour.currency}, and currency: is "
                    f"{settings.currency}; take this feed out of bills: or set currency: to {hour.currency}"
                )
            found.setdefault(hour.instance_id, []).append(hour)
    hours = {name: tuple(sorted(of_one, key=lambda hour: hour.hour_start)) for name, of_one in found.items()}
    return SpotFeed(hours) if places else None
