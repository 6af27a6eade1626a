"""What batch scoring reads of each known user: the history the model sees and the items it must leave out.

Both are kept as one flat array with offsets, so that a million users cost two arrays and not a million objects.
User and item ids are opaque text: they are looked up, never parsed and never used as row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError


@dataclass(frozen=True)
class Ragged:
    """Rows of item indices: row `i` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def row(self, number: int) -> NDArray[np.int64]:
        """One row, in the order it was given."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """How many items each row holds."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Histories:
    """Known users in id order, with what each did and what each must not be shown.

    `history` and `seen` hold indices into the model's items; events on items the model does not know are left out.
    """

    users: list[str]
    history: Ragged
    seen: Ragged


def build_histories(events: pa.Table, seen: pa.Table, items: Sequence[str]) -> Histories:
    """Arrange events for scoring.

    Args:
        events: columns user_id and item_id, each user's rows in time order; its users are the known users.
        seen: columns user_id and item_id: what is not to be recommended again, in any order, repeats allowed.
        items: the model's item ids by index.

    Raises:
        ModelError: the model names an item twice, so an index would not be one item.
    """
    vocabulary = pa.array(items, type=pa.string())
    if len(pc.unique(vocabulary)) != len(items):
        raise ModelError("the model names an item id twice; train it again on items with distinct ids")
    users = pc.unique(events.column("user_id").cast(pa.string())).drop_null()
    users = users.take(pc.sort_indices(users))
    return Histories(
        users=users.to_pylist(),
        history=_ragged(events, users, vocabulary),
        seen=_ragged(seen, users, vocabulary),
    )


def _ragged(pairs: pa.Table, users: pa.Array, vocabulary: pa.Array) -> Ragged:
    user = pc.index_in(pairs.column("user_id").cast(pa.string()), value_set=users)
    item = pc.index_in(pairs.column("item_id").cast(pa.string()), value_set=vocabulary)
    known = pc.and_(pc.is_valid(user), pc.is_valid(item))
    rows = _numbers(user.filter(known))
    values = _numbers(item.filter(known))
    order = np.argsort(rows, kind="stable")
    offsets = np.zeros(len(users) + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=len(users)), out=offsets[1:])
    return Ragged(values[order], offsets)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(column.to_numpy(), dtype=np.int64)
