"""Training events of a recommendation features folder as item numbers per user, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.data_wait import waiting_for_data


@dataclass(frozen=True)
class Sequences:
    """Users' events as a compressed row format: user u owns ``item[offsets[u]:offsets[u + 1]]``, oldest first."""

    items: list[str]
    users: list[str]
    offsets: NDArray[np.int64]
    item: NDArray[np.int64]

    def histories(self) -> list[NDArray[np.int64]]:
        """One array of item numbers a user."""
        return [self.item[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]


@waiting_for_data()
def read_sequences(features: Path, training_cut: datetime) -> Sequences:
    """Events before ``training_cut``; items and users are numbered in the order of their ids as text.

    Raises:
        ModelError: no events before the cut.
    """
    path = features / "events.parquet"
    events = pq.read_table(path, columns=["user_id", "item_id", "happened_at", "event_id"])
    events = events.filter(pc.less(events["happened_at"], pa.scalar(training_cut, events["happened_at"].type)))
    if events.num_rows == 0:
        raise ModelError(f"{path}: no events before the training cut {training_cut.isoformat()}; nothing to train on")
    events = events.sort_by([(name, "ascending") for name in ("user_id", "happened_at", "event_id")])
    users, user = _numbered(events["user_id"])
    items, item = _numbered(events["item_id"])
    offsets = np.searchsorted(user, np.arange(len(users) + 1)).astype(np.int64)
    return Sequences(items, users, offsets, item)


def first_occurrences(history: NDArray[np.int64]) -> NDArray[np.int64]:
    """The history without repeats, each item where it came first."""
    _, first = np.unique(history, return_index=True)
    return history[np.sort(first)]


def distinct_pairs(histories: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row numbers, item numbers) of the distinct pairs, sorted by row and item."""
    unique = [np.unique(history) for history in histories]
    lengths = np.array([len(u) for u in unique], dtype=np.int64)
    flat = np.concatenate(unique) if unique else np.empty(0, dtype=np.int64)
    return np.repeat(np.arange(len(unique), dtype=np.int64), lengths), flat.astype(np.int64)


def _numbered(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct texts in code-point order, and each row's number among them."""
    values = column.combine_chunks().dictionary_encode()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    texts = values.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[order] = np.arange(len(texts))
    return [texts[i] for i in order], rank[values.indices.to_numpy(zero_copy_only=False).astype(np.int64)]
