"""Sessions of a day: who came when, what they viewed, bought and cancelled. What they were shown changes nothing here,
so the visits of any day follow from the plan and the state after the day before."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.demo.catalogue import Catalogue, make_catalogue
from mlcost_pipeline.demo.files import write_atomically
from mlcost_pipeline.demo.people import People, make_people, next_item
from mlcost_pipeline.demo.plan import OPENING, Plan
from mlcost_pipeline.errors import SourceError

ANONYMOUS = -1
ANONYMOUS_SHARE = 0.08
PURCHASE_SHARE = 0.22
CANCEL_SHARE = 0.04
_LAST_SECOND = 86_399


@dataclass(frozen=True)
class World:
    """Everything about a shop that does not change from day to day."""

    plan: Plan
    catalogue: Catalogue
    people: People

    @classmethod
    def of(cls, plan: Plan) -> World:
        catalogue = make_catalogue(plan)
        return cls(plan, catalogue, make_people(plan, catalogue))


@dataclass
class Memory:
    """What users carry from day to day: their last item (-1: none yet) and which items they have seen."""

    last: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @classmethod
    def fresh(cls, plan: Plan) -> Memory:
        return cls(np.full(plan.users, -1), np.zeros((plan.users, plan.items), dtype=bool))

    def save(self, shop: Path, day: int) -> None:
        sink = io.BytesIO()
        np.savez_compressed(sink, last=self.last, seen=self.seen)
        write_atomically(_memory_file(shop, day), sink.getvalue())

    @classmethod
    def load(cls, shop: Path, day: int) -> Memory | None:
        file = _memory_file(shop, day)
        if not file.exists():
            return None
        with np.load(file, allow_pickle=False) as stored:
            return cls(stored["last"], stored["seen"])


@dataclass(frozen=True)
class DayVisits:
    """Sessions in order of time, and what happened in them: (session, item, second of the day, kind)."""

    day: int
    user: NDArray[np.int64]
    start: NDArray[np.int64]
    last: NDArray[np.int64]
    events: list[tuple[int, int, int, str]]


def _memory_file(shop: Path, day: int) -> Path:
    return shop / "world" / f"after-day-{day:04d}.npz"


def visits_of(world: World, day: int, memory: Memory) -> DayVisits:
    """The visits of a day; moves `memory` on to the end of the day."""
    rng = world.plan.rng("visits", day)
    user, start = _sessions(world, day, rng)
    last = np.where(user == ANONYMOUS, -1, memory.last[user])
    on_sale, cumulative = world.catalogue.on_sale(day), np.cumsum(next_item(world.people, world.catalogue, day), axis=1)
    anyone = np.cumsum(_popular_share(world, day))
    views = 1 + rng.poisson(1.8, len(user))
    now, events = last.copy(), []
    for step in range(int(views.max(initial=0))):
        going = np.flatnonzero(views > step)
        now[going] = _next(world, user[going], now[going], on_sale, cumulative, anyone, rng)
        for session in going.tolist():
            events.append((session, int(now[session]), min(int(start[session]) + 20 + 45 * step, _LAST_SECOND), "view"))
    events += _orders(user, start, views, events, rng)
    order = {"view": 0, "purchase": 1, "cancellation": 2}
    events.sort(key=lambda event: (event[2], event[0], order[event[3]], event[1]))
    for session, item, _, _ in events:
        if user[session] != ANONYMOUS:
            memory.seen[user[session], item] = True
    known = user != ANONYMOUS
    memory.last[user[known]] = now[known]
    return DayVisits(day, user, start, last, events)


def memory_before(world: World, shop: Path, day: int) -> Memory:
    """The users' memory at the start of a day, from the newest one stored before it.

    Raises:
        SourceError: the shop has no history before that day.
    """
    for stored in range(day - 1, world.plan.days - 2, -1):
        memory = Memory.load(shop, stored)
        if memory is not None:
            for between in range(stored + 1, day):
                visits_of(world, between, memory)
            return memory
    raise SourceError(f"{shop}: {world.plan.day(day)} lies in the shop's history; live days begin after it")


def _sessions(world: World, day: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    people = world.people
    often = np.where(people.joined <= day, people.sessions_per_day, 0.0)
    counts = rng.poisson(often)
    user = np.repeat(np.arange(world.plan.users), counts)
    anonymous = rng.poisson(ANONYMOUS_SHARE * often.sum())
    user = np.concatenate([user, np.full(anonymous, ANONYMOUS)])
    start = seconds_of_day(rng, len(user), day)
    order = np.argsort(start, kind="stable")
    return user[order], start[order]


def seconds_of_day(rng: np.random.Generator, count: int, day: int) -> NDArray[np.int64]:
    """Times with two daily peaks, at half past twelve and eight in the evening; after the opening on the first day."""
    peak = np.where(rng.random(count) < 0.45, rng.normal(12.5, 1.3, count), rng.normal(20.0, 1.3, count))
    hours = np.where(rng.random(count) < 0.15, rng.uniform(0, 24, count), peak)
    seconds = np.clip(hours * 3600, 0, 86_000)
    if day == 0:
        begin = OPENING.total_seconds()
        seconds = begin + seconds * (86_000 - begin) / 86_000
    return np.asarray(seconds, dtype=np.int64)


def _popular_share(world: World, day: int) -> NDArray[np.float64]:
    weight = np.exp(world.catalogue.log_popularity) * world.catalogue.on_sale(day)
    share: NDArray[np.float64] = weight / weight.sum()
    return share


def _next(
    world: World, user: NDArray[np.int64], last: NDArray[np.int64], on_sale: NDArray[np.bool_],
    cumulative: NDArray[np.float64], anyone: NDArray[np.float64], rng: np.random.Generator,
) -> NDArray[np.int64]:  # fmt: skip
    known = user != ANONYMOUS
    drawn = rng.random(len(user))
    tables = np.where(known[:, None], cumulative[user], anyone[None, :])
    item = np.minimum((tables < drawn[:, None]).sum(axis=1), world.plan.items - 1)
    follows = world.catalogue.successor[last]
    share = np.where(known, world.people.sequence_share[user], 0.05)
    goes_on = (rng.random(len(user)) < share) & (last >= 0) & on_sale[follows]
    chosen: NDArray[np.int64] = np.where(goes_on, follows, item)
    return chosen


def _orders(
    user: NDArray[np.int64], start: NDArray[np.int64], views: NDArray[np.int64],
    viewed: list[tuple[int, int, int, str]], rng: np.random.Generator,
) -> list[tuple[int, int, int, str]]:  # fmt: skip
    """Purchases (all of a session in one second: an order of several items) and cancellations forty minutes later."""
    buys, cancels = rng.random(len(viewed)) < PURCHASE_SHARE, rng.random(len(viewed)) < CANCEL_SHARE
    orders: dict[tuple[int, int, str], tuple[int, int, int, str]] = {}
    for (session, item, _, _), bought, cancelled in zip(viewed, buys.tolist(), cancels.tolist(), strict=True):
        if not bought or user[session] == ANONYMOUS:
            continue
        paid = min(int(start[session]) + 60 + 45 * int(views[session]), _LAST_SECOND)
        orders[session, item, "purchase"] = (session, item, paid, "purchase")
        if cancelled:
            orders[session, item, "cancellation"] = (session, item, min(paid + 2400, _LAST_SECOND), "cancellation")
    return list(orders.values())
