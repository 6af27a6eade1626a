"""Any cent followed both ways: from a line of the bill to the runs it was charged to, from a run to its charges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.asof import InForce, history, standing, versions_of
from mlcost_pipeline.cost.deliveries import Delivery, delivery_of, in_force
from mlcost_pipeline.cost.grounds import ground
from mlcost_pipeline.cost.restating import bills_of, restated
from mlcost_pipeline.cost.run_outcomes import RUN_OUTCOMES
from mlcost_pipeline.cost.run_outcomes import TABLES as RUN_TABLES
from mlcost_pipeline.cost.runs import find_run
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse

#: As many characters of a delivery's id name it, where no other begins alike.
SHORT = 8


@dataclass(frozen=True)
class TracedPart:
    """A part of a slot: how it was given, to whom, how much, on what ground, and what became of the run."""

    part: int
    method: str
    reason: str | None
    run_id: str | None
    model: str | None
    stage: str | None
    billed: Decimal
    effective: Decimal
    ground: str
    outcome: str | None


@dataclass(frozen=True)
class TracedLine:
    """A line of a bill, its slot with the numbers of all its lines, and the slot's parts.

    `provisional` while the bill is open.
    """

    line: Mapping[str, Any]
    slot: Mapping[str, Any]
    together: Sequence[int]
    in_force: InForce
    parts: Sequence[TracedPart]
    provisional: bool


@dataclass(frozen=True)
class RunCharges:
    """All that a run was charged, slot by slot, with what it held and what later deliveries changed.

    `outcome` says what became of its work, `replaced_by` which run made the same anew; `bills` are those in force.
    """

    run: Mapping[str, Any]
    outcome: str
    replaced_by: str | None
    charges: Sequence[Mapping[str, Any]]
    by_method: Mapping[tuple[str, str], tuple[Decimal, Decimal]]  # by method and currency: billed, effective
    holds: Sequence[Mapping[str, Any]]
    restatements: Sequence[Mapping[str, Any]]
    bills: Mapping[tuple[str, str], Delivery]

    @property
    def currencies(self) -> list[str]:
        return sorted({row["currency"] for row in self.charges})

    @property
    def provisional(self) -> bool:
        """Whether a bill that charges it is open."""
        return any(self.bills[row["account"], row["period"]].state != "final" for row in self.charges)

    def total(self, measure: str, currency: str) -> Decimal:
        """The exact sum of ``billed`` or ``effective`` in one currency; those of two are never added up."""
        return money_sum(row[measure] for row in self.charges if row["currency"] == currency)


_PARTS = """
SELECT part, method, reason, base, run_id, model, stage, billed, effective FROM cost_ledger WHERE slot_id = ?
ORDER BY part
"""
_CHARGES = """
WITH mine AS (SELECT * FROM cost_ledger WHERE run_id = ?),
first AS (SELECT delivery_id, slot_id, min(line) AS line FROM billing_lines
  WHERE slot_id IN (SELECT slot_id FROM mine) GROUP BY ALL)
SELECT l.account, l.period, l.currency, l.delivery_id, l.slot_id, l.part, l.method, l.reason, l.base, l.billed,
  l.effective, s.resource_id, f.line,
  s.charge_start, s.charge_end, s.category, s.service, s.lines, s.effective AS slot_effective
