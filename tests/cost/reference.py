"""Attribution slot by slot in plain Python: slow, and simple enough to be seen to be right; the engine must agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.attribution import attributing
from mlcost_pipeline.cost.slots import MEASURES, from_units, to_units
from mlcost_pipeline.cost.snapshot import Snapshot
from mlcost_pipeline.tables import TABLES

LIMIT = 2**127 - 2**100
GRIDS = (1, 1_000, 1_000_000)  # microseconds
FOLLOWS_USE = ("Usage", "Credit", "Adjustment")
STAGES = ("training", "serving", "features", "evaluation")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Slot = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a slot; amounts are units of 1e-18 of (billed, effective, list)."""

    slot_id: str
    method: str
    amounts: tuple[int, int, int | None]
    reason: str | None = None
    run_id: str | None = None
    model: str | None = None
    stage: str | None = None
    base: str | None = None


def charge(slot_id: str, effective: Decimal | int | str, **more: Any) -> dict[str, Any]:
    """A row of ``billing_slots``: an hour of gpu-1 at noon, billed and listed as it is effective, unless said so."""
    amount = Decimal(effective)
    row: dict[str, Any] = {
        "delivery_id": "d", "slot_id": slot_id, "bucket": 0, "account": "acct-1", "period": "2026-03",
        "resource_id": "gpu-1", "charge_start": datetime(2026, 3, 10, 12, tzinfo=UTC),
        "charge_end": datetime(2026, 3, 10, 13, tzinfo=UTC), "category": "Usage", "allocation": "origin",
        "currency": "USD", "lines": 1, "tags_text": "{}", "billed": amount, "effective": amount, "list": amount,
    }  # fmt: skip
    assert not more.keys() - set(TABLES["billing_slots"].columns), more
    return {**row, **more}


def by_engine(slots: Iterable[Slot], known: Snapshot) -> list[Part]:
    """What the engine makes of slots, by slot and part."""
    table = pa.Table.from_pylist([dict(slot) for slot in slots], schema=TABLES["billing_slots"].schema)
    with attributing(table, known) as made:
        rows = [row for batch in made.parts() for row in batch.to_pylist()]
    assert len({(row["slot_id"], row["part"]) for row in rows}) == len(rows), "a part number is there twice"
    return [
        Part(row["slot_id"], row["method"], _units(row), row["reason"], row["run_id"], row["model"], row["stage"],
             row["base"])
        for row in sorted(rows, key=lambda row: (row["slot_id"], row["part"]))
    ]  # fmt: skip


