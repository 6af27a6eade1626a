"""The course of the loss, carried through checkpoints: a resumed training reports what an undisturbed one does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Losses:
    """Mean loss of each finished epoch, and the running one."""

    epoch_means: tuple[float, ...] = ()
    running_sum: float = 0.0
    running_batches: int = 0
    last: float | None = None

    def add(self, loss: float, *, epoch_ended: bool) -> Losses:
        """The course after one more step. A loss that is no number is left out of the means."""
        finite = math.isfinite(loss)
        total = self.running_sum + (loss if finite else 0.0)
        batches = self.running_batches + (1 if finite else 0)
        last = loss if finite else self.last
        if not epoch_ended:
            return Losses(self.epoch_means, total, batches, last)
        means = (*self.epoch_means, total / batches) if batches else self.epoch_means
        return Losses(means, 0.0, 0, last)

    def as_dict(self) -> dict[str, Any]:
        return {
            "epoch_means": list(self.epoch_means),
            "running_sum": self.running_sum,
            "running_batches": self.running_batches,
            "last": self.last,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Losses:
        return cls(tuple(value["epoch_means"]), value["running_sum"], value["running_batches"], value["last"])
