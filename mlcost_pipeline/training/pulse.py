"""The heartbeat of a trainer: one small file, replaced atomically, from which liveness and progress are read."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from mlcost_pipeline.models.data_wait import waited_seconds
from mlcost_pipeline.training.contract import read_json, write_json

BEAT_SECONDS = 0.2


@dataclass(frozen=True)
class Heartbeat:
    """A trainer's own account of itself. Seconds are wall seconds; `monotonic` is the machine's monotonic clock."""

    phase: str  # starting | stepping | saved | done
    step: int
    total_steps: int
    samples_seen: int
    resumed_from: int
    durable_step: int
    cpu_seconds: float
    stepping_seconds: float
    monotonic: float
    data_wait_seconds: float | None = None  # None: the trainer does not say


class Pulse:
    """Writes heartbeats, at most a few a second unless something changed that others wait for."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.stepping_since: float | None = None
        self.written_at = float("-inf")
        self._waited_before = waited_seconds()

    @property
    def data_wait_seconds(self) -> float:
        """Wall seconds that this attempt has waited for data, reading its features included."""
        return waited_seconds() - self._waited_before

    def beat(self, phase: str, *, step: int = 0, total: int = 0, samples: int = 0, resumed: int = 0, durable: int = 0,
             force: bool = False) -> None:  # fmt: skip
        """Write a heartbeat if one is due or `force` asks for it."""
        now = time.monotonic()
        if not force and now - self.written_at < BEAT_SECONDS:
            return
        self.written_at = now
        stepping = 0.0 if self.stepping_since is None else now - self.stepping_since
        cpu, waited = sum(os.times()[:4]), self.data_wait_seconds
        beat = Heartbeat(phase, step, total, samples, resumed, durable, cpu, stepping, now, waited)
        write_json(self.file, asdict(beat), durable=False)


def read_heartbeat(file: Path) -> Heartbeat | None:
    """The last heartbeat of an attempt; fields that a team's own trainer left out read as zero, waiting as unknown."""
    value = read_json(file)
    if value is None:
        return None
    empty = Heartbeat("stepping", 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)
    known = {
        f.name: type(getattr(empty, f.name))(value.get(f.name, getattr(empty, f.name)))
        for f in fields(Heartbeat)
        if f.name != "data_wait_seconds"
    }
    waited = value.get("data_wait_seconds")
    return Heartbeat(**known, data_wait_seconds=None if waited is None else float(waited))
