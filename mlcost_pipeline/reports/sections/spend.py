"""Spend by model and stage: the share attributed first, then where the rest went and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from mlcost_pipeline.cost.books import FINAL, books, left_out
from mlcost_pipeline.cost.loaded import fully_loaded
from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, dressed, listed, share_of, summed
from mlcost_pipeline.reports.ledger_view import NO_LEDGER, Spend, by, read_spend, total
from mlcost_pipeline.reports.pictures import stacked_bars
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "Spend by model and stage"
NO_BILL = "no ledger is in force: no bill was imported, or none could be attributed yet"


def spend(warehouse: Warehouse, settings: Settings) -> Document:
    """All ledgers in force, in the settings' currency first; other currencies are never added to it."""
    found = books(warehouse, None)
    provisional = any(book.standing != FINAL for book in found)
    doc = spend_document(read_spend(warehouse), settings, provisional=provisional)
    return replace(doc, notes=[*doc.notes, *(f"{said}." for said in left_out(found, settings))])


def spend_document(entries: Sequence[Spend], settings: Settings, *, provisional: bool = False) -> Document:
    """The document of these sums; `provisional` if any of their bills is open."""
    if not entries:
        doc = Document(
            title=TITLE, summary=f"Spend is unknown: {NO_BILL}.", tables=[Table("Spend", [], [], empty=NO_BILL)]
        )
        return dressed(doc, settings)
    currencies = sorted({entry.currency for entry in entries}, key=lambda name: (name != settings.currency, name))
    main = [entry for entry in entries if entry.currency == currencies[0]]
    doc = Document(
        title=TITLE,
        summary=listed([attribution_sentence([e for e in entries if e.currency == c], c) for c in currencies], NO_BILL)
        + ".",
        numbers=spend_numbers(main, currencies[0]),
        tables=[
            table for c in currencies for table in _tables([e for e in entries if e.currency == c], c, len(currencies))
        ],
        pictures=[_by_month([e for e in entries if e.currency == c], c) for c in currencies],
        notes=["Effective cost as the bills state it: after discounts, commitments amortised, credits subtracted."],
    )
    return dressed(doc.marked(PROVISIONAL) if provisional else doc, settings)


def attribution_sentence(entries: Sequence[Spend], currency: str) -> str:
    """The share attributed, first of all; then the rest by reason."""
    whole, have = total(entries), total(e for e in entries if e.attributed)
    rest = by((e for e in entries if not e.attributed), _reason)
    ordered = sorted(rest.items(), key=lambda entry: (-abs(entry[1]), entry[0]))
    words = [f"{reason} {show_number(amount, currency)}" for reason, amount in ordered[:4]]
    if len(ordered) > 4:
        rest_of_it = show_number(summed([amount for _, amount in ordered[4:]]), currency)
        words.append(f"{counted(len(ordered) - 4, 'more reason')} {rest_of_it}")
    unattributed = f", unattributed by reason: {', '.join(words)}" if words else ", nothing is left over"
    share = share_of(have, whole)
    if share is None:
        return (
            f"the share attributed is unknown, because the bills add up to {show_number(whole, currency)}{unattributed}"
        )
    return f"{show_number(share, 'share')} of {show_number(whole, currency)} is attributed to models{unattributed}"


def spend_numbers(entries: Sequence[Spend], currency: str) -> list[Number]:
    """The share attributed, the whole, and what each part is."""
    whole, have = total(entries), total(e for e in entries if e.attributed)
    return [
        Number("share_attributed", "share attributed", share_of(have, whole), "share"),
        Number("spend", "spend (effective)", whole, currency),
        Number("attributed", "attributed to models", have, currency),
        Number("unattributed", "not attributed", summed([whole, have.copy_negate()]), currency),
        Number("months", "months", len({e.period for e in entries})),
        Number("accounts", "accounts", len({e.account for e in entries})),
    ]


def model_stage_table(entries: Sequence[Spend], currency: str, *, title: str = "Spend by model and stage") -> Table:
    """A row a model, a column a stage; the last rows are what has no model, and the whole."""
    stages = list(by((e for e in entries if e.attributed), lambda e: e.stage or "no stage"))
    cells = by((e for e in entries if e.attributed), lambda e: (e.model, e.stage or "no stage"))
    models = by((e for e in entries if e.attributed), lambda e: e.model)
    ordered = sorted(models.items(), key=lambda entry: (-entry[1], str(entry[0])))
    rows: list[list[Cell]] = [
        [model, Quantity(amount, currency), *(Quantity(cells.get((model, s), Decimal(0)), currency) for s in stages)]
        for model, amount in ordered
    ]
    blank: list[Cell] = [""] * len(stages)
    rows.append(["not attributed", Quantity(total(e for e in entries if not e.attributed), currency), *blank])
    rows.append(["all", Quantity(total(entries), currency), *blank])
    return Table(title, ["model", "all stages", *stages], rows)


