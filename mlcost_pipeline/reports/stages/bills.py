"""Reports of bills: what was taken over, whose it is, and whether the parts add up to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from mlcost_pipeline.cost.deliveries import scope_of
from mlcost_pipeline.cost.delivery_totals import OF_EXPORT
from mlcost_pipeline.cost.masking import shown_account
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import counted, stage_report, summed
from mlcost_pipeline.reports.ledger_view import spend_of
from mlcost_pipeline.reports.pictures import bars
from mlcost_pipeline.reports.sections.spend import (
    attribution_sentence,
    methods_table,
    model_stage_table,
    reasons_table,
    spend_numbers,
)
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from mlcost_pipeline.cost.deliveries import Delivery
    from mlcost_pipeline.cost.ledger import LedgerResult
    from mlcost_pipeline.cost.reconciliation import Reconciliation
    from mlcost_pipeline.settings import Settings


def bill_report(deliveries: Sequence[Delivery], settings: Settings) -> Document:
    """Which exports were taken over, for which account and month, with their control sums."""
    new = [each for each in deliveries if each.took_over]
    totals: dict[str, list[Decimal]] = {}
    for each in deliveries:
        totals.setdefault(each.currency, []).append(each.billed_total)
    money = " and ".join(show_number(summed(amounts), currency) for currency, amounts in sorted(totals.items()))
    if deliveries:
        summary = (
            f"{counted(len(new), 'new delivery', 'new deliveries')} of {len(deliveries)} read, "
            f"{counted(sum(d.rows for d in deliveries), 'line')} for {money} billed; {_checked(deliveries)}."
        )
    else:
        summary = "No new bill was found: every export in the folders named under bills was taken over before."
    rows: list[list[Cell]] = [
        [
            shown_account(d.account, settings),
            d.period,
            d.state,
            d.rows,
            Quantity(d.billed_total, d.currency),
            Quantity(d.effective_total, d.currency),
            Quantity(d.billed_residue, d.currency, exact=True),
            _control(d),
            "new" if d.took_over else "known" if d.behind is None else f"older than {d.behind}",
            d.source,
            d.delivery_id,
        ]
        for d in sorted(deliveries, key=lambda d: (d.period, d.account), reverse=True)
    ]
    columns = [
        "account", "month", "state", "lines", "billed", "effective", "residue", "equal to control sums of",
        "taken over", "file", "delivery",
    ]  # fmt: skip
    doc = Document(
        title="Bills taken over",
        summary=summary,
        numbers=[
            Number("deliveries", "deliveries read", len(deliveries)),
            Number("deliveries_new", "of these new", len(new)),
            Number("lines", "lines", sum(d.rows for d in deliveries)),
            Number("provisional", "not final yet", sum(d.state != "final" for d in deliveries)),
        ],
        tables=[Table("Deliveries", columns, rows, empty="no new bill"), _absent(deliveries)],
    )
    marked = doc.marked(PROVISIONAL) if any(d.state != "final" for d in deliveries) else doc
    return stage_report(marked, settings)


def _checked(deliveries: Sequence[Delivery]) -> str:
    """Whether the totals were held against sums of the raw files, taken apart from the reading."""
    held = sum(bool(each.control) for each in deliveries)
    text = "stored lines and what rounding kept aside equal, to the last digit, "
    text += "control sums that another reader took of the raw files"
    if held == len(deliveries):
        return text
    return f"in {held} of them {text}; of the others no control sums were taken, so nothing is said of those"


def _control(made: Delivery) -> str:
    """The measures whose sums were taken a second time from the raw file, and of what."""
    if not made.control:
        return "none taken" if made.control is not None else "none taken then"
    whole = sorted(name for name, how in made.control.items() if how == OF_EXPORT)
    own = sorted(name for name in made.control if name not in whole)
    return "; ".join([*([", ".join(own)] if own else []), *([f"{', '.join(whole)} (whole export)"] if whole else [])])


def ledger_report(made: LedgerResult, settings: Settings, warehouse: Warehouse | None = None) -> Document:
    """One account's month: the share attributed first, then the rest by reason, then whether it all adds up.

    The parts are read from the warehouse, by default the one that the settings name.
    """
    store = warehouse or Warehouse(settings.path(settings.warehouse))
    scope = scope_of(made.account, made.period)
    entries = spend_of(store, scope, made.ledger_version)
    currency, found = made.delivery.currency, masked(made.reconciliation, settings)
    restated = (
        f"; {counted(made.restated, 'entry', 'entries')} restated since the version before" if made.restated else ""
    )
    numbers = spend_numbers(entries, currency)[:4]
    doc = Document(
        title=f"Ledger of {found.account}, {found.period}",
        summary=f"{attribution_sentence(entries, currency)}{restated}; {found.sentence}.",
        numbers=[
            *numbers,
            _off_by(found),
            Number("restated", "entries restated", made.restated),
        ],
        tables=[
            model_stage_table(entries, currency),
            reasons_table(entries, currency),
            methods_table(entries, currency),
        ],
        pictures=[bars("Effective cost by model", _by_model(model_stage_table(entries, currency)), unit=currency,
                       columns=("model", "spend"))],
        ids={"ledger_version": made.ledger_version, "previous_version": made.previous,
             "delivery_id": made.delivery.delivery_id},
    )  # fmt: skip
    return stage_report(doc.marked(PROVISIONAL) if found.provisional else doc, settings)


def reconciliation_report(found: Reconciliation, settings: Settings) -> Document:
    """Whether one account's month closes, measure by measure, to the last unit."""
    found = masked(found, settings)
    doc = Document(
        title=f"Reconciliation of {found.account}, {found.period}",
        summary=f"{found.sentence}.",
        numbers=[
            Number("reconciled", "measures that close", sum(m.difference == 0 for m in found.measures),
                   bound=f"all {len(found.measures)}"),
            Number("slots_off", "slots off", found.slots_off, bound="0 allowed"),
            _off_by(found),
            Number("lines", "lines", found.lines),
        ],
        tables=[measures_table([found])],
        ids={"ledger_version": found.ledger_version, "delivery_id": found.delivery_id},
    )  # fmt: skip
    return stage_report(doc.marked(PROVISIONAL) if found.provisional else doc, settings)


