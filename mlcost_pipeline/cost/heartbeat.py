"""The pulse of a run: once a second its state object says that its process lived, and what CPU it had used by then.

A run whose process is gone ends at its last heartbeat, with the busy time measured up to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.processes import ProcessIdentity, cpu_seconds, identify
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.state import StateStore

BEAT_SECONDS = 1.0


class Heartbeat:
    """Beats for one run until stopped or until the process it watches is gone."""

    def __init__(self, state: StateStore, clock: Clock, run_id: str, watched: ProcessIdentity | None = None) -> None:
        self._state, self._clock, self._run_id = state, clock, run_id
        self._stop = threading.Event()
        self._watched = watched or identify()
        # Another process is all this run's; of this process only what it uses from now on.
        self._cpu_at_start = (cpu_seconds() or 0.0) if self._watched.pid == os.getpid() else 0.0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {run_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the pulse; returns after the last beat under way has been written."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def watch(self, pid: int) -> None:
        """From now on the run lives and dies with process `pid`, whose CPU time from its start is the run's."""
        with self._lock:
            self._watched, self._cpu_at_start = identify(pid), 0.0
        self.beat()

    def busy_seconds(self) -> float | None:
        """CPU seconds used for this run so far × the clock's rate: in the same seconds as its occupancy."""
        with self._lock:
            used = cpu_seconds(self._watched.pid)
            return None if used is None else max(0.0, used - self._cpu_at_start) * self._clock.rate

    def beat(self) -> None:
        """Write one heartbeat."""
        busy, now = self.busy_seconds(), self._clock.now()
        self._state.update(f"runs/{self._run_id}", self._beaten(now, busy))

    def _beaten(self, now: datetime, busy: float | None) -> Callable[[dict[str, Any] | None], dict[str, Any]]:
        def change(value: dict[str, Any] | None) -> dict[str, Any]:
            beaten = {**(value or {}), "process": self._watched.as_json(), "heartbeat_at": now.isoformat()}
            if busy is not None:
                beaten |= {"busy_seconds": busy, "busy_until": now.isoformat()}
            return beaten

        return change

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            # A process that has ended is not beaten for: its last heartbeat is when it was last seen alive.
            if cpu_seconds(self._watched.pid) is None:
                continue
            # A beat that could not be written (a full disk, say) must not stop the work: the next second tries again.
            with suppress(OSError, WarehouseError):
                self.beat()
