"""Process groups: an attempt is everything its first process began, and ends when nothing of it runs any more."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil

from mlcost_pipeline.cost.processes import ProcessIdentity, is_alive


def group_alive(leader: ProcessIdentity) -> bool:
    """Whether anything of the group that `leader` began still runs, even if the leader itself is gone.

    The kernel gives a number to no new process while a group of that number lives, so the group is still the one meant
    unless a process with the leader's number and another start time is there.
    """
    if is_alive(leader):
        return True
    try:
        os.killpg(leader.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return any(_member(process, leader.pid) for process in psutil.process_iter())


def signal_group(leader: ProcessIdentity, number: signal.Signals) -> None:
    """Send a signal to the whole group, if it is still the one that `leader` began."""
    if group_alive(leader):
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)


def _member(process: psutil.Process, group: int) -> bool:
    try:
        return process.pid != group and os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ProcessLookupError, PermissionError):
        return False
