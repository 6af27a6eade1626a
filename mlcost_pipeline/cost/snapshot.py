"""What attribution knows of the runs: which run is whose, who held which resource when, and what it can hold.

A snapshot holds only what can touch one bill, and its digest is part of the ledger version's identity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mlcost_pipeline.cost.apportion import Hold
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.cost.slots import Slot
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

#: Kinds of resources that exist for one run only, so that all they cost is that run's.
SINGLE_RUN_KINDS = frozenset({"job", "run"})


@dataclass(frozen=True)
class Owner:
    """Whose a run is."""

    model: str
    stage: str


@dataclass(frozen=True)
class Snapshot:
    """Runs, occupancy and resources as attribution sees them; resource ids are canonical."""

    runs: Mapping[str, Owner]
    holds: Mapping[str, Sequence[Hold]]
    capacities: Mapping[str, Sequence[Hold]]
    kinds: Mapping[str, str]
    models: frozenset[str]
    tag_keys: Mapping[str, frozenset[str]]
    _starts: dict[str, tuple[list[datetime], list[datetime | None]]] = field(default_factory=dict, compare=False)

    def holds_in(self, resource_id: str, start: datetime, end: datetime) -> Sequence[Hold]:
        """Holds on a resource that overlap [start, end); looked up by start, with the furthest end so far."""
        holds = self.holds.get(resource_id, ())
        if not holds:
            return holds
        if resource_id not in self._starts:
            self._starts[resource_id] = [hold.start for hold in holds], _furthest_ends(holds)
        starts, furthest = self._starts[resource_id]
        last = bisect_left(starts, end)
        first = last
        while first > 0 and (furthest[first - 1] is None or furthest[first - 1] > start):  # type: ignore[operator]
            first -= 1
        return holds[first:last]

    def sole_run(self, resource_id: str) -> str | None:
        """The one run that a resource belongs to: a job's own resource, or one known only from a single run."""
        owners = {hold.owner for hold in self.holds.get(resource_id, ())}
        if len(owners) != 1:
            return None
        kind = self.kinds.get(resource_id)
        return owners.pop() if kind is None or kind in SINGLE_RUN_KINDS else None


def take(warehouse: Warehouse, settings: Settings, slots: Sequence[Slot]) -> Snapshot:
    """The snapshot that concerns the slots of one bill."""
    resources = {slot.resource_id for slot in slots if slot.resource_id is not None}
    tagged = {value for slot in slots for value in slot.tags.values()}
    occupancy = [row | {"resource_id": canonical(row["resource_id"])} for row in warehouse.rows("occupancy")]
    occupancy = [row for row in occupancy if row["resource_id"] in resources]
    holders = {row["run_id"] for row in occupancy}
    records = warehouse.rows("run_records", columns=["run_id", "model", "stage"])
    owners = {r["run_id"]: Owner(r["model"], r["stage"]) for r in records if r["run_id"] in holders | tagged}
    registered = [row | {"resource_id": canonical(row["resource_id"])} for row in warehouse.rows("resources")]
    return build(owners, occupancy, [row for row in registered if row["resource_id"] in resources], settings.models)


def build(
    owners: Mapping[str, Owner],
    occupancy: Iterable[Mapping[str, Any]],
    resources: Iterable[Mapping[str, Any]],
    models: Iterable[str],
) -> Snapshot:
    """A snapshot from plain rows (those of the tables ``occupancy`` and ``resources``)."""
    holds: dict[str, list[Hold]] = {}
    for row in occupancy:
        if row["run_id"] in owners:
            hold = Hold(row["run_id"], row["start"], row["end"], int(row["share_milli"]))
            holds.setdefault(row["resource_id"], []).append(hold)
    capacities: dict[str, list[Hold]] = {}
    kinds: dict[str, str] = {}
    for row in sorted(resources, key=lambda row: (row["resource_id"], row["valid_from"])):
        kinds[row["resource_id"]] = row["kind"]
        earlier = capacities.setdefault(row["resource_id"], [])
        _end_before(earlier, row["valid_from"])
        earlier.append(Hold("capacity", row["valid_from"], row["valid_to"], int(row["capacity_milli"])))
    ordered = {name: sorted(found, key=lambda h: (h.start, h.owner, h.share_milli)) for name, found in holds.items()}
    return Snapshot(dict(owners), ordered, capacities, kinds, frozenset(models), TAG_KEYS)


def digest_of(snapshot: Snapshot) -> str:
    """The identity of what a ledger was built from, besides the bill."""
    holds = [
        [name, hold.owner, hold.start.isoformat(), hold.end and hold.end.isoformat(), hold.share_milli]
        for group in (snapshot.holds, snapshot.capacities)
        for name, found in sorted(group.items())
        for hold in found
    ]
    owners = [[run_id, owner.model, owner.stage] for run_id, owner in sorted(snapshot.runs.items())]
    return digest(owners, holds, sorted(snapshot.kinds.items()), sorted(snapshot.models))


#: Tags by which a charge names its run, model or stage; a provider's prefix (``user:``) is taken off first.
TAG_KEYS: Mapping[str, frozenset[str]] = {
    "run": frozenset({"mlcost_run", "mlcost_run_id"}),
    "model": frozenset({"mlcost_model", "model"}),
    "stage": frozenset({"mlcost_stage", "stage"}),
}


def _furthest_ends(holds: Sequence[Hold]) -> list[datetime | None]:
    """The latest end among the holds up to each one; None once one of them is not over."""
    found: list[datetime | None] = []
    for hold in holds:
        if found and (found[-1] is None or hold.end is None):
            found.append(None)
        else:
            found.append(hold.end if not found or hold.end is None else max(found[-1], hold.end))  # type: ignore[type-var]
    return found


def _end_before(capacities: list[Hold], start: datetime) -> None:
    """A later capacity of the same resource ends the one before it, so that they are never added up."""
    if capacities and (capacities[-1].end is None or capacities[-1].end > start):
        last = capacities[-1]
        capacities[-1] = Hold(last.owner, last.start, start, last.share_milli)
