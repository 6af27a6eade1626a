"""Any cent followed both ways: from a line of the bill to the runs it was charged to, from a run to its charges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.asof import InForce, standing, versions_of
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.cost.deliveries import delivery_of
from mlcost_pipeline.cost.runs import find_run
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class TracedPart:
    """A part of a slot: how it was given, to whom, how much, and in words on what ground."""

    part: int
    method: str
    reason: str | None
    run_id: str | None
    model: str | None
    stage: str | None
    billed: Decimal
    effective: Decimal
    ground: str


@dataclass(frozen=True)
class TracedLine:
    """A line of a bill, its slot, and the slot's parts; `provisional` while the bill is open."""

    line: Mapping[str, Any]
    slot: Mapping[str, Any]
    in_force: InForce
    parts: Sequence[TracedPart]
    provisional: bool


@dataclass(frozen=True)
class RunCharges:
    """All that a run was charged, slot by slot, with what it held and what later deliveries changed."""

    run: Mapping[str, Any]
    charges: Sequence[Mapping[str, Any]]
    by_method: Mapping[tuple[str, str], tuple[Decimal, Decimal]]  # by method and currency: billed, effective
    holds: Sequence[Mapping[str, Any]]
    restatements: Sequence[Mapping[str, Any]]
    provisional: bool  # whether a bill that charges it is open

    @property
    def currencies(self) -> list[str]:
        return sorted({row["currency"] for row in self.charges})

    def total(self, measure: str, currency: str) -> Decimal:
        """The exact sum of ``billed`` or ``effective`` in one currency; those of two are never added up."""
        return money_sum(row[measure] for row in self.charges if row["currency"] == currency)


_PARTS = """
SELECT part, method, reason, base, run_id, model, stage, billed, effective FROM cost_ledger WHERE slot_id = ?
ORDER BY part
"""
_CHARGES = """
SELECT l.account, l.period, l.currency, l.delivery_id, l.slot_id, l.part, l.method, l.reason, l.base, l.billed,
  l.effective, s.resource_id,
  s.charge_start, s.charge_end, s.category, s.service, s.lines, s.effective AS slot_effective
FROM cost_ledger l JOIN billing_slots s USING (delivery_id, slot_id) WHERE l.run_id = ?
ORDER BY s.charge_start, s.resource_id, l.slot_id, l.part
"""


def explain_line(warehouse: Warehouse, delivery_id: str, number: int) -> TracedLine:
    """Follow one line of a delivery that is in force.

    Raises:
        BillError: no ledger in force stands on that delivery, or it has no such line; the text says what there is.
    """
    found = standing(warehouse)
    ours = [each for each in found if each.delivery_id == delivery_id]
    if not ours:
        known = ", ".join(f"{each.delivery_id} ({each.account}, {each.period})" for each in found[:6]) or "none"
        raise BillError(f"delivery {delivery_id}: no ledger in force stands on it; in force: {known}")
    versions = versions_of(ours)

    def ask(sql: str, *params: Any) -> list[dict[str, Any]]:
        tables = ["billing_lines", "billing_slots", "cost_ledger"]
        rows: list[dict[str, Any]] = warehouse.query(sql, params, tables=tables, versions=versions).to_pylist()
        return rows

    lines = ask("SELECT * FROM billing_lines WHERE line = ?", number)
    if not lines:
        [ends] = ask("SELECT min(line) AS first, max(line) AS last FROM billing_lines")
        raise BillError(
            f"delivery {delivery_id} has no line {number}; its lines are {ends['first']} to {ends['last']}"
            f"{_elsewhere(warehouse, found, number)}"
        )
    slots = ask("SELECT * FROM billing_slots WHERE slot_id = ?", lines[0]["slot_id"])
    if not slots:  # an origin charge that its provider split up counts by its parts
        raise BillError(f"delivery {delivery_id}, line {number}: is there as its allocated parts too, and they count")
    parts = [_traced(warehouse, slots[0], row) for row in ask(_PARTS, slots[0]["slot_id"])]
    return TracedLine(lines[0], slots[0], ours[0], parts, _is_open(warehouse, [delivery_id]))


