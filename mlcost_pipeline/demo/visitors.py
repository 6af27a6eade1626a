"""A live day: users come at fixed times, look up their recommendations, and click what they truly like.

Who comes, when, and what they view and buy follows from the plan; clicks follow from what the lookup answers. A day
that is played again with the same answers leaves the same files, byte for byte.
"""

from __future__ import annotations

import hashlib
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np

from mlcost_pipeline.demo.catalogue import make_catalogue
from mlcost_pipeline.demo.journal import write_events
from mlcost_pipeline.demo.past_runs import standing_runs, write_runs
from mlcost_pipeline.demo.payments import write_labels, write_payments
from mlcost_pipeline.demo.people import make_people, next_item, write_joined
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.shown import click_chance, next_chance, request_id
from mlcost_pipeline.demo.traffic import write_requests
from mlcost_pipeline.demo.visits import ANONYMOUS, DayVisits, World, memory_before, visits_of
from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.inference.answer import Answer


class Looks(Protocol):
    """What a visit needs of a lookup."""

    def recommend(self, user_id: str | None, *, at: datetime | None = None, request_id: str | None = None) -> Answer:
        """Items for a user at a time."""


def visit_day(shop: Path, lookup: Looks, day: date) -> list[Path]:
    """Play one live day and write its event files (views, purchases, cancellations, clicks), and all others of it.

    Raises:
        SourceError: the day lies in the shop's history, which is written already.
    """
    plan = Plan.load(shop)
    world, number = World.of(plan), plan.number(day)
    memory = memory_before(world, shop, number)
    visits = visits_of(world, number, memory)
    requests = [request_id(world, number, session) for session in range(len(visits.user))]
    clicks = _clicks(world, visits, lookup, requests)
    written = [*live_day_files(shop, day), write_events(shop, world, visits, clicks, requests)]
    memory.save(shop, number)
    return written


def live_day_files(shop: Path, day: date) -> list[Path]:
    """The files of a live day that do not depend on what was recommended: payments, the labels that became known,
    users who joined, the request log, and the runs of the fleet that stands.

    Raises:
        SourceError: the day lies in the shop's history, which is written already.
    """
    plan = Plan.load(shop)
    number = plan.number(day)
    if number < plan.days:
        raise SourceError(f"{shop}: {day} lies in the shop's history; live days begin on {plan.day(plan.days)}")
    people = make_people(plan, make_catalogue(plan))
    return [
        write_payments(shop, plan, number),
        write_labels(shop, plan, number),
        write_requests(shop, plan, number),
        *write_joined(shop, plan, people, number),
        *write_runs(shop, plan, number, standing_runs(plan, number)),
    ]


def _clicks(world: World, visits: DayVisits, lookup: Looks, requests: list[str]) -> list[tuple[int, int, int]]:
    """(session, place, item) of every click; an item that the shop does not know cannot be clicked."""
    item_number = {name: number for number, name in enumerate(world.catalogue.ids)}
    taste = next_item(world.people, world.catalogue, visits.day)
    midnight, clicks = world.plan.midnight(visits.day), []
    for session, (user, start) in enumerate(zip(visits.user.tolist(), visits.start.tolist(), strict=True)):
        who = None if user == ANONYMOUS else world.people.ids[user]
        answer = lookup.recommend(who, at=midnight + timedelta(seconds=start), request_id=requests[session])
        shown = [(place, item_number[name]) for place, name in enumerate(answer.items) if name in item_number]
        if not shown:
            continue
        one = slice(session, session + 1)
        share = next_chance(world, visits.day, visits.user[one], visits.last[one], taste)
        # A chance by place needs the items at their places; a gap keeps its place and cannot be clicked.
        items = np.zeros((1, len(answer.items)), dtype=np.int64)
        for place, item in shown:
            items[0, place] = item
        chance = click_chance(share, items)[0]
        clicks += [
            (session, place, item)
            for place, item in shown
            if _drawn(world.plan.seed, requests[session], place) < chance[place]
        ]
    return clicks


def _drawn(seed: int, request: str, place: int) -> float:
    """A number in [0, 1) that belongs to a place of a request, whatever is shown there."""
    text = f"{seed}\x00{request}\x00{place}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2**64
