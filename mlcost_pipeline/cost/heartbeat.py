"""The pulse of a run: once a second its state object says that its process lived, and how busy it had been by then.

A run whose process is gone ends at its last heartbeat, with the busy time measured up to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy.sampler import Sampler, meter_of
from mlcost_pipeline.cost.busy.stored import entry_of, with_entry
from mlcost_pipeline.cost.processes import ProcessIdentity, cpu_seconds, identify
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.state import StateStore

BEAT_SECONDS = 1.0


class Heartbeat:
    """Beats for one run until stopped or until the process it watches is gone."""

    def __init__(
        self,
        state: StateStore,
        clock: Clock,
        run_id: str,
        watched: ProcessIdentity | None = None,
        *,
        gpus: bool | Sequence[str] = False,
        share_milli: int = 1000,
    ) -> None:
        """Of this process's time only what is used from here on is the run's; of another's, all of it."""
        self._state, self._clock, self._run_id = state, clock, run_id
        self._gpus, self._share_milli = gpus, share_milli
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._watched = watched or identify()
        self._sampler = self._measuring(self._watched.pid)
        self._dropped: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {run_id}", daemon=True)

    def start(self, began: datetime | None = None) -> None:
        """Begin to beat for a run that began at `began` (default: now)."""
        self._sampler.began = began or self._sampler.began
        self._sampler.sample()
        self._sampler.go_on()
        self._thread.start()

    def stop(self) -> None:
        """End the pulse; returns after the last beat under way and all that was measured have been written."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._sampler.stop()
        with suppress(OSError, WarehouseError):
            self._state.update(f"runs/{self._run_id}", self._measured())

    def watch(self, pid: int) -> None:
        """From now on the run lives and dies with process `pid`, whose time from its start is the run's.

        What this process used until now was the launcher's, and does not count.
        """
        with self._lock:
            before, began = self._sampler, self._sampler.began
            self._dropped = entry_of(self._watched, before)
            self._watched = identify(pid)
            self._sampler = self._measuring(pid, began)
            self._sampler.go_on()
        before.stop()
        self.beat()

    def beat(self) -> None:
        """Write one heartbeat."""
        with self._lock:
            self._sampler.sample()
            now = self._clock.now()
            measured, watched = self._measured(), self._watched.as_json()

        def change(value: dict[str, Any] | None) -> dict[str, Any]:
            return {**measured(value), "process": watched, "heartbeat_at": now.isoformat()}

        self._state.update(f"runs/{self._run_id}", change)

    def _measuring(self, pid: int, began: datetime | None = None) -> Sampler:
        meter = meter_of(pid, gpus=self._gpus, share_milli=self._share_milli)
        sampler = Sampler(self._clock, meter, began=began)
        sampler.sample()
        return sampler

    def _measured(self) -> Callable[[dict[str, Any] | None], dict[str, Any]]:
        busy, entry, dropped = self._sampler.busy(), entry_of(self._watched, self._sampler), self._dropped
        return lambda value: with_entry(value or {}, entry, busy, without=dropped)

    def _run(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            # A process that has ended is not beaten for: its last heartbeat is when it was last seen alive.
            if cpu_seconds(self._watched.pid) is None:
                continue
            # A beat that could not be written (a full disk, say) must not stop the work: the next second tries again.
            with suppress(OSError, WarehouseError):
                self.beat()
