"""The order of data, from (seed, epoch) and a cursor alone, never from live random state.

So the same batches come in the same order after any number of interruptions, and at the end the samples seen can
be held against the samples expected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import CheckpointError


@dataclass(frozen=True)
class Cursor:
    """Where training stands: the next batch to take, and what has been taken."""

    epoch: int = 0
    batch: int = 0
    samples_seen: int = 0
    steps: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Order:
    """All batches of a training. An epoch boundary has one form only: (epoch + 1, batch 0)."""

    seed: int
    samples: int
    batch_size: int
    epochs: int

    @classmethod
    def whole(cls, seed: int, samples: int) -> Order:
        """The order of a model without steps: everything at once, in its given order."""
        return cls(seed, samples, max(1, samples), 1)

    @property
    def batches_per_epoch(self) -> int:
        return -(-self.samples // self.batch_size)

    @property
    def total_steps(self) -> int:
        return self.batches_per_epoch * self.epochs

    @property
    def expected_samples(self) -> int:
        return self.samples * self.epochs

    def indices(self, cursor: Cursor) -> NDArray[np.int64]:
        """The samples of the batch at the cursor; the last batch of an epoch may be shorter."""
        if self.batches_per_epoch == 1:
            return np.arange(self.samples, dtype=np.int64)
        start = cursor.batch * self.batch_size
        return permutation(self.seed, cursor.epoch, self.samples)[start : start + self.batch_size]

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor once its batch has been taken."""
        taken = min(self.batch_size, self.samples - cursor.batch * self.batch_size)
        ended = cursor.batch + 1 == self.batches_per_epoch
        epoch, batch = (cursor.epoch + 1, 0) if ended else (cursor.epoch, cursor.batch + 1)
        return Cursor(epoch, batch, cursor.samples_seen + taken, cursor.steps + 1)

    def finished(self, cursor: Cursor) -> bool:
        return self.samples == 0 or cursor.epoch >= self.epochs

    def cursor_from(self, stored: dict[str, Any]) -> Cursor:
        """A stored cursor, checked against this order.

        Raises:
            CheckpointError: its counts contradict each other or this data.
        """
        cursor = Cursor(*(int(stored[name]) for name in ("epoch", "batch", "samples_seen", "steps")))
        expected = Cursor(
            cursor.epoch,
            cursor.batch,
            cursor.epoch * self.samples + cursor.batch * self.batch_size,
            cursor.epoch * self.batches_per_epoch + cursor.batch,
        )
        if cursor != expected or not 0 <= cursor.batch < max(1, self.batches_per_epoch):
            raise CheckpointError(f"cursor {cursor} does not fit {self}; expected {expected}")
        return cursor


_kept: dict[tuple[int, int, int], NDArray[np.int64]] = {}


def permutation(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """A permutation of ``range(samples)`` that depends on (seed, epoch) alone.

    Made by sorting the raw words of PCG64: numpy promises its bit streams, but not what ``Generator.permutation``
    makes of them, for all versions (NEP 19). The last one is kept, since an epoch asks for it batch by batch.
    """
    key = (seed, epoch, samples)
    if key not in _kept:
        words = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(samples)
        _kept.clear()
        _kept[key] = np.argsort(words, kind="stable").astype(np.int64)
    return _kept[key]


def step_seed(seed: int, epoch: int, batch: int) -> int:
    """The seed of one step's randomness (dropout, negative samples), from its place alone; 63 bits."""
    return int(np.random.SeedSequence([seed, epoch, batch, 1]).generate_state(1, np.uint64)[0] >> 1)
