"""What a lookup answers, and the pure rules by which it is chosen from a list and the world since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from mlcost_pipeline.inference.arms import Arm
from mlcost_pipeline.inference.store import Entry
from mlcost_pipeline.settings import Serving

Tier = Literal["fresh", "filtered", "popular", "static"]


@dataclass(frozen=True)
class Answer:
    """Items to show, in order, and where they come from.

    Attributes:
        reason: why this tier and not a better one, as a code; ``current`` for a fresh list.
        version: the version of the lists it came from, None if none could be read.
        data_cut: event time up to which the answer knows the world.
        age_seconds: the time looked up minus the data cut.
    """

    items: list[str]
    tier: Tier
    reason: str
    version: str | None
    data_cut: datetime | None
    age_seconds: float | None
    arm: Arm
    request_id: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the data cut as ISO text."""
        return {**asdict(self), "data_cut": None if self.data_cut is None else self.data_cut.isoformat()}


@dataclass(frozen=True)
class Choice:
    """Items, tier and reason; what a rule decided."""

    items: list[str]
    tier: Tier
    reason: str


@dataclass(frozen=True)
class Since:
    """What happened after a list's data cut that bears on one user.

    An event exactly at the data cut is after it: lists are made of what happened before.
    """

    items: frozenset[str]
    withdrawn: frozenset[str]
    model_current: bool
    age: timedelta


def choose_personal(entry: Entry | None, since: Since, serving: Serving) -> Choice | str:
    """The user's own list if it can still be shown, else the reason why not.

    A list is fresh if the user has done nothing since its data cut, nothing in it was withdrawn, its model is still
    in production and it is at most ``max_age_hours`` old (exactly that old is fresh). Otherwise what was seen or
    withdrawn since is taken out, and the rest is shown if it fills ``list_length``.
    """
    if entry is None:
        return "unknown_user"
    if entry.items is None:
        return "no_history"
    if not entry.items:
        return "owns_all"
    reason = _stale(entry, since, serving)
    if reason is None:
        return Choice(entry.items[: serving.list_length], "fresh", "current")
    barred = since.withdrawn if serving.recommend_seen else since.withdrawn | since.items
    left = [item for item in entry.items if item not in barred]
    if len(left) < serving.list_length:
        return f"{reason}_too_few_left"
    return Choice(left[: serving.list_length], "filtered", reason)


def choose_popular(
    popular: Sequence[str],
    static: Sequence[str],
    *,
    seen: Collection[str],
    withdrawn: Collection[str],
    length: int,
    reason: str,
) -> Choice:
    """The popular list without what was seen, filled from the static one; never empty while any item can be shown.

    Who owns every item is shown the static list as it is: an empty page helps nobody.
    """
    first = _take(popular, length, seen, withdrawn)
    if first:
        return Choice(first + _take(static, length - len(first), seen, withdrawn, first), "popular", reason)
    rest = _take(static, length, seen, withdrawn)
    if rest:
        return Choice(rest, "static", reason)
    anything = _take(static, length, withdrawn)
    return Choice(anything, "static", f"{reason}_owns_everything" if anything else f"{reason}_no_items")


def _take(order: Sequence[str], length: int, *barred: Collection[str]) -> list[str]:
    return list(islice((item for item in order if not any(item in these for these in barred)), length))


def _stale(entry: Entry, since: Since, serving: Serving) -> str | None:
    assert entry.items is not None
    if since.items:
        return "events_since_cut"
    if not since.withdrawn.isdisjoint(entry.items):
        return "withdrawn_items"
    if not since.model_current:
        return "model_superseded"
    if since.age > timedelta(hours=serving.max_age_hours):
        return "too_old"
    return None
