"""The ladder of attribution: each slot is taken whole by the first rung that knows whose it is.

direct (a run tag, or a resource of one run) → occupancy (time × share) with the idle rest of that pool → model and
stage tags → unattributed, with its reason. The parts of a slot add up to it exactly, in every measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlcost_pipeline.cost.apportion import split, weigh
from mlcost_pipeline.cost.slots import Slot
from mlcost_pipeline.cost.snapshot import Snapshot

#: Part of the ledger version's identity: change it with every change of the rules below.
RULES_VERSION = "1"

DIRECT, OCCUPANCY, IDLE, TAG, UNATTRIBUTED = METHODS = ("direct", "occupancy", "idle", "tag", "unattributed")
ATTRIBUTED = (DIRECT, OCCUPANCY, TAG)
REASONS = (
    "charge_type", "orphan_run_tag", "no_resource_id", "tag_not_active", "unknown_resource", "no_run_at_that_time",
)  # fmt: skip
#: Charges that follow the use of a resource; purchases, taxes and kinds we do not know follow nothing by themselves.
FOLLOWS_USE = frozenset({"Usage", "Credit", "Adjustment"})
_STAGES = frozenset({"training", "serving", "features", "evaluation"})


@dataclass(frozen=True)
class Part:
    """A part of a slot: whose it is, by which rung, and how much of each measure the slot has."""

    method: str
    reason: str | None
    run_id: str | None
    model: str | None
    stage: str | None
    amounts: Mapping[str, int]


@dataclass(frozen=True)
class Tagged:
    """What the tags of a charge say, in our words."""

    run: str | None = None
    model: str | None = None
    stage: str | None = None


def attribute(slots: Sequence[Slot], snapshot: Snapshot) -> list[tuple[Slot, list[Part]]]:
    """The parts of every slot, in the order of the slots."""
    tagged_resources = _tagged_resources(slots, snapshot)
    return [(slot, _parts(slot, snapshot, tagged_resources)) for slot in slots]


def tags_of(slot: Slot, snapshot: Snapshot) -> Tagged:
    """Run, model and stage that a slot's tags name; a model that nobody configured is no model of ours."""
    plain = {key.lower().rpartition(":")[2]: value.strip() for key, value in sorted(slot.tags.items())}

    def first(kind: str) -> str | None:
        return next((plain[key] for key in sorted(snapshot.tag_keys[kind], reverse=True) if plain.get(key)), None)

    model, stage = first("model"), first("stage")
    return Tagged(first("run"), model if model in snapshot.models else None, stage if stage in _STAGES else None)


def _parts(slot: Slot, snapshot: Snapshot, tagged_resources: frozenset[str]) -> list[Part]:
    tags = tags_of(slot, snapshot)
    run_id = _direct(slot, tags, snapshot)
    if run_id is not None:
        return [_of_run(DIRECT, run_id, snapshot, slot.amounts)]
    if slot.resource_id is not None and slot.category in FOLLOWS_USE:
        parts = _by_occupancy(slot, slot.resource_id, snapshot)
        if parts:
            return parts
    if tags.model is not None:
        return [Part(TAG, None, None, tags.model, tags.stage, slot.amounts)]
    return [Part(UNATTRIBUTED, _reason(slot, tags, snapshot, tagged_resources), None, None, None, slot.amounts)]


def _direct(slot: Slot, tags: Tagged, snapshot: Snapshot) -> str | None:
    if tags.run is not None and tags.run in snapshot.runs:
        return tags.run
    if slot.resource_id is None or slot.category not in FOLLOWS_USE:
        return None
    return snapshot.sole_run(slot.resource_id)


def _by_occupancy(slot: Slot, resource_id: str, snapshot: Snapshot) -> list[Part]:
    """Parts by time and share, then the idle rest; nothing if no capacity is known and nobody held the resource."""
    holds = snapshot.holds_in(resource_id, slot.charge_start, slot.charge_end)
    capacities = snapshot.capacities.get(resource_id, ())
    largest = max((abs(amount) for amount in slot.amounts.values()), default=0)
    weights, capacity = weigh(holds, capacities, slot.charge_start, slot.charge_end, largest)
    if not weights and resource_id not in snapshot.capacities:
        return []
    shares = {name: split(amount, list(weights.values()), capacity) for name, amount in slot.amounts.items()}
    parts = [
        _of_run(OCCUPANCY, run_id, snapshot, {name: found[0][number] for name, found in shares.items()})
        for number, run_id in enumerate(weights)
    ]
    rest = {name: idle for name, (_, idle) in shares.items()}
    if any(rest.values()) or not parts:
        parts.append(Part(IDLE, None, None, None, None, rest))
    return parts


def _of_run(method: str, run_id: str, snapshot: Snapshot, amounts: Mapping[str, int]) -> Part:
    owner = snapshot.runs[run_id]
    return Part(method, None, run_id, owner.model, owner.stage, amounts)


def _reason(slot: Slot, tags: Tagged, snapshot: Snapshot, tagged_resources: frozenset[str]) -> str:
    if slot.category not in FOLLOWS_USE:
        return "charge_type"
    if tags.run is not None:
        return "orphan_run_tag"
    if slot.resource_id is None:
        return "no_resource_id"
    if slot.resource_id in tagged_resources:
        return "tag_not_active"
    return "no_run_at_that_time" if slot.resource_id in snapshot.holds else "unknown_resource"


def _tagged_resources(slots: Iterable[Slot], snapshot: Snapshot) -> frozenset[str]:
    """Resources that some charge of this bill names a run or model for: a tag activated in mid-month."""
    found = ((slot.resource_id, tags_of(slot, snapshot)) for slot in slots if slot.tags)
    return frozenset(
        resource_id for resource_id, tags in found if resource_id and (tags.run in snapshot.runs or tags.model)
    )