def by_reference(slots: Sequence[Slot], known: Snapshot) -> list[Part]:
    """The same, slowly."""
    marked = {slot["resource_id"] for slot in slots if _is_ours(slot, known)}
    plain: list[tuple[Slot, Part]] = []
    derived: list[tuple[Slot, str]] = []
    for slot in slots:
        found = _parts(slot, known, marked)
        if isinstance(found, str):
            derived.append((slot, found))
        else:
            plain += [(slot, part) for part in found]
    parts = [part for _, part in plain]
    largest = max((abs(amount or 0) for slot, _ in derived for amount in _units(slot)), default=0)
    for slot, kind in derived:
        parts += _follow(slot, kind, plain, LIMIT // max(1, largest))
    return sorted(parts, key=lambda part: part.slot_id)


def split(amount: int, weights: Sequence[int], whole: int) -> tuple[list[int], int]:
    """Parts of `amount` by `weights` of `whole`, and what is left of it.

    >>> split(97, [1, 1, 1], 0)
    ([32, 32, 33], 0)
    """
    whole = max(whole, sum(weights))
    if not whole:
        return [0] * len(weights), amount
    ends = [amount * sum(weights[:number]) // whole for number in range(len(weights) + 1)]
    return [end - start for start, end in pairwise(ends)], amount - ends[-1]


def _units(row: Mapping[str, Any]) -> tuple[int, int, int | None]:
    found = [None if row[name] is None else to_units(row[name]) for name in MEASURES]
    assert found[0] is not None and found[1] is not None
    return found[0], found[1], found[2]


def _is_ours(slot: Slot, known: Snapshot) -> bool:
    return slot.get("tag_run") in _runs(known) or slot.get("tag_model") in known.models


def _runs(known: Snapshot) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in known.runs.to_pylist()}


def _parts(slot: Slot, known: Snapshot, marked: set[str | None]) -> list[Part] | str:
    """Parts of one slot, or the kind of derived charge that it is."""
    name, status = slot["slot_id"], slot.get("commitment_status")
    billed, effective, listed = _units(slot)
    none = None if listed is None else 0
    if status in ("Negation", "Unused"):
        return [Part(name, "unattributed", (billed, effective, listed), _COMMITMENT[status])]
    if status == "Fee":
        parts = [Part(name, "unattributed", (billed, 0, listed), "commitment")]
        return parts + [Part(name, "unattributed", (0, effective, none), "commitment_unused")] * (effective != 0)
    mine = (0 if status == "Used" else billed), effective, listed
    kept = [Part(name, "unattributed", (billed, 0, none), "commitment")] * (status == "Used" and billed != 0)
    runs = _runs(known)
    follows = slot["category"] in FOLLOWS_USE
    run = slot.get("tag_run") if slot.get("tag_run") in runs else _sole_run(slot["resource_id"], known)
    if run is not None and (run == slot.get("tag_run") or follows):
        owner = runs[run]
        return [Part(name, "direct", mine, None, run, owner["model"], owner["stage"]), *kept]
    shared = _by_occupancy(slot, mine, known) if follows and slot["resource_id"] is not None else []
    if shared:
        return shared + kept
    rest = _rest(slot, mine, known, marked)
    return rest if isinstance(rest, str) else [rest, *kept]


_COMMITMENT = {"Negation": "commitment", "Unused": "commitment_unused"}


def _rest(slot: Slot, mine: tuple[int, int, int | None], known: Snapshot, marked: set[str | None]) -> Part | str:
    name, resource = slot["slot_id"], slot["resource_id"]
    if slot.get("tag_model") in known.models:
        stage = slot.get("tag_stage")
        return Part(name, "tag", mine, None, None, slot["tag_model"], stage if stage in STAGES else None)
    for rule in known.rules:
        when = rule.when
        if (when.category in (None, slot["category"])) and (when.service in (None, slot.get("service"))) and (
            when.resource_prefix is None or (resource or "").startswith(when.resource_prefix)
        ):  # fmt: skip
            return Part(name, "rule", mine, rule.name, None, rule.model, rule.stage)
    kind = _derived_kind(slot)
    if kind is not None and slot.get("commitment_status") is None:
        return kind
    held = {row["resource_id"] for row in known.holds.to_pylist() if row["run_id"] in _runs(known)}
    if slot["category"] == "Purchase" and slot.get("commitment_status") is not None:
        why = "commitment"
    elif slot["category"] not in FOLLOWS_USE:
        why = "charge_type"
    elif slot.get("tag_run") is not None:
        why = "orphan_run_tag"
    elif resource is None:
        why = "no_resource_id"
    elif resource in marked:
        why = "tag_not_active"
    else:
        why = "no_run_at_that_time" if resource in held else "unknown_resource"
    return Part(name, "unattributed", mine, why)


def _derived_kind(slot: Slot) -> str | None:
    if slot["category"] == "Tax":
        return "tax"
    if "support" in (slot.get("service") or "").lower():
        return "support"
    bare = slot["resource_id"] is None and slot.get("tag_run") is None and slot.get("tag_model") is None
    return {"Credit": "credit", "Adjustment": "discount"}.get(slot["category"]) if bare else None


def _sole_run(resource: str | None, known: Snapshot) -> str | None:
    runs = {
        r["run_id"] for r in known.holds.to_pylist() if r["resource_id"] == resource and r["run_id"] in _runs(known)
    }
    kinds = [row["kind"] for row in known.resources.to_pylist() if row["resource_id"] == resource]
    job = kinds[-1] in ("job", "run") if kinds else "sagemaker" in (resource or "") and "-job/" in (resource or "")
    return runs.pop() if job and len(runs) == 1 else None


def _steps(start: datetime, end: datetime, grid: int) -> int:
    first, last = ((at - _EPOCH) // timedelta(microseconds=1) // grid for at in (start, end))
    return max(0, last - first)


def _by_occupancy(slot: Slot, mine: tuple[int, int, int | None], known: Snapshot) -> list[Part]:
    name, resource, a, b = slot["slot_id"], slot["resource_id"], slot["charge_start"], slot["charge_end"]
    runs = _runs(known)
    rooms = sorted((r for r in known.resources.to_pylist() if r["resource_id"] == resource), key=_from)
    holds = [row for row in known.holds.to_pylist() if row["resource_id"] == resource and row["run_id"] in runs]
    if not rooms and not holds:
        return []
    top = max(abs(amount or 0) for amount in mine)
    for grid in GRIDS:
        weights: dict[str, int] = {}
        for h in holds:
            weight = _steps(max(a, h["start"]), min(b, h["end"] or b), grid) * h["share_milli"]
            weights[h["run_id"]] = weights.get(h["run_id"], 0) + weight
        weights = {run: weight for run, weight in sorted(weights.items()) if weight}
        room = 0 if rooms else _steps(a, b, grid) * 1000
        for number, r in enumerate(rooms):
            later = rooms[number + 1]["valid_from"] if number + 1 < len(rooms) else b
            room += _steps(max(a, r["valid_from"]), min(b, r["valid_to"] or b, later), grid) * r["capacity_milli"]
        if top * max(sum(weights.values()), room, 1) <= LIMIT:
            break
    if not weights and not rooms:
        return []
    cut = [None if amount is None else split(amount, list(weights.values()), room) for amount in mine]
    parts = [
        Part(name, "occupancy", _three([c and c[0][n] for c in cut]), None, run, runs[run]["model"], runs[run]["stage"])
        for n, run in enumerate(weights)
    ]
    idle = _three([c and c[1] for c in cut])
    return parts + [Part(name, "idle", idle)] * (any(idle) or not parts)


def _from(row: Mapping[str, Any]) -> Any:
    return row["valid_from"]


def _three(amounts: Sequence[int | None]) -> tuple[int, int, int | None]:
    billed, effective, listed = amounts
    assert billed is not None and effective is not None
    return billed, effective, listed


def _follow(slot: Slot, kind: str, plain: Sequence[tuple[Slot, Part]], most: int) -> list[Part]:
    """Parts of a charge on charges: those of its invoice, or of the month if no charge has that invoice."""
    name, invoice = slot["slot_id"], slot.get("invoice_id")
    ours = [part for other, part in plain if invoice is not None and other.get("invoice_id") == invoice]
    nets: dict[tuple[str | None, ...], list[int]] = {}
    for part in ours or [part for _, part in plain]:
        base = f"{part.method}:{part.reason}" if part.reason else part.method
        net = nets.setdefault((part.run_id, part.model, part.stage, base), [0, 0, 0])
        for measure, amount in enumerate(part.amounts):
            net[measure] += amount or 0
    claimants = sorted(nets, key=lambda key: [(text is None, text or "") for text in key])
    amounts, cuts, lefts = _units(slot), [], []
    for measure, amount in enumerate(amounts):
        weights = [max(0, nets[key][measure]) for key in claimants]
        unit = 1
        while sum(weights) // unit > most:
            unit *= 10
        cut, left = split(amount or 0, [weight // unit for weight in weights], 0)
        cuts.append(cut)
        lefts.append(left)

    def part(method: str, found: Sequence[int], reason: str, owner: Sequence[str | None] = (None,) * 4) -> Part:
        listed = None if amounts[2] is None else found[2]
        return Part(name, method, (found[0], found[1], listed), reason, *owner)

    parts = [part("derived", [c[n] for c in cuts], kind, key) for n, key in enumerate(claimants)]
    parts = [each for each in parts if any(each.amounts)]
    return parts + [part("unattributed", lefts, "charge_type")] * (any(lefts) or not parts)


def money(parts: Iterable[Part]) -> dict[str, Decimal]:
    """Effective money by run, model or (of nobody's) reason or method."""
    found: dict[str, int] = {}
    for part in parts:
        who = part.run_id or part.model or part.reason or part.method
        found[who] = found.get(who, 0) + part.amounts[1]
    return {who: from_units(units) for who, units in found.items()}
