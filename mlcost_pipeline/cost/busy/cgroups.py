"""CPU time of a cgroup that holds one run and nothing else: what the kernel itself bills the container with.

A cgroup is a run's own if every process in it is the run's process or one that it began. Formats: cpu.stat and
cpu.max of cgroup v2 (kernel.org, admin-guide/cgroup-v2), cpuacct.usage and cpu.cfs_* of v1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from mlcost_pipeline.cost.busy.process_tree import usable_cpus

ROOT = Path("/sys/fs/cgroup")


@dataclass
class CgroupCpu:
    """CPU seconds of one cgroup; `capacity` is its quota in CPUs, or the CPUs its processes may run on."""

    folder: Path
    device: str
    capacity: float
    usage_seconds: Callable[[Path], float | None]
    metric: str = "cgroup_cpu"
    cumulative: bool = True
    from_birth: bool = False  # the cgroup may be older than the run: only what comes from now on is the run's

    def read(self) -> float | None:
        """CPU seconds since the cgroup was made; None if it is gone or its last process has ended."""
        return self.usage_seconds(self.folder) if _processes(self.folder) else None

    def close(self) -> None:
        """Nothing is held open."""


def own_cgroup(pid: int | None = None) -> CgroupCpu | None:
    """The meter of the cgroup that holds process `pid` (default: this one) and what it began alone, or None."""
    number = os.getpid() if pid is None else pid
    for controller, name in _memberships(number):
        place = _place(controller, name)
        if place is None or not _holds_only(place, number):
            continue
        found = CgroupCpu(place, f"cgroup {name}", 0.0, _usage_v2 if controller == "" else _usage_v1)
        if found.read() is not None:
            quota = _quota_v2(place) if controller == "" else _quota_v1(name)
            found.capacity = min(float(usable_cpus(number)), quota or float("inf"))
            return found
    return None


def _memberships(pid: int) -> list[tuple[str, str]]:
    """(controller, name) of the cgroups that account for CPU time: v2 ("") first, then v1's cpuacct."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    split = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    named = [(controllers, name) for _, controllers, name in split]
    return [("", name) for c, name in named if c == ""] + [(c, name) for c, name in named if "cpuacct" in c.split(",")]


def _place(controller: str, name: str) -> Path | None:
    roots = (ROOT / "unified", ROOT) if controller == "" else (ROOT / controller, ROOT / "cpuacct")
    file = "cpu.stat" if controller == "" else "cpuacct.usage"
    return next((place for root in roots if (place := root / name.lstrip("/")) / file if (place / file).exists()), None)


def _holds_only(folder: Path, pid: int) -> bool:
    members = _processes(folder)
    if pid not in members:
        return False
    known = {pid}
    for member in members - known:
        try:
            known_too = any(parent.pid in known for parent in psutil.Process(member).parents())
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:
            return False
        if not known_too:
            return False
    return True


def _processes(folder: Path) -> set[int]:
    with suppress(OSError, ValueError):
        return {int(line) for line in (folder / "cgroup.procs").read_text().split()}
    return set()


def _usage_v2(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        fields = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6 if "usage_usec" in fields else None
    return None


def _usage_v1(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    return None


def _quota_v2(folder: Path) -> float | None:
    with suppress(OSError, ValueError):
        limit, period = (folder / "cpu.max").read_text().split()
        return int(limit) / int(period)
    return None


def _quota_v1(name: str) -> float | None:
    for root in (ROOT / "cpu", ROOT / "cpu,cpuacct"):
        with suppress(OSError, ValueError):
            folder = root / name.lstrip("/")
            limit = int((folder / "cpu.cfs_quota_us").read_text())
            return limit / int((folder / "cpu.cfs_period_us").read_text()) if limit > 0 else None
    return None
