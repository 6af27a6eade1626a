"""What the shop's old system showed at the start of each session of the past, and what users click, then and now.

A click has a known chance: how likely the item is this user's next one, times how well its place is seen. So the
clicks that a list adds over the popular one have a true expected value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.demo.people import next_item
from mlcost_pipeline.demo.plan import HOLDOUT_SHARE, MODEL
from mlcost_pipeline.demo.visits import ANONYMOUS, DayVisits, World
from mlcost_pipeline.inference.arms import Arm, arm_of

LIST_LENGTH = 10
GAIN = 5.0
HIGHEST = 0.5
_PLACE_LOSS = 0.25
_OLD_NOISE = 0.4  # the old model's scores are this far (in log) from the truth


@dataclass(frozen=True)
class Shown:
    """Lists of a day: a row a session. `chance` and `chance_popular` are of a click on each place of the list shown
    and of the popular list that the same user would have got instead."""

    request_id: list[str]
    arm: list[Arm]
    items: NDArray[np.int64]
    chance: NDArray[np.float64]
    chance_popular: NDArray[np.float64]
    clicked: NDArray[np.bool_]


def next_chance(
    world: World, day: int, user: NDArray[np.int64], last: NDArray[np.int64], taste: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """(sessions, items) true probability that each item is the user's next one; anonymous users like what all like."""
    taste = next_item(world.people, world.catalogue, day) if taste is None else taste
    known = user != ANONYMOUS
    anyone = np.exp(world.catalogue.log_popularity) * world.catalogue.on_sale(day)
    chance = np.where(known[:, None], taste[user], (anyone / anyone.sum())[None, :])
    share = np.where(known & (last >= 0), world.people.sequence_share[user], 0.0)
    chance *= (1 - share)[:, None]
    rows = np.arange(len(user))
    follows = world.catalogue.successor[last]
    chance[rows, follows] += share * world.catalogue.on_sale(day)[follows]
    return chance


def click_chance(next_share: NDArray[np.float64], items: NDArray[np.int64]) -> NDArray[np.float64]:
    """(sessions, places) chance of a click on each place of the given lists."""
    liked = np.minimum(HIGHEST, GAIN * np.take_along_axis(next_share, items, axis=1))
    seen: NDArray[np.float64] = 1 / (1 + _PLACE_LOSS * np.arange(items.shape[1]))
    return liked * seen[None, :]


def request_id(world: World, day: int, session: int) -> str:
    """The id of a session's lookup."""
    return f"visit-{world.plan.day(day)}-{session:05d}"


def show(world: World, visits: DayVisits, seen: NDArray[np.bool_]) -> Shown:
    """The lists of the old system on a day of the past; `seen` is what users had seen when the day began."""
    rng = world.plan.rng("shown", visits.day)
    count, user = len(visits.user), visits.user
    requests = [request_id(world, visits.day, number) for number in range(count)]
    who = [
        request if k == ANONYMOUS else world.people.ids[k] for request, k in zip(requests, user.tolist(), strict=True)
    ]
    arm = [arm_of(MODEL, name, HOLDOUT_SHARE) for name in who]
    share = next_chance(world, visits.day, user, visits.last)
    barred = ~world.catalogue.on_sale(visits.day)[None, :] | (seen[user] & (user != ANONYMOUS)[:, None])
    popular = _top(np.broadcast_to(world.catalogue.log_popularity, share.shape), barred)
    scores = np.log(np.maximum(share, 1e-12)) + rng.normal(0, _OLD_NOISE, share.shape)
    personal = np.array([a == "treated" for a in arm], dtype=bool) & (user != ANONYMOUS)
    items = np.where(personal[:, None], _top(scores, barred), popular)
    chance, chance_popular = click_chance(share, items), click_chance(share, popular)
    return Shown(requests, arm, items, chance, chance_popular, rng.random(chance.shape) < chance)


def _top(scores: NDArray[np.float64], barred: NDArray[np.bool_]) -> NDArray[np.int64]:
    allowed = np.where(barred, -np.inf, scores)
    top: NDArray[np.int64] = np.argsort(-allowed, axis=1, kind="stable")[:, :LIST_LENGTH]
    return top
