"""What the kernel knows of a process: who it is, whether it still lives, and the CPU seconds it has used."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcost_pipeline.clock import boot_id


@dataclass(frozen=True)
class ProcessIdentity:
    """A process of one boot of one machine; the start time tells it from a later process with its number."""

    host: str
    boot_id: str
    pid: int
    start_ticks: int

    def as_json(self) -> dict[str, Any]:
        return {"host": self.host, "boot_id": self.boot_id, "pid": self.pid, "start_ticks": self.start_ticks}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ProcessIdentity:
        return cls(str(value["host"]), str(value["boot_id"]), int(value["pid"]), int(value["start_ticks"]))


def identify(pid: int | None = None) -> ProcessIdentity:
    """The identity of a process, by default of this one."""
    number = os.getpid() if pid is None else pid
    stat = _stat(number)
    return ProcessIdentity(socket.gethostname(), boot_id(), number, int(stat[19]) if stat else 0)


def is_alive(process: ProcessIdentity) -> bool | None:
    """Whether the process still runs; None if it belongs to another machine and cannot be seen from here."""
    if process.boot_id != boot_id():
        return False if process.host == socket.gethostname() else None
    stat = _stat(process.pid)
    if stat is not None:
        return stat[0] not in ("Z", "X") and int(stat[19]) == process.start_ticks
    if Path("/proc/self/stat").exists():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def cpu_seconds(pid: int | None = None) -> float | None:
    """CPU seconds of all threads of a process and of its children that have ended; None if it cannot be read."""
    if pid is None or pid == os.getpid():
        times = os.times()
        return time.process_time() + times.children_user + times.children_system
    stat = _stat(pid)
    if stat is None:
        return None
    return sum(int(ticks) for ticks in stat[11:15]) / float(os.sysconf("SC_CLK_TCK"))


def _stat(pid: int) -> list[str] | None:
    """Fields of ``/proc/<pid>/stat`` from the state on (field 3 of proc(5) is index 0)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return text.rpartition(")")[2].split()
