"""Busy hours ÷ billed hours, in hours of one device; the denominator comes from the bill.

Billed device time is apportioned by the very rules that apportion money. Busy time is counted up to what the run
held (a proxy such as CPU time may exceed it). A run without samples is unknown and never counts as full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from mlcost_pipeline.cost.attribution import attribute, tags_of
from mlcost_pipeline.cost.slots import Slot
from mlcost_pipeline.cost.snapshot import Snapshot

_WHOLE = 1000  # milli-units of one device; also the capacity taken for a resource that nobody registered
_PER_HOUR = 3_600_000_000 * _WHOLE


@dataclass(frozen=True)
class Utilisation:
    """Device hours of one stage: billed, sampled (billed of runs with a measurement), busy; `metrics` names how."""

    billed_hours: float
    sampled_hours: float
    busy_hours: float
    metrics: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """Busy ÷ billed where it was measured; None if nothing was."""
        return self.busy_hours / self.sampled_hours if self.sampled_hours > 0 else None

    @property
    def coverage(self) -> float:
        """The share of the billed time that was measured; what is left is unknown, not idle."""
        return self.sampled_hours / self.billed_hours if self.billed_hours > 0 else 0.0


def billed_time(slots: Sequence[Slot], snapshot: Snapshot) -> dict[str, int]:
    """Billed device time of each run in microseconds × thousandths of a device."""
    devices: dict[tuple[str, datetime, datetime], Slot] = {}
    for slot in slots:
        if slot.category != "Usage" or slot.resource_id is None or slot.charge_end <= slot.charge_start:
            continue
        key = (slot.resource_id, slot.charge_start, slot.charge_end)
        if key not in devices or tags_of(slot, snapshot).run is not None:
            devices[key] = slot
    timed = [_as_time(slot, snapshot) for slot in devices.values()]
    found: dict[str, int] = {}
    for _, parts in attribute(timed, snapshot):
        for part in parts:
            if part.run_id is not None:
                found[part.run_id] = found.get(part.run_id, 0) + part.amounts["billed"]
    return found


def utilisation(
    runs: Iterable[Mapping[str, Any]], billed: Mapping[str, int], holds: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Utilisation:
    """Utilisation over some runs, given their billed time here and all that they held."""
    total = sampled = 0
    busy = 0.0
    metrics = set()
    for run in runs:
        here = billed.get(run["run_id"], 0)
        total += here
        if run["busy_seconds"] is None or here == 0:
            continue
        coverage = run["busy_coverage"] if run["busy_coverage"] is not None else 1.0
        held = sum(_held(hold) for hold in holds.get(run["run_id"], ()))
        measured = min(run["busy_seconds"] * 1e6 * _WHOLE, float(held or here))
        # Of a run that two periods bill, each gets the busy time that goes with its part of the hold.
        busy += min(measured * (min(1.0, here / held) if held else 1.0), float(here))
        sampled += round(here * coverage)
        metrics.add(str(run["busy_metric"]))
    return Utilisation(total / _PER_HOUR, sampled / _PER_HOUR, busy / _PER_HOUR, tuple(sorted(metrics)))


def _as_time(slot: Slot, snapshot: Snapshot) -> Slot:
    microseconds = (slot.charge_end - slot.charge_start) // timedelta(microseconds=1)
    known = [hold for hold in snapshot.capacities.get(slot.resource_id or "", ()) if hold.start < slot.charge_end]
    amount = microseconds * (known[-1].share_milli if known else _WHOLE)
    return replace(slot, billed=amount, effective=amount, list=None)


def _held(hold: Mapping[str, Any]) -> int:
    if hold["end"] is None:
        return 0
    return int((hold["end"] - hold["start"]) // timedelta(microseconds=1)) * int(hold["share_milli"])
