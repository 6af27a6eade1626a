"""Jumps of a number's unit: amounts that arrive in cents, in another currency, or with the point lost.

Held is the median of a group (a terminal, a category, everything) on one day against the group's own median before,
as a ratio, so neither the unit nor the mix of groups matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REFERENCE_ROWS = 20
SMALL_CELL, SMALL_RATIO = 3, 20.0
LARGE_CELL, LARGE_RATIO = 30, 5.0
CELLS_NEEDED = 3
OUTLYING = 0.999


@dataclass(frozen=True)
class Jump:
    """Rows whose group's median moved by `ratio` against the reference."""

    rows: NDArray[np.bool_]
    """One flag for each current row: to be kept out of training."""
    ratio: float
    groups: int
    known_groups: int
    first_day: int
    """Smallest day number among the shifted cells."""
    fit: float
    """How well the groups tell the outlying rows from the others, 0 to 1 (the cosine of the two sets, squared)."""


def codes(before: pa.ChunkedArray, now: pa.ChunkedArray) -> tuple[Ints, Ints, int]:
    """Group numbers of both sides over one common dictionary; null is a group of its own."""
    joined = pa.chunked_array(before.chunks + now.chunks, type=before.type).combine_chunks()
    encoded = joined.dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    numbers = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
    return numbers[: len(before)], numbers[len(before) :], len(encoded.dictionary)


def find_jump(
    before: Floats, before_groups: Ints, now: Floats, now_groups: Ints, days: Ints, groups: int
) -> Jump | None:
    """The jump of one column over one grouping, or None.

    A cell is one group on one day. It is shifted where its median is 20 times the group's reference (3 rows or
    more), or 5 times (30 rows or more), up or down. Three small cells or one large cell make a jump.
    """
    medians = _medians(before, before_groups, groups)
    level = medians[now_groups]
    usable = _positive(now, level)
    logs = np.full(len(now), np.nan)
    logs[usable] = np.log10(np.abs(now[usable]) / level[usable])
    cell_of = now_groups * (int(days.max(initial=0)) + 1) + days
    shifted: list[tuple[int, int, float, int]] = []
    for rows in _cells(cell_of, usable):
        middle = float(np.median(logs[rows]))
        large = len(rows) >= LARGE_CELL and abs(middle) >= np.log10(LARGE_RATIO)
        small = len(rows) >= SMALL_CELL and abs(middle) >= np.log10(SMALL_RATIO)
        if large or small:
            shifted.append((int(now_groups[rows[0]]), int(days[rows[0]]), middle, len(rows)))
    if len(shifted) < CELLS_NEEDED and not any(rows >= LARGE_CELL for *_, rows in shifted):
        return None
    usual = np.log10(
        np.abs(before) / medians[before_groups],
        where=_positive(before, medians[before_groups]),
        out=np.full(len(before), np.nan),
    )
    return _jump(shifted, now_groups, days, int(np.isfinite(medians).sum()), logs, usual)


def _positive(values: Floats, level: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(values) & (values != 0) & np.isfinite(level) & (level > 0))


def _jump(
    shifted: list[tuple[int, int, float, int]], groups: Ints, days: Ints, known: int, logs: Floats, usual: Floats
) -> Jump:
    """Rows of the shifted groups, and on these days every row that is farther out than all but 1 in 1,000 were before.

    The second catches rows of groups that are too small on one day to be judged as groups.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for group, day, _, _ in shifted:
        first[group], last[group] = min(day, first.get(group, day)), max(day, last.get(group, day))
    flagged = np.zeros(len(groups), dtype=bool)
    for group in first:
        flagged |= (groups == group) & (days >= first[group]) & (days <= last[group])
    middle = float(np.median([middle for _, _, middle, _ in shifted]))
    side = 1.0 if middle > 0 else -1.0
    far = float(np.nanquantile(side * usual, OUTLYING)) if np.isfinite(usual).any() else np.inf
    outlying = side * np.nan_to_num(logs, nan=-side * np.inf) > max(far, 0.5 * abs(middle))
    outlying &= (days >= min(first.values())) & (days <= max(last.values()))
    both = int((outlying & flagged).sum())
    fit = both * both / max(1, int(outlying.sum()) * int(flagged.sum()))
    return Jump(flagged | outlying, float(10**middle), len(first), known, min(first.values()), fit)


def _medians(values: Floats, groups: Ints, count: int) -> Floats:
    """Median of |value| by group; NaN where a group has too few rows to have a level."""
    medians = np.full(count, np.nan)
    for rows in _cells(groups, np.isfinite(values)):
        if len(rows) >= REFERENCE_ROWS:
            medians[groups[rows[0]]] = np.median(np.abs(values[rows]))
    return medians


def _cells(labels: Ints, usable: NDArray[np.bool_]) -> list[Ints]:
    """Row numbers by label, usable rows only."""
    rows = np.flatnonzero(usable)
    if len(rows) == 0:
        return []
    order = rows[np.argsort(labels[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return list(np.split(order, starts))
