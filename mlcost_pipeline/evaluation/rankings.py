"""A recommender on held-out days: every user with history is ranked over the whole catalogue.

All recommenders are asked the same question, made from the features alone: same users, same targets. An item that a
model has never met cannot be recommended by it and counts as missed. A user of whose history a model knows nothing
is answered with the popular list, as in production.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.evaluation.metrics import RankedMetrics, ranked_metrics, top_k
from mlcost_pipeline.evaluation.split import Codes, Events, Split, held_out_days, leave_last_new
from mlcost_pipeline.models.base import Recommender

BLOCK_BYTES = 24_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Question:
    """What every recommender is asked: users (ids, sorted) with their histories and targets, by item number.

    `start[i]:start[i + 1]` is the history of user i in `history`, in order of time. `popular` counts the purchases of
    each item in the days before the cut.
    """

    users: list[str]
    items: list[str]
    history: Codes
    start: Codes
    target_user: Codes
    target_item: Codes
    withdrawn: NDArray[np.bool_]
    popular: NDArray[np.float32]
    repeats: bool

    def history_of(self, row: int) -> Codes:
        """The item numbers of one user's history, oldest first."""
        return self.history[self.start[row] : self.start[row + 1]]


@dataclass
class PopularList:
    """The popular list as a recommender: every user gets the same scores, the counts of the items."""

    items: list[str]
    item_vectors: NDArray[np.float32]

    @classmethod
    def of(cls, question: Question) -> PopularList:
        """The list as it stood at the cut."""
        return cls(question.items, question.popular[:, None])

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """(n, 1) ones."""
        return np.ones((len(histories), 1), dtype=np.float32)


def question(
    features: Path, start: datetime, end: datetime, *, repeats: bool = False, popular_days: int = 28
) -> Question:
    """Read a features folder and hold out the events of ``[start, end)``.

    Args:
        repeats: whether items the user has already met count as targets and may be recommended.
        popular_days: length of the window before `start` that the popular list is counted on.

    Raises:
        NothingCompared: no user with history has a target that could be recommended.
    """
    events, users, items = _read_events(features)
    withdrawn = _withdrawn(features, items)
    split = held_out_days(events, _micros(start), _micros(end), repeats=repeats)
    live = ~withdrawn[split.target_item] if len(split.target_item) else np.zeros(0, dtype=np.bool_)
    if not live.any():
        raise NothingCompared(
            f"{features}: no user with purchases before {start:%Y-%m-%d} has a target from then to {end:%Y-%m-%d}"
        )
    recent = split.history.at >= _micros(start - timedelta(days=popular_days))
    popular = np.bincount(split.history.item[recent], minlength=len(items)).astype(np.float32)
    return _asked(split, live, users, items, withdrawn, popular, repeats)


def last_new_question(features: Path) -> Question:
    """Each user's last new item as the only target, what came before it as history; popularity over all history.

    The protocol of published comparisons (leave one out). A model asked this must not have been trained on the targets.

    Raises:
        NothingCompared: no user has met two items.
    """
    events, users, items = _read_events(features)
    withdrawn = np.zeros(len(items), dtype=np.bool_)
    split = leave_last_new(events)
    live = np.ones(len(split.target_item), dtype=np.bool_)
    if not live.any():
        raise NothingCompared(f"{features}: no user has met two items, so there is no last new one")
    popular = np.bincount(split.history.item, minlength=len(items)).astype(np.float32)
    return _asked(split, live, users, items, withdrawn, popular, repeats=False)


