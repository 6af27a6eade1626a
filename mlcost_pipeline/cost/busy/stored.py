"""Busy time in the state object of a run, so that it outlives whoever measured it.

A run has one entry for each stretch that was measured by somebody; they add up. A meter that counts from a process's
start has one entry a process, whoever reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mlcost_pipeline.cost.busy.measured import Busy, joined
from mlcost_pipeline.cost.busy.sampler import Sampler
from mlcost_pipeline.cost.processes import ProcessIdentity, identify

FIELD = "busy"


def entry_of(watched: ProcessIdentity, sampler: Sampler) -> str:
    """The name of the entry that `sampler` writes for the process it watches."""
    process = f"{watched.host}/{watched.pid}/{watched.start_ticks}"
    if sampler.continues or watched.pid == os.getpid():
        return process
    me = identify()
    return f"{process}@{me.host}/{me.pid}/{me.start_ticks}"


def with_entry(held: Mapping[str, Any], entry: str, busy: Busy, *, without: str | None = None) -> dict[str, Any]:
    """The state of a run with one entry as it stands now, and without another."""
    entries = {name: value for name, value in held.get(FIELD, {}).items() if name != without}
    return {**held, FIELD: {**entries, entry: busy.as_json()}}


def busy_of(held: Mapping[str, Any], run_seconds: float) -> Busy | None:
    """All that was measured of a run that took `run_seconds` of its clock; None if nobody measured anything."""
    return joined((Busy.from_json(value) for value in held.get(FIELD, {}).values()), run_seconds)
