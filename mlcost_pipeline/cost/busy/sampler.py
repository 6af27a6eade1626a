"""A thread that reads one meter once a second for one run, and what its readings add up to on the run's clock.

A cumulative meter misses nothing between two readings, so its time is covered from the first to the last. Of any
other, a reading stands for the time since the one before, but for two intervals at most: a sampler that was stopped
itself, or a meter that could not be read, leaves a gap, and a gap is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy import nvml
from mlcost_pipeline.cost.busy.cgroups import own_cgroup
from mlcost_pipeline.cost.busy.measured import Busy, Meter
from mlcost_pipeline.cost.busy.process_tree import ProcessTree

INTERVAL_SECONDS = 1.0
LONGEST_GAP = 2.0  # intervals that one reading may stand for


class Sampler:
    """Measures from :meth:`start` until :meth:`stop`; :meth:`busy` says how it stands in between."""

    def __init__(
        self, clock: Clock, meter: Meter, *, began: datetime | None = None, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        """`began` is when the run began, on its clock (default: now); `interval_seconds` are wall seconds."""
        self._clock, self._meter, self._interval = clock, meter, interval_seconds
        self.began = began or clock.now()
        self._first: tuple[datetime, float] | None = None
        self._last_at: datetime | None = None
        self._busy = self._covered = 0.0
        self._samples = 0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler {meter.device}", daemon=True)

    @classmethod
    def start(
        cls,
        clock: Clock,
        pid: int | None = None,
        *,
        gpus: bool | Sequence[str] = False,
        share_milli: int | None = None,
        began: datetime | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> Sampler:
        """Begin to measure process `pid` (default: this one) and all that it begins.

        Args:
            gpus: the run's work is on GPUs: those that its process sees, or these (indices or UUIDs). Where NVML is
                absent, CPU time is measured instead, and the metric says so.
            share_milli: thousandths of a GPU that the run holds of them; without it, all of each.
        """
        meter = meter_of(pid, gpus=gpus, share_milli=share_milli)
        sampler = cls(clock, meter, began=began, interval_seconds=interval_seconds)
        sampler.sample()
        sampler.go_on()
        return sampler

    def go_on(self) -> None:
        """Begin to read once an interval."""
        self._thread.start()

    def sample(self) -> None:
        """Read the meter once; a reading that fails adds nothing."""
        with self._lock:
            now, value = self._clock.now(), self._read()
            if value is None:
                return
            if self._meter.cumulative:
                self._count(now, value)
            else:
                self._level(now, value)
            self._last_at, self._samples = now, self._samples + 1

    def busy(self) -> Busy:
        """What has been measured so far."""
        with self._lock:
            elapsed = (self._clock.now() - self.began) / timedelta(seconds=1)
            coverage = min(1.0, max(0.0, self._covered / elapsed)) if elapsed > 0 else 0.0
            meter = self._meter
            return Busy(
                self._busy, meter.metric, coverage, meter.device, self._samples, self._covered, float(meter.capacity)
            )

    def stop(self) -> Busy:
        """Read a last time and end the thread."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self.sample()
        found = self.busy()
        with self._lock:
            self._meter.close()
        return found

    @property
    def continues(self) -> bool:
        """Whether a sampler that begins later on the same process still counts from the process's start."""
        return self._meter.from_birth

    def _read(self) -> float | None:
        try:
            return self._meter.read()
        except OSError:  # no file handles left, say: a reading is lost, not the run
            return None

    def _count(self, now: datetime, value: float) -> None:
        if self._first is None:
            self._first = (self.began, 0.0) if self._meter.from_birth else (now, value)
        since, base = self._first
        self._busy = (value - base) * self._clock.rate
        self._covered = max(0.0, (now - since) / timedelta(seconds=1))

    def _level(self, now: datetime, value: float) -> None:
        if self._last_at is None:
            return
        longest = LONGEST_GAP * self._interval * self._clock.rate
        stretch = min(longest, max(0.0, (now - self._last_at) / timedelta(seconds=1)))
        self._busy += value * stretch
        self._covered += stretch

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.sample()


def meter_of(pid: int | None = None, *, gpus: bool | Sequence[str] = False, share_milli: int | None = None) -> Meter:
    """The best meter there is: the run's GPUs, a cgroup of its own, its process tree."""
    library = nvml.library() if gpus is not False else None
    if library is not None:
        names = nvml.visible_gpus(library, pid) if isinstance(gpus, bool) else list(gpus)
        if names:
            return nvml.Gpus(library, names, pid=pid, share_milli=share_milli)
    return own_cgroup(pid) or ProcessTree(pid)
