"""Work that no bill has reached yet, priced by the price book: an estimate, never added to what was billed."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.price_check import PriceCheck, check_prices
from mlcost_pipeline.cost.prices import Estimate, unbilled
from mlcost_pipeline.reports.document import ESTIMATE, Document, Number, Table
from mlcost_pipeline.reports.dress import counted, dressed, summed
from mlcost_pipeline.reports.pictures import bars
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse

TITLE = "Work not billed yet"


def not_billed(warehouse: Warehouse, settings: Settings) -> Document:
    """Runs without a bill by model and stage, each with where its price comes from."""
    found = _estimates(warehouse, settings)
    priced = [each for each in found if each.amount is not None]
    amount = summed([each.amount for each in priced if each.amount is not None])
    hours = summed([each.hours for each in found])
    without = len(found) - len(priced)
    if found:
        unknown = f"; {counted(without, 'run')} of unknown price" if without else ""
        summary = (
            f"{counted(len(found), 'run')} of {show_number(hours * 3600, 's')} are in no bill yet and would cost "
            f"{show_number(amount, settings.currency)} by the price book{unknown}."
        )
    else:
        summary = "Every run on record is in a bill, so nothing is estimated."
    stages = sorted({each.stage for each in priced})
    checked = check_prices(warehouse, settings, model_clock(warehouse, settings, PLATFORM).now())
    doc = Document(
        title=TITLE,
        summary=summary,
        numbers=[
            Number("runs", "runs not billed", len(found)),
            Number("estimated", "estimated cost", amount if priced else None, settings.currency),
            Number("hours_seconds", "time", hours * 3600, "s"),
            Number("price_unknown", "runs of unknown price", without, bound="0 wanted"),
        ],
        tables=[_table(found, settings.currency), price_check_table(checked)],
        pictures=[
            bars(
                "Estimated cost by stage",
                [
                    (stage, summed([e.amount for e in priced if e.stage == stage and e.amount is not None]))
                    for stage in stages
                ],
                unit=settings.currency,
                columns=("stage", "estimated cost"),
            )
        ]
        if priced
        else [],
        notes=[checked.sentence, *checked.warnings],
    )
    return dressed(doc.marked(ESTIMATE) if found else doc, settings)


def price_check_table(checked: PriceCheck) -> Table:
    """Every price of the book beside what bills say of the same runs."""
    currency = checked.currency
    rows: list[list[Cell]] = [
        [each.source, each.runs, Quantity(each.book_price, currency), Quantity(each.bill_price, currency),
         "not priced" if each.estimated is None else Quantity(each.estimated, currency),
         Quantity(each.billed, currency), each.off, each.setting or ""]
        for each in checked.sources
    ]  # fmt: skip
    columns = ["price", "runs", "book, an hour", "bill, an hour", "book said", "bill says", "off", "set in"]
    return Table("The price book beside the bills", columns, rows, empty="no billed run could be compared")


def _estimates(warehouse: Warehouse, settings: Settings) -> list[Estimate]:
    """Each model by its own clock; work for all models by the platform's."""
    latest = unbilled(warehouse, settings, model_clock(warehouse, settings, PLATFORM).now())
    own = {
        each.run_id: each
        for model in settings.owners
        for each in unbilled(warehouse, settings, model_clock(warehouse, settings, model).now(), model=model)
    }
    return [own.get(each.run_id, each) for each in latest]


def _table(found: Iterable[Estimate], currency: str) -> Table:
    groups: dict[tuple[str, str, str, str], list[Estimate]] = {}
    for each in found:
        groups.setdefault((each.model, each.stage, each.purpose, each.source), []).append(each)
    rows: list[list[Cell]] = []
    for (model, stage, purpose, source), runs in sorted(groups.items()):
        amounts = [run.amount for run in runs if run.amount is not None]
        money: Decimal | None = summed(amounts) if amounts else None
        time = Quantity(summed([run.hours for run in runs]) * 3600, "s")
        rows.append([model, stage, purpose, len(runs), time, Quantity(money, currency), source])
    columns = ["model", "stage", "purpose", "runs", "time", "estimate", "from"]
    return Table("Runs not billed yet", columns, rows, empty="every run on record is in a bill")
