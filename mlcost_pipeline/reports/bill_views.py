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
from mlcost_pipeline.cost.slots import money_sum, to_units
from mlcost_pipeline.cost.tracing import SHORT, RunCharges, TracedLine, TracedPart
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import counted, dressed, share_of
from mlcost_pipeline.reports.values import Cell, Quantity, printable, show_number
from mlcost_pipeline.settings import Settings

NOBODY = "nobody"
NOTHING = "Nothing was restated."
NONE_YET = "No ledger was in force yet."
SHOWN_LINES = 8


def line_document(found: TracedLine, settings: Settings) -> Document:
    """One line of a bill: what it is, its slot, and each part with its ground."""
    line, slot, currency = found.line, found.slot, found.line["currency"]
    rows: list[list[Cell]] = [
        [
            part.run_id or part.model or NOBODY, Quantity(part.effective, currency, exact=True), part.method,
            part.ground, Quantity(part.billed, currency, exact=True), part.model or "", part.stage or "",
            (part.outcome or "").replace("_", " "),
        ]
        for part in found.parts
    ]  # fmt: skip
    doc = Document(
        title=f"Line {line['line']} of delivery {line['delivery_id']}",
        summary=(
            f"account {shown_account(line['account'], settings)}, {line['period']}: {line['category']} of "
            f"{line['service'] or 'no service'} on {line['resource_id'] or 'no resource'}, "
            f"{_span(line['charge_start'], line['charge_end'])}, effective {plain(line['effective'])} {currency}; "
            f"{_together(found)}."
        ),
        numbers=[
            Number("line_billed", "billed, the line", line["billed"], currency, exact=True),
            Number("line_effective", "effective, the line", line["effective"], currency, exact=True),
            Number("slot_effective", "effective, the slot", slot["effective"], currency, exact=True),
        ],
        tables=[
            Table(
                "Who the slot is charged to",
                ["to", "effective", "method", "ground", "billed", "model", "stage", "outcome"],
                rows,
            )
        ],
        ids={
            "slot": slot["slot_id"],
            "ledger version": found.in_force.version,
            "raw resource": line["resource_id_raw"],
            "sku": line["sku"],
        },
        marks=(PROVISIONAL,) if found.provisional else (),
    )
    return dressed(doc, settings)


def part_lines(found: TracedLine, most: int | None) -> list[str]:
    """Each part as two lines, how much to whom and on what ground, the largest first; at last that they add up.

    Of more than `most` parts the others are one sum.
    """
    currency, whole = found.line["currency"], found.slot["effective"]
    ordered = sorted(found.parts, key=lambda part: (-to_units(part.effective.copy_abs()), part.part))
    shown = ordered if most is None else ordered[:most]
    lines = [text for part in shown for text in _of_part(part, currency, whole)]
    if rest := ordered[len(shown) :]:
        left = money_sum(part.effective for part in rest)
        lines.append(f"  {show_number(left, currency, exact=True)} in {counted(len(rest), 'smaller part')}")
    total = money_sum(part.effective for part in found.parts)
    same = "which is the slot" if total == whole else f"NOT the slot, which is {plain(whole)} {currency}"
    return [printable(text) for text in (*lines, f"  {show_number(total, currency, exact=True)} in all, {same}")]


def _of_part(part: TracedPart, currency: str, whole: Decimal) -> list[str]:
    whose = ", ".join(each for each in (part.model, part.stage, (part.outcome or "").replace("_", " ")) if each)
    to = f"run {part.run_id}" if part.run_id else f"model {part.model}" if part.model else NOBODY
    share = share_of(part.effective, whole)
    told = f" ({show_number(share, 'share')})" if share is not None else ""
    billed = "" if part.billed == part.effective else f", billed {show_number(part.billed, currency, exact=True)}"
    return [
        f"  {show_number(part.effective, currency, exact=True)}{told}{billed} to {to}",
        f"    {f'{whose}; ' if whose and part.run_id else ''}{part.method}: {part.ground}",
    ]


def _together(found: TracedLine) -> str:
    """The slot and all the lines in it, as far as they are few."""
    if len(found.together) < 2:
        return "its slot has no other line"
    few = ", ".join(str(number) for number in found.together[:SHOWN_LINES])
    more = "" if len(found.together) <= SHOWN_LINES else f" and {len(found.together) - SHOWN_LINES} more"
    return f"its slot has {len(found.together)} lines that are equal in all that attribution looks at: {few}{more}"


def _span(start: datetime, end: datetime) -> str:
    until = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {until} UTC"


def run_document(found: RunCharges, settings: Settings) -> Document:
    """One run: what it was charged by which method, slot by slot, what it held, what was restated."""
    run, became = found.run, found.outcome.replace("_", " ")
    by = f" by {found.replaced_by}" if found.replaced_by else ""
    who = f"run {run['run_id']} of {run['model']} ({run['stage']}, {became}{by})"
    if not found.charges:
        summary = f"{who} is in no bill yet; what it would cost by the price book: mlcost report."
    else:
        charged = " and ".join(f"{plain(found.total('effective', name))} {name}" for name in found.currencies)
        slots = {(row["delivery_id"], row["slot_id"]): row["lines"] for row in found.charges}
        lines = counted(sum(slots.values()), "line")
        summary = f"{who} was charged {charged} effective, {counted(len(found.charges), 'part')} of {lines} of bills."
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
        notes=["Who else is charged for one of these lines: mlcost bill explain LINE."] if found.charges else [],
        marks=(PROVISIONAL,) if found.provisional else (),
    )
    return dressed(doc, settings)