FROM mine l JOIN billing_slots s USING (delivery_id, slot_id) LEFT JOIN first f USING (delivery_id, slot_id)
ORDER BY s.charge_start, s.resource_id, l.slot_id, l.part
"""
_BECAME = f"WITH {RUN_OUTCOMES} SELECT run_id, outcome, replaced_by FROM run_outcomes WHERE list_contains(?, run_id)"


def explain_line(warehouse: Warehouse, delivery_id: str, number: int) -> TracedLine:
    """Follow one line of a delivery that is in force, named by its id or by the beginning of it.

    Raises:
        BillError: no ledger in force stands on that delivery, or it has no such line; the text says what there is.
    """
    found = standing(warehouse)
    ours = [each for each in found if each.delivery_id.startswith(delivery_id)]
    if len(ours) != 1 or len(delivery_id) < min(SHORT, len(ours[0].delivery_id)):
        raise BillError(_not_standing(warehouse, found, delivery_id, len(ours)))
    name, versions = ours[0].delivery_id, versions_of(ours)

    def ask(sql: str, *params: Any) -> list[dict[str, Any]]:
        tables = ["billing_lines", "billing_slots", "cost_ledger"]
        rows: list[dict[str, Any]] = warehouse.query(sql, params, tables=tables, versions=versions).to_pylist()
        return rows

    lines = ask("SELECT * FROM billing_lines WHERE line = ?", number)
    if not lines:
        [ends] = ask("SELECT min(line) AS first, max(line) AS last FROM billing_lines")
        raise BillError(
            f"delivery {name} has no line {number}; its lines are {ends['first']} to {ends['last']}"
            f"{_elsewhere(warehouse, found, number)}"
        )
    slots = ask("SELECT * FROM billing_slots WHERE slot_id = ?", lines[0]["slot_id"])
    if not slots:  # an origin charge that its provider split up counts by its parts
        raise BillError(f"delivery {name}, line {number}: is there as its allocated parts too, and they count")
    slot = slots[0]
    together = ask("SELECT line FROM billing_lines WHERE slot_id = ? ORDER BY line", slot["slot_id"])
    parts = _traced(warehouse, slot, ask(_PARTS, slot["slot_id"]))
    open_ = delivery_of(warehouse, name).state != "final"
    return TracedLine(lines[0], slot, [row["line"] for row in together], ours[0], parts, open_)


def _not_standing(warehouse: Warehouse, found: Sequence[InForce], delivery_id: str, fitting: int) -> str:
    """Why no ledger can be followed from that delivery, and what can be asked instead."""
    known = ", ".join(f"{each.delivery_id} ({each.account}, {each.period})" for each in found[:6]) or "none"
    asked = f"delivery {delivery_id}"
    rows = warehouse.rows("bill_deliveries", where="delivery_id = ?", params=[delivery_id])
    if rows:
        account, period = rows[0]["account"], rows[0]["period"]
        if in_force(warehouse, account, period) == delivery_id:
            return f"{asked}: no ledger was built on it yet; run: mlcost tick"
        stood = history(warehouse, account, period)
        last = next((n for n in reversed(range(len(stood))) if stood[n].delivery_id == delivery_id), None)
        if last is not None and last + 1 < len(stood):
            day = stood[last + 1].since - timedelta(days=1)
            then = f"; as it was then: --as-of {day:%Y-%m-%d}" if day.date() >= stood[last].since.date() else ""
            return (
                f"{asked}: its ledger was in force until {stood[last + 1].since:%Y-%m-%d %H:%M} UTC{then}; "
                f"in force: {known}"
            )
    if fitting > 1:
        return f"{asked}: {fitting} deliveries in force begin so, give more of the id; in force: {known}"
    short = f" (give at least {SHORT} characters)" if fitting else ""
    return f"{asked}: no ledger in force stands on it{short}; in force: {known}"


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
        named = ", ".join(sorted(row["run_id"] for row in near)[:5])
        hint = f"near it: {named}" if named else "none begins like it; the runs of a charge: mlcost bill explain LINE"
        raise BillError(f"run {run_id}: is not on record; {hint}")
    versions = versions_of(standing(warehouse))
    tables = ["billing_lines", "billing_slots", "cost_ledger"]
    charges = warehouse.query(_CHARGES, [run_id], tables=tables, versions=versions).to_pylist()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in charges:
        groups.setdefault((row["method"], row["currency"]), []).append(row)
    by_method = {
        key: (money_sum(row["billed"] for row in rows), money_sum(row["effective"] for row in rows))
        for key, rows in groups.items()
    }
    [became] = _became(warehouse, [run_id])
    return RunCharges(
        run, became["outcome"], became["replaced_by"], charges, by_method,
        warehouse.rows("occupancy", where="run_id = ?", params=[run_id]),
        [row for row in restated(warehouse) if row["run_id"] == run_id],
        bills_of(warehouse),
    )  # fmt: skip


def _became(warehouse: Warehouse, runs: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = warehouse.query(_BECAME, [runs], tables=RUN_TABLES).to_pylist()
    return rows


def _traced(warehouse: Warehouse, slot: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[TracedPart]:
    named = sorted({row["run_id"] for row in rows if row["run_id"] is not None})
    became = {each["run_id"]: each["outcome"] for each in _became(warehouse, named)} if named else {}
    holds = warehouse.rows("occupancy", where="list_contains(?, run_id)", params=[named]) if named else []
    resources = warehouse.rows("resources")
    return [
        TracedPart(
            row["part"], row["method"], row["reason"], row["run_id"], row["model"], row["stage"], row["billed"],
            row["effective"], ground(slot, row, holds, resources), became.get(row["run_id"]),
        )
        for row in rows
    ]  # fmt: skip
