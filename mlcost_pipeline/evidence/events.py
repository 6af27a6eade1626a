"""Features of a stream of events for drift: how active users are, what they take, how much of it is new, and when.

Rows of one user depend on each other, so the sample size behind a window is its number of users.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.evidence.columns import Sample, compare
from mlcost_pipeline.evidence.values import FeatureDrift
from mlcost_pipeline.settings import Policy

POPULARITY_BUCKETS = 10
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """Events by number: day since 1970, hour of the day, user and item codes shared by both sides."""

    day: Ints
    hour: Ints
    user: Ints
    item: Ints

    def between(self, start: date, end: date) -> Stream:
        """Events of the days [start, end)."""
        keep = (self.day >= _number(start)) & (self.day < _number(end))
        return Stream(self.day[keep], self.hour[keep], self.user[keep], self.item[keep])

    @property
    def users(self) -> int:
        return len(np.unique(self.user))


def compare_events(
    base: pa.Table, now: pa.Table, windows: Sequence[tuple[date, date]], policy: Policy
) -> list[FeatureDrift]:
    """``activity``, ``popularity``, ``unseen_items`` and ``hour`` of the windows (newest first).

    The reference is cut into windows of the same length. Popularity buckets and known items come from all of them
    but the newest; the newest tells how the buckets and the share of new items looked when the incumbent was made,
    so that the ordinary arrival of new items is no drift.
    """
    before, after = _streams(base, now)
    length = (windows[0][1] - windows[0][0]).days
    cells = [after.between(start, end) for start, end in windows]
    split = _last_days(before, length)
    older, newest = split
    buckets = _buckets(older.item)
    features = {
        "activity": (_activity(before, length), [_events_per_user(cell) for cell in cells]),
        "popularity": (_bucketed(newest, buckets), [_bucketed(cell, buckets) for cell in cells]),
        "unseen_items": (_unseen(newest, buckets), [_unseen(cell, buckets) for cell in cells]),
        "hour": (pa.array(before.hour.astype(str)), [pa.array(cell.hour.astype(str)) for cell in cells]),
    }
    units = {"activity": None, "popularity": newest.users, "unseen_items": newest.users, "hour": before.users}
    found = []
    for name, (reference, samples) in features.items():
        per_user = units[name] is not None
        windowed = [
            Sample(start, end, values, cell.users if per_user else None)
            for (start, end), values, cell in zip(windows, samples, cells, strict=True)
        ]
        found.append(compare(name, reference, windowed, policy, reference_units=units[name]))
    return found


def _streams(base: pa.Table, now: pa.Table) -> tuple[Stream, Stream]:
    users = _codes(base.column("user_id"), now.column("user_id"))
    items = _codes(base.column("item_id"), now.column("item_id"))
    return _stream(base, users[0], items[0]), _stream(now, users[1], items[1])


def _stream(table: pa.Table, users: Ints, items: Ints) -> Stream:
    at = table.column("happened_at").cast(pa.timestamp("us", tz="UTC"))
    micros = at.cast(pa.int64()).to_numpy().astype(np.int64)
    return Stream(micros // 86_400_000_000, micros // 3_600_000_000 % 24, users, items)


def _codes(first: pa.ChunkedArray, second: pa.ChunkedArray) -> tuple[Ints, Ints]:
    joined = pa.chunked_array(first.cast(pa.string()).chunks + second.cast(pa.string()).chunks, type=pa.string())
    encoded = pc.dictionary_encode(joined.combine_chunks())
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers[: len(first)], numbers[len(first) :]


def _last_days(stream: Stream, days: int) -> tuple[Stream, Stream]:
    """(all but the last `days` days, the last `days` days) of the reference."""
    if len(stream.day) == 0:
        return stream, stream
    end = date(1970, 1, 1) + timedelta(days=int(stream.day.max()) + 1)
    cut = end - timedelta(days=days)
    return stream.between(date(1970, 1, 1), cut), stream.between(cut, end)


def _activity(stream: Stream, days: int) -> pa.Array:
    """Events per user in each stretch of `days` days of the reference, counted back from its end."""
    if len(stream.day) == 0:
        return pa.array([], pa.float64())
    age = (stream.day.max() - stream.day) // days
    whole = (stream.day.max() - stream.day.min() + 1) // days  # an incomplete oldest stretch is left out
    keep = age < max(1, whole)
    cell = age[keep] * (int(stream.user.max()) + 1) + stream.user[keep]
    return pa.array(np.unique(cell, return_counts=True)[1].astype(np.float64))


def _events_per_user(stream: Stream) -> pa.Array:
    return pa.array(np.unique(stream.user, return_counts=True)[1].astype(np.float64))


def _buckets(items: Ints) -> dict[int, str]:
    """Item → bucket: items from the most to the least taken, cut so that each bucket holds a tenth of the events."""
    if len(items) == 0:
        return {}
    names, counts = np.unique(items, return_counts=True)
    order = np.lexsort((names, -counts))
    middle = np.cumsum(counts[order]) - counts[order] / 2
    places = np.minimum(POPULARITY_BUCKETS - 1, middle * POPULARITY_BUCKETS // counts.sum()).astype(np.int64)
    return {int(item): f"tenth {place + 1}" for item, place in zip(names[order], places, strict=True)}


def _bucketed(stream: Stream, buckets: dict[int, str]) -> pa.Array:
    return pa.array([buckets[item] for item in stream.item.tolist() if item in buckets], pa.string())


def _unseen(stream: Stream, buckets: dict[int, str]) -> pa.Array:
    return pa.array(["seen" if item in buckets else "new" for item in stream.item.tolist()], pa.string())


def _number(day: date) -> int:
    return (day - date(1970, 1, 1)).days
