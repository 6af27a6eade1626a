"""Which events are history and which are targets, for recommenders.

Events of a user stand in the order of time; equal times are ordered by event id (as text). Every split sorts first,
so none depends on the order in which events are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Events by number: `user` and `item` count ids, `at` is microseconds since 1970 (UTC).

    `event_id` orders events of one time: ids as text, or the rank of each id."""

    user: Codes
    item: Codes
    at: Codes
    event_id: NDArray[Any]

    def __len__(self) -> int:
        return len(self.user)

    def ordered(self) -> Events:
        """The same events by user, time and event id."""
        return self.take(np.lexsort((self.event_id, self.at, self.user)))

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Events:
        """Some of the events, in the order asked for."""
        return Events(self.user[which], self.item[which], self.at[which], self.event_id[which])


@dataclass(frozen=True)
class Split:
    """History (ordered) and targets; each (user, item) is a target once, and every target's user has history."""

    history: Events
    target_user: Codes
    target_item: Codes


def leave_last_new(events: Events) -> Split:
    """Each user's last new item is the target; what came before it is history, what came after is left out.

    An item is new at the first event with which the user meets it. Users with one item only have no target.
    """
    ordered = events.ordered()
    new = _first_meetings(ordered)
    position = np.arange(len(ordered))
    last = np.full(int(ordered.user.max(initial=-1)) + 1, -1, dtype=np.int64)
    np.maximum.at(last, ordered.user[new], position[new])
    history = position < last[ordered.user]
    with_history = np.unique(ordered.user[history])
    targets = last[with_history]
    return Split(ordered.take(history), ordered.user[targets], ordered.item[targets])


def held_out_days(events: Events, start: int, end: int, *, repeats: bool = False) -> Split:
    """History is what happened before `start`; targets are the items of ``[start, end)``, of users with history.

    Args:
        events: in any order.
        start: first microsecond held out.
        end: first microsecond after the held-out days.
        repeats: whether items that the user has already met count as targets.
    """
    ordered = events.ordered()
    before = ordered.at < start
    history = ordered.take(before)
    held = ordered.take(~before & (ordered.at < end))
    span = int(max(ordered.item.max(initial=0), 0)) + 1
    known = np.unique(history.user * span + history.item)
    pairs = np.unique(held.user * span + held.item)
    pairs = pairs[np.isin(pairs // span, history.user)]
    if not repeats:
        pairs = pairs[~np.isin(pairs, known)]
    return Split(history, pairs // span, pairs % span)


def _first_meetings(ordered: Events) -> NDArray[np.bool_]:
    span = int(max(ordered.item.max(initial=0), 0)) + 1
    _, first = np.unique(ordered.user * span + ordered.item, return_index=True)
    new = np.zeros(len(ordered), dtype=np.bool_)
    new[first] = True
    return new