def _elsewhere(warehouse: Warehouse, found: Sequence[InForce], number: int) -> str:
    """Which bills in force have a line of that number: a file of several accounts is several deliveries."""
    rows = warehouse.query(
        "SELECT DISTINCT delivery_id, account, period FROM billing_lines WHERE line = ? ORDER BY ALL LIMIT 6",
        [number], tables=["billing_lines"], versions=versions_of(found),
    ).to_pylist()  # fmt: skip
    told = ", ".join(f"{row['delivery_id']}:{number} ({row['account']}, {row['period']})" for row in rows)
    return f"; a line of that number is in {told}" if told else ""


def charges_of_run(warehouse: Warehouse, run_id: str) -> RunCharges:
    """Everything that the ledgers in force charge to a run.

    Raises:
        BillError: there is no such run on record.
    """
    run = find_run(warehouse, run_id)
    if run is None:
        near = warehouse.rows("run_records", columns=["run_id"], where="starts_with(run_id, ?)", params=[run_id[:6]])
        hint = ", ".join(row["run_id"] for row in near[:5]) or "none begins like it"
        raise BillError(f"run {run_id}: is not on record; near it: {hint}")
    versions = versions_of(standing(warehouse))
    tables = ["billing_slots", "cost_ledger"]
    charges = warehouse.query(_CHARGES, [run_id], tables=tables, versions=versions).to_pylist()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in charges:
        groups.setdefault((row["method"], row["currency"]), []).append(row)
    by_method = {
        key: (money_sum(row["billed"] for row in rows), money_sum(row["effective"] for row in rows))
        for key, rows in groups.items()
    }
    return RunCharges(
        run, charges, by_method,
        warehouse.rows("occupancy", where="run_id = ?", params=[run_id]),
        warehouse.rows("restatements", where="run_id = ?", params=[run_id]),
        _is_open(warehouse, sorted({row["delivery_id"] for row in charges})),
    )  # fmt: skip


def _is_open(warehouse: Warehouse, deliveries: Sequence[str]) -> bool:
    return any(delivery_of(warehouse, name).state != "final" for name in deliveries)


def _traced(warehouse: Warehouse, slot: Mapping[str, Any], row: Mapping[str, Any]) -> TracedPart:
    return TracedPart(
        row["part"], row["method"], row["reason"], row["run_id"], row["model"], row["stage"], row["billed"],
        row["effective"], _ground(warehouse, slot, row),
    )  # fmt: skip


def _ground(warehouse: Warehouse, slot: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Why this part is whose it is, in words with the numbers it rests on."""
    method, reason = row["method"], row["reason"]
    if method == "direct":
        tagged = slot["tag_run"] == row["run_id"]
        return f"tag names run {slot['tag_run']}" if tagged else "the resource is this run's own"
    if method == "occupancy":
        return _held(warehouse, slot, row["run_id"])
    if method == "idle":
        return "nobody held this part of the pool"
    if method == "tag":
        return f"tag names model {slot['tag_model']}" + (f", stage {slot['tag_stage']}" if slot["tag_stage"] else "")
    if method == "rule":
        return f"rule {reason} of mlcost.yaml"
    if method == "derived":
        return f"{reason} in proportion to what was charged as {row['base']}"
    return str(reason).replace("_", " ")


def _held(warehouse: Warehouse, slot: Mapping[str, Any], run_id: str) -> str:
    start, end = slot["charge_start"], slot["charge_end"]
    holds = [
        hold
        for hold in warehouse.rows("occupancy", where="run_id = ?", params=[run_id])
        if canonical(hold["resource_id"]) == slot["resource_id"]
    ]
    stretches = [(_overlap(hold, start, end), hold["share_milli"]) for hold in holds]
    held = ", ".join(f"{seconds:,.0f} s × {share} milli" for seconds, share in stretches if seconds > 0)
    return f"held {held} of {(end - start) / timedelta(seconds=1):,.0f} s"


def _overlap(hold: Mapping[str, Any], start: datetime, end: datetime) -> float:
    until = end if hold["end"] is None else min(end, hold["end"])
    seconds: float = (until - max(start, hold["start"])) / timedelta(seconds=1)
    return max(0.0, seconds)
