"""Users of the shop: segments, when each joined, how often they come and what they like.

Regular users have a broad, stable taste that co-occurrence finds. Business users work through a theme item by item:
only a model of the sequence knows their next item, so that is the segment for which a transformer pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.demo.catalogue import THEMES, Catalogue
from mlcost_pipeline.demo.files import write_csv
from mlcost_pipeline.demo.plan import Plan

SEGMENTS = ("regular", "business", "new")
SEGMENT_SHARES = (0.6, 0.25, 0.15)
SESSIONS_PER_DAY = (0.22, 0.32, 0.35)
SEQUENCE_SHARE = (0.05, 0.7, 0.05)
JOINS_AFTER = 30  # new users keep joining this long after the end of history


@dataclass(frozen=True)
class People:
    """Users by number."""

    ids: list[str]
    segment: NDArray[np.int64]
    joined: NDArray[np.int64]
    sessions_per_day: NDArray[np.float64]
    sequence_share: NDArray[np.float64]
    taste: NDArray[np.float64]
    """(users, items) log weight of each item for each user."""


def make_people(plan: Plan, catalogue: Catalogue) -> People:
    """The users of a plan."""
    rng, n = plan.rng("people"), plan.users
    segment = rng.choice(len(SEGMENTS), n, p=SEGMENT_SHARES)
    joined = np.where(segment == 2, rng.integers(int(plan.days * 0.2), plan.days + JOINS_AFTER, n), 0)
    likes = np.zeros((n, THEMES))
    for _ in range(2):
        likes[np.arange(n), rng.integers(0, THEMES, n)] = 2.4
    taste = catalogue.log_popularity[None, :] + likes[:, catalogue.theme] + rng.normal(0, 0.5, (n, plan.items))
    # Business users start anywhere: their taste says little, their last item says much.
    taste = np.where((segment == 1)[:, None], catalogue.log_popularity[None, :] * 0.5, taste)
    ids = [f"u{k:04d}" for k in range(n)]
    return People(
        ids, segment, joined, np.array(SESSIONS_PER_DAY)[segment], np.array(SEQUENCE_SHARE)[segment], taste
    )  # fmt: skip


def next_item(people: People, catalogue: Catalogue, day: int) -> NDArray[np.float64]:
    """(users, items) probability of the next item from taste alone, over what is on sale on a day."""
    weight = np.exp(people.taste) * catalogue.on_sale(day)[None, :]
    share: NDArray[np.float64] = weight / weight.sum(axis=1, keepdims=True)
    return share


def write_joined(shop: Path, plan: Plan, people: People, day: int) -> list[Path]:
    """The users who joined on a day; no file if nobody did."""
    who = np.flatnonzero(people.joined == day).tolist()
    if not who:
        return []
    since = plan.opening(day).isoformat()
    rows = [(people.ids[k], since, SEGMENTS[people.segment[k]]) for k in who]
    return [write_csv(shop / "data" / "users" / f"{plan.day(day)}.csv", ("visitor", "since", "segment"), rows)]
