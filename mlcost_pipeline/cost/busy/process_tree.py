"""CPU time of a process and of all that it began, as one number that never falls.

The kernel adds a child's time to its parent's when the parent waits for it, so what was already counted of a child
while it ran is taken off again then; a child that nobody of the tree waits for keeps what was seen of it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class _Use:
    """CPU seconds of a process as last seen: its own, and those of the children it has waited for."""

    process: psutil.Process
    parent: int
    own: float
    waited_for: float


class ProcessTree:
    """CPU seconds of a process, its threads and its descendants, orphans among them; one device is one vCPU."""

    metric = "process_cpu"
    device = "cpu"
    cumulative = True

    def __init__(self, pid: int | None = None) -> None:
        self._root = os.getpid() if pid is None else pid
        #: Another process is all this run's, from its start; of this process only what it uses from now on.
        self.from_birth = self._root != os.getpid()
        self.capacity = float(usable_cpus(self._root))
        self._seen: dict[int, _Use] = {}
        self._total = 0.0
        self._over = False

    def read(self) -> float | None:
        """CPU seconds so far; None once nothing of the tree runs any more."""
        if self._over:
            return None
        now = self._look()
        self._over = not any(_runs(use.process) for use in now.values())  # the dead may still be read, once
        if not now:
            return None
        owed = self._owed(now)
        for pid, use in now.items():
            was = self._seen.get(pid)
            own, waited_for = (was.own, was.waited_for + owed.get(pid, 0.0)) if was else (0.0, 0.0)
            self._total += max(0.0, use.own - own) + max(0.0, use.waited_for - waited_for)
        self._seen = now
        return self._total

    def close(self) -> None:
        """Nothing is held open."""

    def _look(self) -> dict[int, _Use]:
        found: dict[int, _Use] = {}
        waiting = [self._root, *self._seen]
        while waiting:
            pid = waiting.pop()
            if pid in found:
                continue
            was = self._seen.get(pid)
            with suppress(psutil.Error):
                process = was.process if was else psutil.Process(pid)
                if was and not process.is_running():
                    continue  # another process may have its number now
                found[pid] = _use(process)
                waiting += children(process)
        return found

    def _owed(self, now: dict[int, _Use]) -> dict[int, float]:
        """What the nearest ancestor of each vanished process has, by waiting for it, been given a second time."""
        owed: dict[int, float] = {}
        for pid in self._seen.keys() - now.keys():
            heir = self._seen[pid].parent
            while heir not in now and heir in self._seen:
                heir = self._seen[heir].parent
            owed[heir] = owed.get(heir, 0.0) + self._seen[pid].own + self._seen[pid].waited_for
        return owed


def children(process: psutil.Process) -> list[int]:
    """Numbers of the children of a process: by the kernel's own list where it keeps one, else by looking at all."""
    tasks = Path(f"/proc/{process.pid}/task")
    try:
        lists = [(task / "children").read_text() for task in tasks.iterdir()]
    except OSError:
        return [child.pid for child in process.children()]
    return [int(number) for text in lists for number in text.split()]


def usable_cpus(pid: int) -> int:
    """CPUs that a process may run on."""
    with suppress(psutil.Error, AttributeError):
        return len(psutil.Process(pid).cpu_affinity())
    return os.cpu_count() or 1


def _use(process: psutil.Process) -> _Use:
    if process.pid == os.getpid():  # finer than the kernel's ticks of 10 ms
        times = os.times()
        return _Use(process, process.ppid(), time.process_time(), times.children_user + times.children_system)
    with process.oneshot():
        spent = process.cpu_times()
        return _Use(process, process.ppid(), spent.user + spent.system, spent.children_user + spent.children_system)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
