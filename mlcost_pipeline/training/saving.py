"""When to save, and what to do when a save fails: training goes on, up to a bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcost_pipeline.errors import CheckpointError
from mlcost_pipeline.training import checkpoint
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.order import Cursor

FIRST_SHARE = 0.2  # the first save comes after this share of an interval: a restart loop must make progress
FAILURES_ALLOWED = 5


@dataclass
class Saver:
    """Saves on an interval of wall seconds; a failed save is retried at the next, until the bound."""

    place: AttemptFolder
    config_hash: str
    interval_seconds: float
    say: Callable[[str], None]
    durable_step: int = 0
    failures: int = 0
    save_seconds: float = 0.0
    due_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.due_at = time.monotonic() + self.interval_seconds * FIRST_SHARE

    def due(self) -> bool:
        return time.monotonic() >= self.due_at

    def save(self, state: Mapping[str, Any], cursor: Cursor, losses: Mapping[str, Any]) -> bool:
        """Save and drop what is no longer needed; False if it failed.

        Raises:
            CheckpointError: too many saves in a row failed; going on would risk all work since the last durable one.
        """
        began = time.monotonic()
        self.due_at = began + self.interval_seconds
        try:
            checkpoint.save(self.place, state, cursor, losses, self.config_hash)
            checkpoint.retain(self.place, self.config_hash)
        except OSError as error:
            self.failures += 1
            self.say(f"checkpoint at step {cursor.steps} failed ({self.failures} in a row): {error}")
            if self.failures >= FAILURES_ALLOWED:
                raise CheckpointError(
                    f"{self.failures} saves in a row failed, the last with: {error}; last durable step "
                    f"{self.durable_step}; make room or repair {self.place.checkpoints}"
                ) from error
            return False
        self.failures, self.durable_step = 0, cursor.steps
        self.save_seconds = time.monotonic() - began
        self.due_at = time.monotonic() + self.interval_seconds
        return True