def masked(found: Reconciliation, settings: Settings) -> Reconciliation:
    """The same with the account as it may be shown."""
    return replace(found, account=shown_account(found.account, settings))


def _off_by(found: Reconciliation) -> Number:
    off = summed([measure.difference.copy_abs() for measure in found.measures])
    return Number("off_by", "bill minus parts", off, found.currency, bound="0 to the last unit", exact=True)


def measures_table(found: Sequence[Reconciliation]) -> Table:
    """Every measure of every month, with all its digits."""
    rows: list[list[Cell]] = [
        [
            each.account,
            each.period,
            m.measure,
            m.difference == 0,
            *(Quantity(amount, each.currency, exact=True) for amount in (m.bill, m.parts, m.residue, m.difference)),
            each.lines,
            each.slots_off,
        ]
        for each in found
        for m in each.measures
    ]
    columns = ["account", "month", "measure", "closes", "bill", "parts", "residue", "off by", "lines", "slots off"]
    return Table("Bill = parts + residue", columns, rows, empty="nothing was compared")


def _absent(deliveries: Sequence[Delivery]) -> Table:
    found = {(column, why) for each in deliveries for column, why in each.absent.items()}
    rows: list[list[Cell]] = [[column, why] for column, why in sorted(found)]
    return Table("Columns that the exports do not have", ["column", "what that means"], rows, empty="none is missing")


def _by_model(table: Table) -> list[tuple[str, Decimal]]:
    found = []
    for row in table.rows[:-1]:
        amount = row[1]
        assert isinstance(amount, Quantity)
        found.append((str(row[0]), Decimal(amount.value or 0)))
    return found