def rank(recommender: Recommender, asked: Question, k: int) -> RankedMetrics:
    """Ask a recommender; users are scored in blocks, so memory does not grow with their number.

    Raises:
        ModelError: the model's scores are not finite.
    """
    columns = _Columns.of(recommender, asked)
    rows = max(1, BLOCK_BYTES // (4 * max(1, len(recommender.items))))
    lists = [
        columns.lists(recommender, asked, np.arange(first, min(first + rows, len(asked.users))), k)
        for first in range(0, len(asked.users), rows)
    ]
    return ranked_metrics(np.concatenate(lists), asked.target_user, columns.of_item[asked.target_item])


@dataclass(frozen=True)
class _Columns:
    """The items of one recommender in the order of their ids, and how they map to the question's items."""

    vectors: NDArray[np.float32]  # (columns, d)
    barred: NDArray[np.bool_]  # (columns,) padding or withdrawn
    of_item: Codes  # question's item → column, -1 if the model has never met it
    index_of_item: Codes  # question's item → the model's own index, -1 likewise
    popular: NDArray[np.float32]  # (columns,)

    @classmethod
    def of(cls, recommender: Recommender, asked: Question) -> _Columns:
        ids = recommender.items
        order = np.array(sorted(range(len(ids)), key=lambda i: ids[i]), dtype=np.int64)
        number = {item: n for n, item in enumerate(asked.items)}
        known = np.array([number.get(ids[i], -1) for i in order], dtype=np.int64)
        met = known >= 0
        of_item = np.full(len(asked.items), -1, dtype=np.int64)
        index_of_item = of_item.copy()
        of_item[known[met]] = np.flatnonzero(met)
        index_of_item[known[met]] = order[met]
        barred = np.array([not ids[i] for i in order], dtype=np.bool_)
        barred[met] |= asked.withdrawn[known[met]]
        popular = np.zeros(len(ids), dtype=np.float32)
        popular[met] = asked.popular[known[met]]
        return cls(np.asarray(recommender.item_vectors)[order], barred, of_item, index_of_item, popular)

    def lists(self, recommender: Recommender, asked: Question, rows: Codes, k: int) -> Codes:
        """(rows, k) columns, best first."""
        past = [asked.history_of(row) for row in rows]
        known = [indices[indices >= 0] for indices in (self.index_of_item[items] for items in past)]
        scores = np.tile(self.popular, (len(rows), 1))
        some = np.array([len(indices) > 0 for indices in known])
        if some.any():
            asked_of = [indices for indices in known if len(indices)]
            scores[some] = recommender.represent(asked_of) @ self.vectors.T
        scores[:, self.barred] = -np.inf
        if not asked.repeats:
            seen = self.of_item[np.concatenate(past)]
            row = np.repeat(np.arange(len(rows)), [len(items) for items in past])
            scores[row[seen >= 0], seen[seen >= 0]] = -np.inf
        return top_k(scores, k)


def _asked(
    split: Split, live: NDArray[np.bool_], users: list[str], items: list[str], withdrawn: NDArray[np.bool_],
    popular: NDArray[np.float32], repeats: bool,
) -> Question:  # fmt: skip
    chosen, target_user = np.unique(split.target_user[live], return_inverse=True)
    of_chosen = np.isin(split.history.user, chosen)
    owner = np.searchsorted(chosen, split.history.user[of_chosen])
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(chosen)))])
    return Question(
        users=[users[n] for n in chosen],
        items=items,
        history=split.history.item[of_chosen],
        start=start.astype(np.int64),
        target_user=target_user.astype(np.int64),
        target_item=split.target_item[live],
        withdrawn=withdrawn,
        popular=popular,
        repeats=repeats,
    )


def _read_events(features: Path) -> tuple[Events, list[str], list[str]]:
    """Events with users and items numbered by their ids in text order; events of one time ranked by event id."""
    table = pq.read_table(features / "events.parquet", columns=["user_id", "item_id", "happened_at", "event_id"])
    table = table.sort_by([(name, "ascending") for name in ("user_id", "happened_at", "event_id")])
    catalogue = pq.read_table(features / "items.parquet", columns=["item_id"])
    users, user = _numbered(table["user_id"].combine_chunks())
    both = pa.chunked_array([*table["item_id"].chunks, *catalogue["item_id"].chunks], type=pa.string())
    items, item = _numbered(both.combine_chunks())
    at = pc.cast(table["happened_at"].cast(pa.timestamp("us", tz="UTC")), pa.int64()).to_numpy()
    rank_of_event = np.arange(table.num_rows, dtype=np.int64)
    return Events(user, item[: table.num_rows], at, rank_of_event), users, items


def _numbered(values: pa.Array) -> tuple[list[str], Codes]:
    encoded = pc.dictionary_encode(values)
    ids: list[str] = encoded.dictionary.to_pylist()
    place = np.empty(len(ids), dtype=np.int64)
    place[np.array(sorted(range(len(ids)), key=lambda n: ids[n]), dtype=np.int64)] = np.arange(len(ids))
    return sorted(ids), place[encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)]


def _withdrawn(features: Path, items: list[str]) -> NDArray[np.bool_]:
    table = pq.read_table(features / "items.parquet", columns=["item_id", "withdrawn"])
    gone = {row["item_id"] for row in table.to_pylist() if row["withdrawn"]}
    return np.array([item in gone for item in items], dtype=np.bool_)


def _micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)
