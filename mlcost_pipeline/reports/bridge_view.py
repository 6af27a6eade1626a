"""Why the bill moved between two months, as a document: one sentence, one table, one waterfall, all rows below."""

from __future__ import annotations

from collections.abc import Sequence

from mlcost_pipeline.cost.bridge import Bridge, BridgeRow
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, dressed, summed
from mlcost_pipeline.reports.values import Cell, Quantity
from mlcost_pipeline.reports.waterfall import Step, waterfall
from mlcost_pipeline.settings import Settings

TITLE = "Why the bill moved"
SHOWN = 10
_COLUMNS = ("cause", "amount", "share", "before → after")


def bridge_document(found: Bridge, settings: Settings) -> Document:
    """The causes on one screen; where there are more than fit, the rest is one row, and all of them follow."""
    doc = Document(
        title=TITLE,
        summary=f"{found.sentence[0].upper()}{found.sentence[1:]}.",
        numbers=[
            Number("before", found.a, found.total_a, found.currency),
            Number("after", found.b, found.total_b, found.currency),
            Number("change", "change", found.difference, found.currency),
            Number("causes", "causes", len(found.rows)),
        ],
        tables=[causes_table(found), *_all_rows(found)],
        pictures=[_picture(found)],
        ids={"open_deliveries": ", ".join(found.open_deliveries) or None},
        notes=[*found.notes, "Effective cost of bills; the parts are Shapley values and add up to the last unit."],
    )
    return dressed(doc.marked(PROVISIONAL) if found.provisional else doc, settings, model=found.model)


def causes_table(found: Bridge) -> Table:
    """The largest causes, what is left as one row, and the change."""
    shown, rest = _split(found.rows)
    rows = [_row(row, found.currency) for row in shown]
    if rest:
        rows.append(_sum(counted(len(rest), "smaller cause"), rest, found.currency))
    whole: Cell = Quantity(1.0, "share") if found.difference else ""
    totals = f"{found.total_a:,.2f} → {found.total_b:,.2f}"
    rows.append(["change", Quantity(found.difference, found.currency), whole, totals])
    return Table(f"{TITLE}, {found.a} to {found.b}", _COLUMNS, rows)


def _all_rows(found: Bridge) -> list[Table]:
    _, rest = _split(found.rows)
    rows = [_row(row, found.currency) for row in found.rows]
    return [Table("Every cause", _COLUMNS, rows)] if rest else []


def _row(row: BridgeRow, currency: str) -> list[Cell]:
    share: Cell = "" if row.share is None else Quantity(row.share, "share")
    return [row.name, Quantity(row.amount, currency), share, _moved(row)]


def _moved(row: BridgeRow) -> str:
    return f"{row.before} → {row.after}" if row.before and row.after else row.before or row.after


def _sum(name: str, rows: Sequence[BridgeRow], currency: str) -> list[Cell]:
    shares = [row.share for row in rows if row.share is not None]
    share: Cell = Quantity(sum(shares), "share") if shares else ""
    return [name, Quantity(summed([row.amount for row in rows]), currency), share, ""]


def _split(rows: Sequence[BridgeRow]) -> tuple[Sequence[BridgeRow], Sequence[BridgeRow]]:
    """What fits and what does not; one row that does not would take no less room as a sum."""
    return (rows, ()) if len(rows) <= SHOWN + 1 else (rows[:SHOWN], rows[SHOWN:])


def _picture(found: Bridge) -> Picture:
    shown, rest = _split(found.rows)
    steps = [Step(row.name, row.amount) for row in shown]
    if rest:
        steps.append(Step(counted(len(rest), "smaller cause"), summed([row.amount for row in rest])))
    title = f"From {found.a} to {found.b}"
    return waterfall(title, (found.a, found.total_a), steps, (found.b, found.total_b), unit=found.currency)
