"""Score all known users: in shards by a stable hash of the user, in blocks of bounded memory, exactly.

Lists depend on the model, the history and the catalogue alone: not on the number of shards, the size of a block or
the other users of the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.inference.histories import Histories
from mlcost_pipeline.inference.ranking import Catalogue, rank_block

if TYPE_CHECKING:
    from mlcost_pipeline.models.base import Recommender

BLOCK_BYTES = 25_000_000  # a score matrix of this size stays near the processor's caches
REPRESENT_ROWS = 64  # every call of the model has this many rows, so that one user's vector never depends on how many


@dataclass(frozen=True)
class Scored:
    """Lists of all known users.

    Attributes:
        lists: user_id, rank (from 1), item_id, score; ordered by user and rank. No row is padding.
        no_history: users none of whose events are on items that the model knows; they have no list.
        owns_all: users for whom nothing is left to recommend; their list is empty.
    """

    lists: pa.Table
    no_history: list[str]
    owns_all: list[str]


@dataclass(frozen=True)
class _Shard:
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    score: NDArray[np.float64]


def shard_of(user_id: str, shards: int) -> int:
    """The shard of a user: a stable hash of the id's text, the same in every process and version of Python."""
    return int.from_bytes(hashlib.blake2b(user_id.encode(), digest_size=8).digest(), "big") % shards


def score_users(
    recommender: Recommender,
    histories: Histories,
    *,
    k: int,
    withdrawn: frozenset[str] = frozenset(),
    recommend_seen: bool = False,
    shards: int = 1,
    block_bytes: int = BLOCK_BYTES,
) -> Scored:
    """The exact top `k` of every known user.

    Raises:
        ModelError: the model's vectors do not fit its items, or are not finite.
    """
    vectors = np.asarray(recommender.item_vectors, dtype=np.float32)
    catalogue = Catalogue.of(recommender.items, vectors, withdrawn)
    lengths = histories.history.lengths()
    members: list[list[int]] = [[] for _ in range(shards)]
    for number, user in enumerate(histories.users):
        if lengths[number]:
            members[shard_of(user, shards)].append(number)
    parts = [
        _score_shard(recommender, catalogue, histories, np.array(rows, dtype=np.int64), k, recommend_seen, block_bytes)
        for rows in members
    ]
    numbers = np.concatenate([part.user for part in parts])
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    item = np.concatenate([part.item for part in parts])[order]
    score = np.concatenate([part.score for part in parts])[order]
    counts = np.bincount(numbers, minlength=len(histories.users))
    served = [name for name, length in zip(histories.users, lengths, strict=True) if length]
    empty = {histories.users[i] for i in np.flatnonzero((counts == 0) & (lengths > 0))}
    return Scored(
        lists=_table(numbers, item, score, histories.users, recommender.items),
        no_history=[name for name, length in zip(histories.users, lengths, strict=True) if not length],
        owns_all=[name for name in served if name in empty],
    )


def _score_shard(
    recommender: Recommender,
    catalogue: Catalogue,
    histories: Histories,
    rows: NDArray[np.int64],
    k: int,
    recommend_seen: bool,
    block_bytes: int,
) -> _Shard:
    """Score one shard; `rows` are its users."""
    size = max(1, block_bytes // (4 * max(1, len(catalogue))))
    nothing = np.zeros(0, dtype=np.int64)
    users, items, scores = [nothing], [nothing], [np.zeros(0)]
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        vectors = represent(recommender, [histories.history.row(i) for i in block])
        if not np.isfinite(vectors).all():
            bad = histories.users[block[int(np.argmin(np.isfinite(vectors).all(axis=1)))]]
            raise ModelError(f"the model's vector of user {bad!r} is not finite; the lists in force stay")
        barred = [nothing if recommend_seen else _places(catalogue, histories.seen.row(i)) for i in block]
        ranked = rank_block(vectors, catalogue, barred, k)
        real = ranked.scores > -np.inf
        users.append(np.repeat(block, real.sum(axis=1)))
        items.append(catalogue.index[ranked.places[real]] if len(catalogue) else nothing)
        scores.append(ranked.scores[real])
    return _Shard(np.concatenate(users), np.concatenate(items), np.concatenate(scores))


def represent(recommender: Recommender, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
    """User vectors, always asked for in calls of :data:`REPRESENT_ROWS` histories (the last is repeated to fill up)."""
    vectors = []
    for start in range(0, len(histories), REPRESENT_ROWS):
        chunk = list(histories[start : start + REPRESENT_ROWS])
        filled = chunk + [chunk[-1]] * (REPRESENT_ROWS - len(chunk))
        vectors.append(np.asarray(recommender.represent(filled), dtype=np.float32)[: len(chunk)])
    width = np.asarray(recommender.item_vectors).shape[1]
    return np.concatenate(vectors) if vectors else np.zeros((0, width), dtype=np.float32)


def _places(catalogue: Catalogue, seen: NDArray[np.int64]) -> NDArray[np.int64]:
    places = catalogue.position[seen]
    return places[places >= 0]


def _table(
    user: NDArray[np.int64],
    item: NDArray[np.int64],
    score: NDArray[np.float64],
    users: Sequence[str],
    items: Sequence[str],
) -> pa.Table:
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    rank = np.arange(len(user)) - np.repeat(starts, np.diff(np.append(starts, len(user)))) + 1
    return pa.table(
        {
            "user_id": pa.array(users, type=pa.string()).take(pa.array(user)),
            "rank": pa.array(rank, type=pa.int64()),
            "item_id": pa.array(items, type=pa.string()).take(pa.array(item)),
            "score": pa.array(score, type=pa.float64()),
        }
    )