def restated_document(
    title: str, rows: Sequence[Mapping[str, Any]], bills: Mapping[tuple[str, str], Delivery], settings: Settings
) -> Document:
    """What newer ledgers changed, by cause and by whose it is; `bills` are those in force."""
    causes: dict[tuple[str, str], list[Decimal]] = {}
    for row in rows:
        causes.setdefault((row["cause"], _currency(row, bills)), []).append(row["effective_delta"])
    told = ", ".join(f"{name} {money_sum(each):+,.4f} {currency}" for (name, currency), each in sorted(causes.items()))
    ordered = sorted(rows, key=lambda row: (-to_units(row["effective_delta"].copy_abs()), row["entry"]))
    doc = Document(
        title=title,
        summary=f"{counted(len(rows), 'entry was', 'entries were')} restated, by cause: {told}." if rows else NOTHING,
        tables=[
            Table(
                "What changed, for whom and why",
                ["run or model", "effective", "cause", "stage", "billed", "account", "month"],
                [
                    [
                        _whose(row),
                        Quantity(row["effective_delta"], _currency(row, bills), exact=True),
                        row["cause"],
                        row["stage"] or "",
                        Quantity(row["billed_delta"], _currency(row, bills), exact=True),
                        shown_account(row["account"], settings),
                        row["period"],
                    ]
                    for row in ordered
                ],
                empty="nothing was restated",
            )
        ],
        marks=(PROVISIONAL,) if _any_open(rows, bills) else (),
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
        summary=f"{counted(len(found), 'ledger was', 'ledgers were')} in force." if found else NONE_YET,
        tables=[
            Table("In force then", ["account", "month", "effective", "state", "since", "delivery", "ledger"], rows,
                  empty="none"),
        ],
        marks=(PROVISIONAL,) if provisional else (),
    )  # fmt: skip
    return dressed(doc, settings)


def _currency(row: Mapping[str, Any], bills: Mapping[tuple[str, str], Delivery]) -> str:
    bill = bills.get((row["account"], row["period"]))
    return "in a currency that no bill in force has" if bill is None else bill.currency


def _any_open(rows: Sequence[Mapping[str, Any]], bills: Mapping[tuple[str, str], Delivery]) -> bool:
    touched = {(row["account"], row["period"]) for row in rows}
    return any(bill.state != "final" for key, bill in bills.items() if key in touched)


def _whose(row: Mapping[str, Any]) -> str:
    """The run or model, or on what ground it is nobody's; the cause has a column of its own."""
    if row["run_id"] or row["model"]:
        return str(row["run_id"] or row["model"])
    ground = " ".join(each for each in row["entry"].split("|")[:-1] if each)
    return f"{NOBODY}: {ground.replace('_', ' ')}"


def _methods(found: RunCharges) -> Table:
    rows: list[list[Cell]] = [
        [name, Quantity(billed, currency, exact=True), Quantity(effective, currency, exact=True)]
        for (name, currency), (billed, effective) in sorted(found.by_method.items())
    ]
    return Table("By method", ["method", "billed", "effective"], rows, empty="no ledger charges this run")


def _charges(found: RunCharges, settings: Settings) -> Table:
    rows = [
        [
            f"{row['delivery_id'][:SHORT]}:{row['line']}", Quantity(row["effective"], row["currency"], exact=True),
            _method(row),
            Quantity(row["slot_effective"], row["currency"]), row["lines"], row["resource_id"] or "",
            row["charge_start"], row["charge_end"], row["category"], row["service"] or "",
            Quantity(row["billed"], row["currency"], exact=True), shown_account(row["account"], settings),
            row["slot_id"],
        ]
        for row in found.charges
    ]  # fmt: skip
    columns = [
        "line", "its part", "method", "of the slot", "lines", "resource", "from", "to", "category", "service",
        "billed", "account", "slot",
    ]  # fmt: skip
    return Table("Charge by charge", columns, rows, empty="no ledger charges this run")


def _method(row: Mapping[str, Any]) -> str:
    told = f"{row['reason']} on {row['base']}" if row["base"] else row["reason"]
    return f"{row['method']} ({told})" if told else str(row["method"])


def _holds(found: RunCharges) -> Table:
    rows = [
        [hold["resource_id"], hold["start"], hold["end"] or "still held", hold["share_milli"]] for hold in found.holds
    ]
    return Table("What it held", ["resource", "from", "to", "milli-share"], rows, empty="it held no resource")


def _restated(found: RunCharges) -> Table:
    rows = [
        [row["cause"], row["period"], Quantity(row["effective_delta"], _currency(row, found.bills), exact=True),
         row["new_ledger_version"]]
        for row in found.restatements
    ]  # fmt: skip
    return Table("Restated", ["cause", "month", "effective", "by ledger"], rows, empty="never restated")
