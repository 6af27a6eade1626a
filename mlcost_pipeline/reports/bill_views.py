"""What ``mlcost bill`` shows: a line followed to its runs, a run to its charges, and what a delivery changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.asof import InForce
from mlcost_pipeline.cost.deliveries import Delivery
from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.cost.masking import shown_account
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.cost.tracing import RunCharges, TracedLine
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import dressed
from mlcost_pipeline.reports.values import Cell, Quantity
from mlcost_pipeline.settings import Settings


def line_document(found: TracedLine, currency: str, settings: Settings) -> Document:
    """One line of a bill: what it is, its slot, and each part with its ground."""
    line, slot = found.line, found.slot
    where = f"account {shown_account(line['account'], settings)}, {line['period']}, line {line['line']}"
    others = "" if slot["lines"] == 1 else f" with {slot['lines'] - 1} more lines of the same hour, resource and tags"
    doc = Document(
        title=f"Line {line['line']} of delivery {line['delivery_id']}",
        summary=(
            f"{where}: {line['category']} of {line['service'] or 'no service'}"
            f" on {line['resource_id'] or 'no resource'}, "
            f"effective {plain(line['effective'])} {currency}, in slot {slot['slot_id']}{others}."
        ),
        numbers=[
            Number("line_billed", "billed, the line", line["billed"], currency, exact=True),
            Number("line_effective", "effective, the line", line["effective"], currency, exact=True),
            Number("slot_effective", "effective, the slot", slot["effective"], currency, exact=True),
        ],
        tables=[
            Table(
                "Who the slot is charged to",
                ["method", "to", "effective", "ground", "billed", "stage"],
                [
                    [
                        part.method,
                        part.run_id or part.model or (part.reason or "nobody").replace("_", " "),
                        Quantity(part.effective, currency, exact=True),
                        part.ground,
                        Quantity(part.billed, currency, exact=True),
                        part.stage or "",
                    ]
                    for part in found.parts
                ],
            )
        ],
        ids={"ledger version": found.in_force.version, "raw resource": line["resource_id_raw"], "sku": line["sku"]},
        marks=(PROVISIONAL,) if found.provisional else (),
    )
    return dressed(doc, settings)


def run_document(found: RunCharges, settings: Settings) -> Document:
    """One run: what it was charged by which method, slot by slot, what it held, what was restated."""
    run = found.run
    if not found.charges:
        summary = f"run {run['run_id']} of {run['model']} ({run['stage']}, {run['status']}) is in no bill yet."
    else:
        charged = " and ".join(f"{plain(found.total('effective', name))} {name}" for name in found.currencies)
        summary = (
            f"run {run['run_id']} of {run['model']} ({run['stage']}, {run['status']}) was charged "
            f"{charged} effective in {len(found.charges)} parts."
        )
    doc = Document(
        title=f"Run {run['run_id']}",
        summary=summary,
        numbers=[
            Number(f"{measure}_{name.lower()}", measure, found.total(measure, name), name, exact=True)
            for name in found.currencies
            for measure in ("billed", "effective")
        ],
        tables=[_methods(found), _charges(found, settings), _holds(found), _restated(found)],
        ids={"job": run["job_id"], "asset": run["asset"], "partition": run["partition"]},
        marks=(PROVISIONAL,) if found.provisional else (),
    )
    return dressed(doc, settings)


def restated_document(
    title: str, rows: Sequence[Mapping[str, Any]], currencies: Mapping[tuple[str, str], str], settings: Settings
) -> Document:
    """What newer ledgers changed, by cause and by whose it is; `currencies` are those of accounts and months."""
    causes: dict[tuple[str, str], list[Decimal]] = {}
    for row in rows:
        causes.setdefault((row["cause"], _currency(row, currencies)), []).append(row["effective_delta"])
    told = ", ".join(f"{name} {money_sum(each):+,.4f} {currency}" for (name, currency), each in sorted(causes.items()))
    ordered = sorted(rows, key=lambda row: (-abs(row["effective_delta"]), row["entry"]))
    doc = Document(
        title=title,
        summary=f"{len(rows)} entries were restated, by cause: {told}." if rows else "Nothing was restated.",
        tables=[
            Table(
                "What changed, for whom and why",
                ["cause", "run or model", "stage", "billed", "effective", "account", "month"],
                [
                    [
                        row["cause"],
                        row["run_id"] or row["model"] or row["entry"].strip("|").replace("|", " "),
                        row["stage"] or "",
                        Quantity(row["billed_delta"], _currency(row, currencies), exact=True),
                        Quantity(row["effective_delta"], _currency(row, currencies), exact=True),
                        shown_account(row["account"], settings),
                        row["period"],
                    ]
                    for row in ordered
                ],
                empty="nothing was restated",
            )
        ],
    )
    return dressed(doc, settings)


def as_of_document(
    found: Sequence[InForce], bills: Mapping[str, Delivery], at: datetime, settings: Settings
) -> Document:
    """What was in force on a day."""
    rows: list[list[Cell]] = []
    for each in found:
        bill = bills[each.delivery_id]
        total = Quantity(bill.effective_total, bill.currency)
        rows.append([
            shown_account(each.account, settings), each.period, total, bill.state, each.since, each.delivery_id,
            each.version,
        ])  # fmt: skip
    provisional = any(bills[each.delivery_id].state != "final" for each in found)
    doc = Document(
        title=f"Bills as of {at:%Y-%m-%d %H:%M} UTC",
        summary=f"{len(found)} ledgers were in force." if found else "No ledger was in force yet.",
        tables=[
            Table("In force then", ["account", "month", "effective", "state", "since", "delivery", "ledger"], rows,
                  empty="none"),
        ],
        marks=(PROVISIONAL,) if provisional else (),
    )  # fmt: skip
    return dressed(doc, settings)


def _currency(row: Mapping[str, Any], currencies: Mapping[tuple[str, str], str]) -> str:
    return currencies.get((row["account"], row["period"]), "in a currency that no bill in force has")


def _methods(found: RunCharges) -> Table:
    rows: list[list[Cell]] = [
        [name, Quantity(billed, currency, exact=True), Quantity(effective, currency, exact=True)]
        for (name, currency), (billed, effective) in sorted(found.by_method.items())
    ]
    return Table("By method", ["method", "billed", "effective"], rows, empty="no ledger charges this run")


def _charges(found: RunCharges, settings: Settings) -> Table:
    rows = [
        [
            row["charge_start"], row["charge_end"], row["resource_id"] or "", row["category"], row["service"] or "",
            row["method"] + (f" ({row['reason']})" if row["reason"] else ""),
            Quantity(row["effective"], row["currency"], exact=True), Quantity(row["slot_effective"], row["currency"]),
            shown_account(row["account"], settings), row["slot_id"],
        ]
        for row in found.charges
    ]  # fmt: skip
    columns = ["from", "to", "resource", "category", "service", "method", "its part", "of the slot", "account", "slot"]
    return Table("Charge by charge", columns, rows, empty="no ledger charges this run")


def _holds(found: RunCharges) -> Table:
    rows = [[hold["resource_id"], hold["start"], hold["end"], hold["share_milli"]] for hold in found.holds]
    return Table("What it held", ["resource", "from", "to", "milli-share"], rows, empty="it held no resource")


def _restated(found: RunCharges) -> Table:
    known = {(row["account"], row["period"]): row["currency"] for row in found.charges}
    rows = [
        [row["cause"], row["period"], Quantity(row["effective_delta"], _currency(row, known), exact=True),
         row["new_ledger_version"]]
        for row in found.restatements
    ]  # fmt: skip
    return Table("Restated", ["cause", "month", "effective", "by ledger"], rows, empty="never restated")