def reasons_table(entries: Sequence[Spend], currency: str, *, title: str = "Not attributed, by reason") -> Table:
    """Why money has no model, largest first."""
    whole = total(entries)
    rest = [e for e in entries if not e.attributed]
    parts: dict[str, int] = {}
    for entry in rest:
        parts[_reason(entry)] = parts.get(_reason(entry), 0) + entry.parts
    ordered = sorted(by(rest, _reason).items(), key=lambda entry: (-abs(entry[1]), entry[0]))
    rows: list[list[Cell]] = [
        [reason, Quantity(amount, currency), Quantity(share_of(amount, whole), "share"), parts[reason]]
        for reason, amount in ordered
    ]
    return Table(title, ["reason", "spend", "of all", "parts"], rows, empty="all of it is attributed")


def methods_table(entries: Sequence[Spend], currency: str, *, title: str = "By method of attribution") -> Table:
    """How money got where it is."""
    amounts = by(entries, lambda e: e.method)
    rows: list[list[Cell]] = [
        [method.replace("_", " "), Quantity(amount, currency), Quantity(share_of(amount, total(entries)), "share")]
        for method, amount in sorted(amounts.items(), key=lambda entry: (-abs(entry[1]), entry[0]))
    ]
    return Table(title, ["method", "spend", "of all"], rows)


def loaded_table(entries: Sequence[Spend], currency: str, *, title: str = "Fully loaded, a view") -> Table:
    """What each model would carry of the money that is nobody's: in proportion to its own, or all the same.

    Nothing of it is in the ledger; each column adds up to the whole. What has no ledger yet is spread over nobody.
    """
    own = {str(model): amount for model, amount in by((e for e in entries if e.attributed), lambda e: e.model).items()}
    nobodys = total(e for e in entries if not e.attributed and e.reason != NO_LEDGER)
    proportional, left = fully_loaded(own, nobodys, "proportional")
    even = {each.model: each for each in fully_loaded(own, nobodys, "even")[0]}
    rows: list[list[Cell]] = [
        [each.model, *(Quantity(amount, currency) for amount in
                       (each.own, each.carried, each.total, even[each.model].carried, even[each.model].total))]
        for each in sorted(proportional, key=lambda each: (-each.own, each.model))
    ]  # fmt: skip
    if left:
        rows.append(["nobody's, for no model has spend of its own", Quantity(left, currency), "", "", "", ""])
    if waiting := [e for e in entries if e.reason == NO_LEDGER]:
        amount = Quantity(total(waiting), currency)
        rows.append(["not apportioned yet: no ledger", amount, "", amount, "", amount])
    columns = ["model", "its own", "carries in proportion", "loaded in proportion", "carries evenly", "loaded evenly"]
    return Table(title, columns, rows, empty="no model has any spend that could be loaded")


def _reason(entry: Spend) -> str:
    return (entry.reason or entry.method).replace("_", " ")


def _tables(entries: Sequence[Spend], currency: str, currencies: int) -> list[Table]:
    tail = f", {currency}" if currencies > 1 else ""
    return [
        model_stage_table(entries, currency, title=f"Spend by model and stage{tail}"),
        reasons_table(entries, currency, title=f"Not attributed, by reason{tail}"),
        methods_table(entries, currency, title=f"By method of attribution{tail}"),
        loaded_table(entries, currency, title=f"Fully loaded, a view: not attributed money spread over models{tail}"),
    ]


def _by_month(entries: Sequence[Spend], currency: str) -> Picture:
    periods = sorted({e.period for e in entries})
    amounts = by(entries, lambda e: (e.period, _stack(e)))
    stacks = sorted({_stack(e) for e in entries}, key=lambda name: (name == _REST, name))
    columns = {name: [amounts.get((period, name), Decimal(0)) for period in periods] for name in stacks}
    return stacked_bars("Spend by month and stage", periods, columns, unit=currency)


_REST = "not attributed"


def _stack(entry: Spend) -> str:
    return (entry.stage or "no stage") if entry.attributed else _REST
