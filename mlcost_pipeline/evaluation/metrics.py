"""What is counted: hits in ranked lists, cases caught at a fixed number of alerts a day, average precision.

Ties are broken the same way everywhere: the higher score first, then the smaller id (as text). So no metric depends
on the order in which rows or items are given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError, NothingCompared

EMPTY = -1


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The k best columns of each row, best first; exact, also where scores are tied.

    Columns must stand in the order of their ids: of equal scores the earlier column wins. A column scored ``-inf``
    is not eligible; rows with fewer than k eligible columns end in ``EMPTY``.

    Args:
        scores: (n, columns), finite or ``-inf``.
        k: length of a list, at least 1.

    Returns:
        (n, k) column numbers.

    Raises:
        ModelError: a score is NaN or ``+inf``.
    """
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise ModelError("a model gave scores that are not finite; nothing can be ranked by them")
    rows, columns = scores.shape
    lists = np.full((rows, k), EMPTY, dtype=np.int64)
    width = min(k, columns)
    if rows == 0 or width == 0:
        return lists
    last = -np.partition(-scores, width - 1, axis=1)[:, width - 1 : width]
    above = scores > last
    tied = scores == last
    room = width - above.sum(axis=1, keepdims=True)
    chosen = above | (tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room))
    picked = np.nonzero(chosen)[1].reshape(rows, width)
    values = np.take_along_axis(scores, picked, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    ranked = np.take_along_axis(picked, order, axis=1)
    ranked[np.isneginf(np.take_along_axis(values, order, axis=1))] = EMPTY
    lists[:, :width] = ranked
    return lists


@dataclass(frozen=True)
class RankedMetrics:
    """Per user: how many targets are among the k (`hits`), whether any is (`hit`), and NDCG@k."""

    hits: NDArray[np.int64]
    hit: NDArray[np.bool_]
    ndcg: NDArray[np.float64]


def ranked_metrics(
    lists: NDArray[np.int64], target_user: NDArray[np.int64], target_item: NDArray[np.int64]
) -> RankedMetrics:
    """Hits and NDCG of ranked lists against targets, per user.

    NDCG has binary gain and discount 1/log2(position + 1), the ideal list holding min(k, targets) of them
    (Järvelin and Kekäläinen, 2002). Padding and targets that no list can hold (negative numbers) never hit, but such
    targets count in the ideal.

    Args:
        lists: (users, k) item numbers, ``EMPTY`` as padding.
        target_user: (targets,) row of `lists`.
        target_item: (targets,) item number; each (user, item) once.
    """
    users, k = lists.shape
    span = int(max(lists.max(initial=0), target_item.max(initial=0))) + 1
    reachable = target_item >= 0
    wanted = target_user[reachable] * span + target_item[reachable]
    offered = np.arange(users, dtype=np.int64)[:, None] * span + lists
    found = np.isin(offered, wanted) & (lists >= 0)
    discount = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    count = np.bincount(target_user, minlength=users)
    best = ideal[np.minimum(count, k)]
    gain = (found * discount).sum(axis=1)
    ndcg = np.divide(gain, best, out=np.zeros(users), where=best > 0)
    hits = found.sum(axis=1).astype(np.int64)
    return RankedMetrics(hits, hits > 0, ndcg)


def alerted_at_capacity(
    scores: NDArray[np.float64], days: NDArray[np.int64], ids: NDArray[np.str_], capacity: int
) -> NDArray[np.bool_]:
    """Which rows are among their day's `capacity` best: score descending, then id ascending.

    Args:
        scores: (n,) finite.
        days: (n,) any number that names a row's day.
        ids: (n,) text.
        capacity: alerts a day.
    """
    if not np.isfinite(scores).all():
        raise ModelError("a model gave scores that are not finite; no alerts can be drawn from them")
    order = np.lexsort((ids, -scores, days))
    sorted_days = days[order]
    first = np.searchsorted(sorted_days, sorted_days, side="left")
    alerted = np.zeros(len(scores), dtype=np.bool_)
    alerted[order] = np.arange(len(scores)) - first < capacity
    return alerted


def recall_at_capacity(
    scores: NDArray[np.float64],
    labels: NDArray[np.bool_],
    days: NDArray[np.int64],
    ids: NDArray[np.str_],
    capacity: int,
) -> float:
    """Share of the positive rows that a fixed number of alerts a day catches.

    Raises:
        NothingCompared: there is no positive row.
    """
    positives = int(labels.sum())
    if positives == 0:
        raise NothingCompared(f"{len(labels)} rows hold no positive, so nothing could have been caught")
    return float((alerted_at_capacity(scores, days, ids, capacity) & labels).sum() / positives)


def average_precision(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Σ (R_n - R_(n-1)) P_n over the distinct scores, highest first: rows of equal score count together.

    Raises:
        NothingCompared: there is no positive row.
    """
    positives = int(labels.sum())
    if positives == 0:
        raise NothingCompared(f"{len(labels)} rows hold no positive, so precision means nothing")
    order = np.argsort(-scores, kind="stable")
    caught = np.cumsum(labels[order])
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    precision = caught[ends] / (ends + 1)
    gained = np.diff(caught[ends], prepend=0) / positives
    return float((gained * precision).sum())
