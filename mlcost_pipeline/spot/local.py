"""Capacity on this machine: processes that are preempted as a trace says, with real signals.

An instance boots for `startup_seconds`, gets its notice as SIGTERM when the trace goes down (a share of notices is
lost, by a hash, not by chance), and is killed `notice_seconds` later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import datetime, timedelta

import psutil

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.processes import ProcessIdentity, identify
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import Pool, Settings, digest
from mlcost_pipeline.spot.capacity import CapacityRefused, Instance, LaunchRequest, Seen
from mlcost_pipeline.spot.market import Trace, record_look, trace_of
from mlcost_pipeline.spot.policy import PoolView
from mlcost_pipeline.spot.processes import group_alive, signal_group
from mlcost_pipeline.training.contract import INTERRUPTED, AttemptFolder
from mlcost_pipeline.warehouse import Warehouse

LOOK_SECONDS = 60.0  # of the model's clock, between two recorded looks at pools that have not changed
LOOK_WALL_SECONDS = 1.0  # and never more often than this, unless they have

# Boots, runs the command, and leaves its exit code in a file: whoever supervises then may not be its parent.
BOOT = """
trap 'stopped=1' TERM INT
exit_file=$1; sleep "$2" & wait $! || stopped=1
shift 2
if [ -n "$stopped" ]; then code=INTERRUPTED; else "$@"; code=$?; fi
printf '%s' "$code" > "$exit_file.new" && mv "$exit_file.new" "$exit_file"
exit "$code"
""".replace("INTERRUPTED", str(INTERRUPTED))


class LocalCapacity:
    """Local processes as instances of the pools of mlcost.yaml, on the clock of one model."""

    def __init__(self, warehouse: Warehouse, settings: Settings, clock: Clock) -> None:
        self.warehouse = warehouse
        self.clock = clock
        self._pools: dict[str, Pool] = {pool.name: pool for pool in settings.capacity.pools}
        self._traces: dict[str, Trace | None] = {n: trace_of(settings, pool) for n, pool in self._pools.items()}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._noticed: set[int] = set()
        self._witnessed: set[int] = set()  # attempts that were seen alive by this supervisor
        self._saw: list[bool] = []
        self._looked_at = float("-inf")

    def pools(self) -> tuple[PoolView, ...]:
        now = self.clock.now()
        views = tuple(self._view(pool, now) for pool in self._pools.values())
        saw, due = [view.available for view in views], max(LOOK_WALL_SECONDS, self.clock.wall_seconds(LOOK_SECONDS))
        if saw != self._saw or time.monotonic() - self._looked_at >= due:
            self._saw, self._looked_at = saw, time.monotonic()
            for view in views:
                record_look(self.warehouse, self._pools[view.name], at=now, available=view.available)
        return views

    def launch(self, request: LaunchRequest) -> Instance:
        """Start a process in a session of its own.

        Raises:
            CapacityRefused: the trace is down.
        """
        pool, now = self._pools[request.pool], self.clock.now()
        if not self._view(pool, now).available:
            raise CapacityRefused(f"pool {pool.name}: no capacity at {now.isoformat(timespec='seconds')}")
        boot_seconds = f"{self.clock.wall_seconds(pool.startup_seconds):.3f}"
        command = ["/bin/sh", "-c", BOOT, "trainer", str(request.place.exit_code), boot_seconds, *request.command]
        with request.place.log.open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **request.environment, **self._tags(request.job_id, request.attempt, pool.name)},
            )  # fmt: skip
        self._children[child.pid] = child
        self._witnessed.add(request.attempt)
        handle = {"process": identify(child.pid).as_json()}
        return Instance(request.job_id, request.attempt, pool.name, request.place, now, handle)

    def observe(self, instance: Instance) -> Seen:
        """Look at an instance, after playing the market on it up to now."""
        self._reap(instance)
        lost = self._lost_at(instance)
        running, now = self._running(instance), self.clock.now()
        if running:
            self._witnessed.add(instance.attempt)
        if running and lost is not None and now >= lost:
            self._preempt(instance, lost, now)
            running = self._running(instance)
        if running:
            return Seen(True, preempted=lost is not None and now >= lost)
        self._reap(instance)
        code = _exit_code(instance.place)
        if code is None and instance.attempt not in self._witnessed:
            return Seen(False)
        ended = max(now if code is None else self._moment_of(instance.place), instance.launched_at)
        return Seen(False, code, ended, preempted=lost is not None and ended >= lost)

    def notice(self, instance: Instance) -> None:
        process = _process(instance)
        if process is not None:
            signal_group(process, signal.SIGTERM)

    def terminate(self, instance: Instance) -> None:
        process = _process(instance)
        if process is None:
            return
        until = time.monotonic() + 10
        while self._running(instance):
            signal_group(process, signal.SIGKILL)
            self._reap(instance)
            if time.monotonic() > until:
                raise JobError(f"process group {process.pid} of {instance.pool} cannot be killed; look at it by hand")
            time.sleep(0.01)
        self._reap(instance)

    def list_mine(self, job_id: str) -> list[Instance]:
        """Found by the tags in their environment, as a cloud finds instances by theirs."""
        found = []
        for process in psutil.process_iter():
            try:
                tags = process.environ()
                if os.getpgid(process.pid) != process.pid or tags.get("MLCOST_JOB") != job_id:
                    continue
            except (psutil.Error, ProcessLookupError, PermissionError):
                continue
            if tags.get("MLCOST_WAREHOUSE") != str(self.warehouse.root):
                continue
            number = int(tags["MLCOST_ATTEMPT"])
            place = AttemptFolder(self.warehouse.folder(tags["MLCOST_MODEL"], "jobs", job_id), number)
            age = timedelta(seconds=(time.time() - process.create_time()) * self.clock.rate)
            began = self.clock.now() - age
            handle = {"process": identify(process.pid).as_json()}
            found.append(Instance(job_id, number, tags["MLCOST_POOL"], place, began, handle))
        return found

    def _tags(self, job_id: str, attempt: int, pool: str) -> dict[str, str]:
        return {
            "MLCOST_JOB": job_id,
            "MLCOST_ATTEMPT": str(attempt),
            "MLCOST_POOL": pool,
            "MLCOST_WAREHOUSE": str(self.warehouse.root),
        }

    def _view(self, pool: Pool, now: datetime) -> PoolView:
        trace = self._traces[pool.name]
        available = trace is None or trace.at(now)
        spell = None if trace is None else (now - trace.spell_began(now)).total_seconds()
        return PoolView(pool.name, pool.market, available, pool.price_per_hour, pool.startup_seconds, spell)

    def _lost_at(self, instance: Instance) -> datetime | None:
        trace = self._traces.get(instance.pool)
        return None if trace is None else trace.lost_at(instance.launched_at)

    def _preempt(self, instance: Instance, lost: datetime, now: datetime) -> None:
        pool = self._pools[instance.pool]
        if now >= lost + timedelta(seconds=pool.notice_seconds):
            self.terminate(instance)
        elif instance.attempt not in self._noticed:
            self._noticed.add(instance.attempt)
            draw = int(digest(pool.name, pool.trace_seed, lost.isoformat()), 16) / 16**16
            if draw >= pool.notice_lost_share:
                self.notice(instance)

    def _running(self, instance: Instance) -> bool:
        process = _process(instance)
        return process is not None and group_alive(process)

    def _reap(self, instance: Instance) -> None:
        process = _process(instance)
        child = None if process is None else self._children.get(process.pid)
        if child is not None:
            child.poll()

    def _moment_of(self, place: AttemptFolder) -> datetime:
        age = max(0.0, time.time() - place.exit_code.stat().st_mtime)
        return self.clock.now() - timedelta(seconds=age * self.clock.rate)


def _process(instance: Instance) -> ProcessIdentity | None:
    found = instance.handle.get("process")
    return None if found is None else ProcessIdentity.from_json(found)


def _exit_code(place: AttemptFolder) -> int | None:
    try:
        return int(place.exit_code.read_text())
    except (FileNotFoundError, ValueError):
        return None
