"""Exact top-k in two passes: a blocked float32 product finds candidates, a fixed-order float64 dot decides.

The first pass may round differently for another block size or another library; the second may not. A user whose
k-th exact score does not beat the best score left out by more than the first pass can be wrong is looked at again
with more candidates, so the ranking depends on the vectors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError

MARGIN = 16
UNIT_ROUNDOFF = 2.0**-24  # of float32


@dataclass(frozen=True)
class Catalogue:
    """The items that may be recommended, ready for scoring.

    `vectors` is (n, d) float32; `columns` (d, n) float64, one contiguous row a factor; `index` maps to the model's
    items; `position` maps back (-1: not eligible); `id_rank` is the place of each item id in text order.
    """

    vectors: NDArray[np.float32]
    columns: NDArray[np.float64]
    index: NDArray[np.int64]
    position: NDArray[np.int64]
    id_rank: NDArray[np.int64]
    longest: float

    @classmethod
    def of(cls, items: Sequence[str], vectors: NDArray[np.float32], withdrawn: frozenset[str]) -> Catalogue:
        """Take the items that are not withdrawn.

        Raises:
            ModelError: items and vectors do not match, or a vector is not finite.
        """
        if vectors.ndim != 2 or len(items) != len(vectors):
            raise ModelError(f"the model has {len(items)} items but item vectors of shape {vectors.shape}")
        if not np.isfinite(vectors).all():
            bad = items[int(np.argmin(np.isfinite(vectors).all(axis=1)))]
            raise ModelError(f"the model's vector of item {bad!r} is not finite; train it again")
        index = np.array([i for i, item in enumerate(items) if item not in withdrawn], dtype=np.int64)
        position = np.full(len(items), -1, dtype=np.int64)
        position[index] = np.arange(len(index))
        id_rank = np.empty(len(index), dtype=np.int64)
        names = [items[i] for i in index.tolist()]
        id_rank[np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)] = np.arange(len(names))
        chosen = np.ascontiguousarray(vectors[index], dtype=np.float32)
        columns = np.ascontiguousarray(chosen.T, dtype=np.float64)
        longest = float(np.sqrt((columns**2).sum(axis=0)).max()) if len(index) else 0.0
        return cls(chosen, columns, index, position, id_rank, longest)

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Ranked:
    """The best items of a block of users: `places` (rows, k) of the catalogue, `scores` (rows, k), -inf: no item."""

    places: NDArray[np.int64]
    scores: NDArray[np.float64]


def rank_block(users: NDArray[np.float32], catalogue: Catalogue, barred: Sequence[NDArray[np.int64]], k: int) -> Ranked:
    """The top `k` of each user, by score descending, then item id ascending.

    Args:
        users: (rows, d) user vectors.
        barred: for each row the places of the catalogue that are left out.
    """
    rows, n = len(users), len(catalogue)
    k = min(k, n)
    if k == 0 or rows == 0:
        return Ranked(np.zeros((rows, 0), dtype=np.int64), np.zeros((rows, 0)))
    first = users @ catalogue.vectors.T
    lengths = np.array([len(places) for places in barred])
    if lengths.any():
        first[np.repeat(np.arange(rows), lengths), np.concatenate(list(barred))] = -np.inf
    doubt = _first_pass_error(users, catalogue)
    places = np.zeros((rows, k), dtype=np.int64)
    scores = np.full((rows, k), -np.inf)
    open_rows, width = np.arange(rows), min(n, k + MARGIN)
    while len(open_rows):
        best, exact, sure = _decide(first[open_rows], users[open_rows], catalogue, doubt[open_rows], k, width)
        places[open_rows[sure]], scores[open_rows[sure]] = best[sure], exact[sure]
        open_rows, width = open_rows[~sure], min(n, 4 * width)
    return Ranked(places, scores)


def _first_pass_error(users: NDArray[np.float32], catalogue: Catalogue) -> NDArray[np.float64]:
    """Bound of a float32 dot product in any order: γ·‖u‖·‖v‖ with γ = d·ε/(1 - d·ε) (Higham 2002, §3.1)."""
    steps = (users.shape[1] + 2) * UNIT_ROUNDOFF
    norms = np.sqrt((users.astype(np.float64) ** 2).sum(axis=1))
    return np.asarray(steps / (1 - steps) * norms * catalogue.longest * 1.001 + 1e-37)


def _decide(
    first: NDArray[np.float32],
    users: NDArray[np.float32],
    catalogue: Catalogue,
    doubt: NDArray[np.float64],
    k: int,
    width: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    rows, n = first.shape
    if width < n:
        order = np.argpartition(first, n - width - 1, axis=1)
        candidates = order[:, n - width :]
        left_out = np.take_along_axis(first, order[:, n - width - 1 : n - width], axis=1)[:, 0].astype(np.float64)
    else:
        candidates = np.broadcast_to(np.arange(n), (rows, n))
        left_out = np.full(rows, -np.inf)
    exact = exact_scores(users, catalogue.columns, candidates)
    exact[np.take_along_axis(first, candidates, axis=1) == -np.inf] = -np.inf
    order = np.lexsort((catalogue.id_rank[candidates], -exact), axis=-1)[:, :k]
    best = np.take_along_axis(candidates, order, axis=1)
    scores = np.take_along_axis(exact, order, axis=1)
    sure = (left_out == -np.inf) | (scores[:, -1] > left_out + doubt)
    return best, scores, sure


def exact_scores(
    users: NDArray[np.float32], columns: NDArray[np.float64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Float64 dot products of each row's candidates, factor by factor in order: the same bits wherever made."""
    total = np.zeros(candidates.shape)
    for factor in range(users.shape[1]):
        total += columns[factor][candidates] * users[:, factor, None].astype(np.float64)
    return total + 0.0  # turns -0.0 into 0.0
