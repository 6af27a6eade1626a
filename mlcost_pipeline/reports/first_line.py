"""The line that every telling of money begins with: how much of the bill is attributed, and what the rest is."""

from __future__ import annotations

from datetime import datetime

from mlcost_pipeline.cost.books import books, left_out
from mlcost_pipeline.reports.ledger_view import read_spend
from mlcost_pipeline.reports.sections.spend import NO_BILL, attribution_sentence
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: What no table keeps the past of, so that a telling as of a day has it as it is known today.
TODAY = "Bills and ledgers are as of then; runs, outcomes and predictions are as they are known today."


def first_lines(
    warehouse: Warehouse, settings: Settings, period: str | None = None, *, at: datetime | None = None
) -> list[str]:
    """A sentence for each currency of the bills of one month or of all, the settings' first; marked while any is open.

    Then one for each bill that is not attributed, for no ledger stands on it.

    `at` is the end of the day that `warehouse` shows, where it is not today.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill.
    """
    entries = [entry for entry in read_spend(warehouse) if period in (None, entry.period)]
    currencies = sorted({entry.currency for entry in entries}, key=lambda name: (name != settings.currency, name))
    found = books(warehouse, None, period)
    open_ = {book.bill.currency for book in found if book.bill.state != "final"}
    where = "" if period is None else f"{period}: "
    lines = [
        f"{where}{attribution_sentence([e for e in entries if e.currency == currency], currency)}"
        f"{' (PROVISIONAL: a bill is open)' if currency in open_ else ''}."
        for currency in currencies
    ]
    lines += [f"{said}." for said in left_out(found, settings)]
    if at is not None:
        lines.append(f"As of {at:%Y-%m-%d %H:%M} UTC. {TODAY}")
    return lines or [f"{where}the share attributed is unknown: {NO_BILL}."]
