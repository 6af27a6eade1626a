"""The shop's cloud: what it charges for the hours in which its resources existed. It knows resources and holds on
them, no models and no stages; those are for the ledger to find.

Prices are list prices an hour by kind of resource, and by pool where the resource's id begins with the pool's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

HOUR = timedelta(hours=1)
_CENT_PARTS = Decimal("0.0000000001")


@dataclass(frozen=True)
class Cloud:
    """Prices, resources that stand until they are returned, and the tags that their owners gave them."""

    prices: Mapping[str, Decimal]
    pools: Mapping[str, Decimal]
    standing: frozenset[str]
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def price(self, resource_id: str, kind: str) -> Decimal:
        """Money an hour."""
        for pool in sorted(self.pools, key=len, reverse=True):
            if resource_id == pool or resource_id.startswith((f"{pool}/", f"{pool}-", f"{pool}:")):
                return self.pools[pool]
        return self.prices.get(kind, self.prices["cpu"])


@dataclass(frozen=True)
class Charge:
    """An amount for a resource over part of an hour, and the runs that held it then."""

    resource_id: str
    kind: str
    start: datetime
    end: datetime
    amount: Decimal
    runs: tuple[str, ...]

    @property
    def seconds(self) -> int:
        return int((self.end - self.start).total_seconds())


def charges(
    cloud: Cloud, occupancy: Iterable[Mapping[str, Any]], resources: Iterable[Mapping[str, Any]],
    start: datetime, end: datetime,
) -> list[Charge]:  # fmt: skip
    """All usage charges in ``[start, end)``, a line an hour and resource, ordered by resource and time.

    A standing resource is charged while it exists, any other while a run holds it, to the started second.
    """
    holds: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for hold in occupancy:
        holds[hold["resource_id"]].append(hold)
    kinds: dict[str, str] = {}
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in sorted(resources, key=lambda row: (row["resource_id"], row["valid_from"])):
        kinds.setdefault(row["resource_id"], row["kind"])  # what a resource was made as; later rows rename nothing
        if row["resource_id"] in cloud.standing:
            spans[row["resource_id"]].append((row["valid_from"], row["valid_to"] or end))
    for resource_id, held in holds.items():
        if resource_id not in cloud.standing:
            spans[resource_id] = [(_floor(hold["start"]), _ceil(hold["end"] or end)) for hold in held]
    made: list[Charge] = []
    for resource_id in sorted(spans):
        kind = kinds.get(resource_id, "cpu")
        price = cloud.price(resource_id, kind)
        ordered = sorted(holds[resource_id], key=lambda hold: (hold["start"], hold["run_id"]))
        for begin, stop in _hours(_union(spans[resource_id]), start, end):
            made.append(
                Charge(resource_id, kind, begin, stop, _amount(price, begin, stop), _runs(ordered, begin, stop))
            )
    return made


def _runs(held: Sequence[Mapping[str, Any]], begin: datetime, stop: datetime) -> tuple[str, ...]:
    during = (h["run_id"] for h in held if h["start"] < stop and (h["end"] is None or h["end"] > begin))
    return tuple(dict.fromkeys(during))


def _amount(price: Decimal, begin: datetime, stop: datetime) -> Decimal:
    seconds = Decimal(int((stop - begin).total_seconds()))
    return (price * seconds / 3600).quantize(_CENT_PARTS, rounding=ROUND_HALF_EVEN)


def _union(spans: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    merged: list[tuple[datetime, datetime]] = []
    for begin, stop in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif begin < stop:
            merged.append((begin, stop))
    return merged


def _hours(
    spans: list[tuple[datetime, datetime]], start: datetime, end: datetime
) -> Iterable[tuple[datetime, datetime]]:
    for first, last in spans:
        begin, stop = max(first, start), min(last, end)
        while begin < stop:
            hour = begin.replace(minute=0, second=0, microsecond=0) + HOUR
            yield begin, min(hour, stop)
            begin = min(hour, stop)


def _floor(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _ceil(at: datetime) -> datetime:
    return at if at.microsecond == 0 else _floor(at) + timedelta(seconds=1)
