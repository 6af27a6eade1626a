"""Whether each account's month adds up: yes or no, to the last unit."""

from __future__ import annotations

from mlcost_pipeline.cost.asof import came_later
from mlcost_pipeline.cost.books import books
from mlcost_pipeline.cost.masking import masked_text, shown_account
from mlcost_pipeline.cost.orphan_holds import orphan_holds
from mlcost_pipeline.cost.reconciliation import Reconciliation, reconcile
from mlcost_pipeline.cost.restating import bills_of
from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import counted, dressed, summed
from mlcost_pipeline.reports.stages.bills import masked, measures_table
from mlcost_pipeline.reports.values import Cell, Quantity
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "Does the bill add up"


def reconciliation(warehouse: Warehouse, settings: Settings) -> Document:
    """One row an account and month; one that could not be compared is no yes."""
    found: list[Reconciliation] = []
    nothing: dict[tuple[str, str], str] = {}
    for book in books(warehouse, None):
        account, period = book.bill.account, book.bill.period
        shown = shown_account(account, settings)
        if book.version is None:
            nothing[shown, period] = masked_text(book.sentence, account, settings)
            continue
        try:
            found.append(masked(reconcile(warehouse, account, period), settings))
        except NothingCompared as error:
            nothing[shown, period] = masked_text(str(error), account, settings)
    closed = sum(each.reconciled for each in found)
    months = len(found) + len(nothing)
    provisional = sum(each.provisional for each in found)
    orphans = orphan_holds(warehouse)
    doc = Document(
        title=TITLE,
        summary=_sentence(found, nothing, closed, months, provisional),
        numbers=[
            Number("months", "accounts and months", months),
            Number("reconciled", "reconciled", closed, bound=f"all {months}"),
            Number("not_reconciled", "not reconciled", months - closed, bound="0 allowed"),
            Number("slots_off", "slots off", sum(each.slots_off for each in found), bound="0 allowed"),
            Number("lines", "lines compared", sum(each.lines for each in found)),
        ],
        tables=[_answers(found, nothing), measures_table(found), _restated(warehouse, settings)],
        notes=[orphans] if orphans else [],
    )
    return dressed(doc.marked(PROVISIONAL) if provisional else doc, settings)


def _sentence(
    found: list[Reconciliation], nothing: dict[tuple[str, str], str], closed: int, months: int, provisional: int
) -> str:
    if not months:
        return "Nothing was reconciled, because no bill was imported."
    lines = counted(sum(each.lines for each in found), "line")
    all_of_them = counted(months, "account and month", "accounts and months")
    waiting = f", {provisional} of them provisional" if provisional else ""
    if closed == months:
        return f"Yes: {all_of_them} reconciled to the last unit over {lines}{waiting}."
    if nothing and closed == len(found):
        unbuilt = counted(len(nothing), "account and month", "accounts and months")
        done = f"{counted(closed, 'other is', 'others are')} reconciled over {lines}" if closed else "none was compared"
        return f"Not known yet: {unbuilt} not attributed so far ({done}); run: mlcost tick."
    bad = [f"{e.account} {e.period}" for e in found if not e.reconciled] + [f"{a} {p}" for a, p in nothing]
    return f"No: {closed} of {all_of_them} reconciled over {lines}, not {', '.join(bad[:3])}{waiting}."


def _answers(found: list[Reconciliation], nothing: dict[tuple[str, str], str]) -> Table:
    rows: list[list[Cell]] = []
    for each in sorted(found, key=lambda e: (e.period, e.account), reverse=True):
        off = summed([check.difference.copy_abs() for check in each.measures])
        rows.append([each.account, each.period, each.reconciled, Quantity(each.measures[0].bill, each.currency),
                     Quantity(off, each.currency, exact=True), each.state, each.sentence])  # fmt: skip
    rows += [[account, period, False, "not compared", "not compared", "not compared", why]
             for (account, period), why in sorted(nothing.items())]  # fmt: skip
    columns = ["account", "month", "reconciled", "billed", "off by", "delivery", "in words"]
    return Table("Reconciled", columns, rows, empty="no bill was imported")


def _restated(warehouse: Warehouse, settings: Settings) -> Table:
    """What newer ledgers changed, up to those in force, by month and cause."""
    later = ["\x1f".join(key) for key in sorted(came_later(warehouse))]
    sums = warehouse.query(
        "SELECT account, period, cause, count(*) AS entries, sum(effective_delta) AS delta, "
        "sum(abs(effective_delta)) AS moved FROM restatements "
        "WHERE NOT list_contains(?::VARCHAR[], concat_ws(chr(31), account, period, new_ledger_version)) "
        "GROUP BY ALL ORDER BY period DESC, account, cause",
        [later],
        tables=["restatements"],
    ).to_pylist()
    currencies = {key: bill.currency for key, bill in bills_of(warehouse).items()}
    rows: list[list[Cell]] = []
    for row in sums:
        currency = currencies.get((row["account"], row["period"]), "")
        rows.append([
            shown_account(row["account"], settings), row["period"], row["cause"], row["entries"],
            Quantity(row["delta"], currency, exact=True), Quantity(row["moved"], currency),
        ])  # fmt: skip
    columns = ["account", "month", "because of", "entries", "change", "moved in all"]
    return Table("Restated since first attributed (effective)", columns, rows, empty="nothing was restated")
