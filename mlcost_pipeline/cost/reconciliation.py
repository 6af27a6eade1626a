"""bill = parts + residue, exactly, per account, period and measure, and slot by slot; or no report is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.cost.deliveries import Delivery, delivery, scope_of
from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.cost.slots import MEASURES, from_units, to_units
from mlcost_pipeline.errors import BillError, NothingCompared, Unreconciled
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class MeasureCheck:
    """One measure: what the bill says, what the ledger's parts add up to, and what rounding kept aside."""

    measure: str
    bill: Decimal
    parts: Decimal
    residue: Decimal

    @property
    def difference(self) -> Decimal:
        return from_units(to_units(self.bill) - to_units(self.parts) - to_units(self.residue))


@dataclass(frozen=True)
class Reconciliation:
    """The outcome for one account and period; `reconciled` only if every measure and every slot closes."""

    account: str
    period: str
    currency: str
    delivery_id: str
    ledger_version: str | None
    state: str
    lines: int
    slots: int
    parts: int
    slots_off: int
    measures: tuple[MeasureCheck, ...]

    @property
    def reconciled(self) -> bool:
        return self.slots_off == 0 and all(check.difference == 0 for check in self.measures)

    @property
    def provisional(self) -> bool:
        return self.state != "final"

    @property
    def sentence(self) -> str:
        """One line for a person: closes or not, by how much, over how many lines."""
        billed = self.measures[0]
        where = f"account {self.account}, {self.period}: {plain(billed.bill)} {self.currency}"
        provisional = f", provisional (delivery {self.delivery_id})" if self.provisional else ""
        if self.reconciled:
            return f"{where} reconciled to the last unit over {self.lines} lines in {self.slots} slots{provisional}"
        off = ", ".join(f"{c.measure} off by {plain(c.difference)}" for c in self.measures if c.difference)
        return f"{where} NOT reconciled: {off or 'totals agree'}; {self.slots_off} slots off{provisional}"


def reconcile(warehouse: Warehouse, account: str, period: str, version: str | None = None) -> Reconciliation:
    """Hold the ledger in force, or the `version` that is to be, against the delivery in force.

    Raises:
        BillError: there is no bill of that account and period.
        NothingCompared: the delivery has no lines, or no ledger was built from any delivery.
    """
    bill = delivery(warehouse, account, period)
    if bill is None:
        raise BillError(f"account {account}, period {period}: no bill was taken over; run: mlcost bill import FILE")
    scope = scope_of(account, period)
    version = version or warehouse.current("cost_ledger", scope)
    if version is None:
        raise NothingCompared(f"account {account}, period {period}: nothing was compared, no ledger was built yet")
    versions = {name: [(scope, bill.delivery_id)] for name in ("billing_lines", "billing_slots")}
    versions["cost_ledger"] = [(scope, version)]
    [sums] = warehouse.query(_COMPARED, tables=list(versions), versions=versions).to_pylist()
    if not sums["lines"]:
        raise NothingCompared(f"account {account}, period {period}: nothing was compared, the delivery holds no line")
    short = abs(sums["lines"] - bill.rows)  # lines lost in the warehouse are lines off, whatever they cost
    off = sum(sums[f"lines_{name}"] != sums[f"slots_{name}"] for name in MEASURES)  # slots that are not their lines'
    return Reconciliation(
        account, period, bill.currency, bill.delivery_id, version, bill.state, sums["lines"], sums["slots"],
        sums["parts"], sums["slots_off"] + short + off,
        tuple(_check(bill, name, sums[name]) for name in MEASURES if name != "list" or bill.list_total is not None),
    )  # fmt: skip


def require_reconciled(warehouse: Warehouse, account: str, period: str) -> Reconciliation:
    """:func:`reconcile`, refusing a period that does not close.

    Raises:
        Unreconciled: with the difference of each measure.
    """
    found = reconcile(warehouse, account, period)
    if not found.reconciled:
        raise Unreconciled(f"{found.sentence}; build the ledger again: mlcost bill import, then mlcost tick")
    return found


def _sums(prefix: str = "", source: str = "", where: str = "") -> str:
    """SQL of the sums of all measures; of nothing they are nought."""
    kept = f" FILTER ({where})" if where else ""
    return ", ".join(f"coalesce(sum({source}{name}){kept}, 0) AS {prefix}{name}" for name in MEASURES)


#: Lines against slots in total (slots are made of lines once, at import), slots against parts one by one.
_COMPARED = f"""
WITH made AS (SELECT slot_id, count(*) AS parts, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list
  FROM cost_ledger GROUP BY slot_id),
compared AS (SELECT count(bill.slot_id) AS slots, coalesce(sum(parts), 0)::BIGINT AS parts,
  count(*) FILTER (bill.billed IS DISTINCT FROM made.billed OR bill.effective IS DISTINCT FROM made.effective
    OR bill.list IS DISTINCT FROM made.list) AS slots_off, {_sums(source="made.")}
  FROM billing_slots bill FULL JOIN made USING (slot_id)),
lines AS (SELECT count(*) AS lines, {_sums("lines_", where="allocation <> 'replaced'")}
  FROM billing_lines),
slots AS (SELECT {_sums("slots_")} FROM billing_slots)
SELECT * FROM compared, lines, slots
"""


def _check(bill: Delivery, measure: str, parts: Decimal) -> MeasureCheck:
    total = {"billed": bill.billed_total, "effective": bill.effective_total, "list": bill.list_total}[measure]
    residue = {"billed": bill.billed_residue, "effective": bill.effective_residue, "list": bill.list_residue}[measure]
    assert total is not None and residue is not None
    return MeasureCheck(measure, total, parts, residue)
