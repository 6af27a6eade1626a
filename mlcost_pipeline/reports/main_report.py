"""The report that a person reads, made from the warehouse alone, and its few lines for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.reports import bridge_view
from mlcost_pipeline.reports.document import MEANING, PROVISIONAL, Document, Number, Table
from mlcost_pipeline.reports.dress import dressed, report_path
from mlcost_pipeline.reports.first_line import TODAY
from mlcost_pipeline.reports.html import write_html
from mlcost_pipeline.reports.sections import (
    budgets,
    decided,
    freshness,
    lever_plan,
    moved,
    reconciliation,
    spend,
    trained,
    unbilled,
    unit_cost,
    waste,
)
from mlcost_pipeline.reports.terminal import print_document, print_lines
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

Section = Callable[[Warehouse, Settings], Document]

#: The sections in the order in which a person reads them.
SECTIONS: tuple[Section, ...] = (
    moved.moved,
    decided.decided,
    trained.trained,
    freshness.freshness,
    spend.spend,
    unit_cost.unit_cost,
    waste.waste,
    budgets.budgets,
    reconciliation.reconciliation,
    unbilled.not_billed,
    lever_plan.lever_plan,
)

STATUS_ROWS = 100
#: Numbers of the overview: the title of a section, the key there, and the label here.
_OVERVIEW = (
    (spend.TITLE, "share_attributed", "spend attributed to models"),
    (spend.TITLE, "spend", "spend (effective)"),
    (reconciliation.TITLE, "not_reconciled", "months not reconciled"),
    (freshness.TITLE, "share_fresh", "users with a fresh list"),
    (trained.TITLE, "saved_share", "saved against on-demand"),
    (decided.TITLE, "retrains", "decisions to retrain"),
)


@dataclass(frozen=True)
class Written:
    """Where the report lies, and what is in it."""

    path: Path
    documents: tuple[Document, ...]

    @property
    def overview(self) -> Document:
        """The first section, linked to the file."""
        return self.documents[0].linked(report=str(self.path))

    @property
    def closing(self) -> list[str]:
        """The lines of :func:`closing_summary`, from the very documents in the file."""
        return closing_lines(self.documents)


def build(warehouse: Warehouse, settings: Settings) -> list[Document]:
    """All sections, the overview first; every number comes from a table or a state object of the warehouse."""
    sections = [section(warehouse, settings) for section in SECTIONS]
    return [_overview(sections, settings), *sections]


def write_report(
    warehouse: Warehouse, settings: Settings, path: Path | None = None, *, at: datetime | None = None
) -> Written:
    """Write the whole report as one HTML file, by default below the warehouse; `at` is when `warehouse` is of."""
    first, *others = build(warehouse, settings)
    if at is not None:
        first = replace(first, summary=f"As of {at:%Y-%m-%d %H:%M} UTC: {first.summary} {TODAY}")
    documents = [first, *others]
    place = write_html(path or report_path(settings), documents, title_of(settings), note=settings.proxy_note)
    return Written(place, tuple(documents))


def closing_summary(warehouse: Warehouse, settings: Settings) -> list[str]:
    """One line a section, ``title: sentence``: the same sentences as in the report."""
    return closing_lines(build(warehouse, settings))


def print_closing(
    warehouse: Warehouse, settings: Settings, console: Console | None = None, *, written: Written | None = None
) -> None:
    """Print the closing summary and where the report lies.

    The report is written first, so that both say the same; pass what was ``written`` to spare a second making.
    """
    made = written or write_report(warehouse, settings)
    print_lines([*made.closing, f"Report: {made.path}"], console)


def remember(warehouse: Warehouse, written: Written, *, key: str) -> None:
    """Note the report that was written, what it stands on (`key`), and its closing lines."""
    note = {"key": key, "path": str(written.path), "closing": list(written.closing)}
    warehouse.state.update("report", lambda _: note)


def print_last_closing(warehouse: Warehouse, console: Console | None = None) -> None:
    """Print the closing summary of the report that was written last, and where that report lies.

    Raises:
        MlcostError: no report was written yet.
    """
    stored = warehouse.state.get("report")
    if stored is None:
        raise MlcostError("no report was written yet; run: mlcost report")
    print_lines([*stored.value["closing"], f"Report: {stored.value['path']}"], console)


def print_bill_status(warehouse: Warehouse, settings: Settings, console: Console | None = None) -> None:
    """Print what is in force for each account and month, whether it adds up, and how much of it is attributed."""
    for section in (reconciliation.reconciliation, spend.spend):
        print_document(section(warehouse, settings), console, rows=STATUS_ROWS)  # the last rows are the sums


def closing_lines(documents: Sequence[Document]) -> list[str]:
    """The lines of documents that were built already: what their marks mean, then a sentence each, the share first."""
    marks = [f"{mark}: {MEANING.get(mark, '')}" for mark in documents[0].marks if mark != PROVISIONAL]
    return [*marks, *(f"{doc.title}: {doc.summary}" for doc in documents)]


def title_of(settings: Settings) -> str:
    """The title of the whole report."""
    return f"What machine learning costs and earns: {settings.name}"


def _overview(sections: Sequence[Document], settings: Settings) -> Document:
    numbers = {doc.title: {number.key: number for number in doc.numbers} for doc in sections}
    chosen = [replace(numbers[title][key], label=label) for title, key, label in _OVERVIEW if key in numbers[title]]
    said = {doc.title: doc.summary for doc in sections}
    doc = Document(
        title="In short",
        summary=_first_sentence(chosen, said),
        numbers=chosen,
        tables=[
            *(doc.tables[0] for doc in sections if doc.title == bridge_view.TITLE),
            Table("Section by section", ["question", "answer"], [[doc.title, doc.summary] for doc in sections]),
        ],
        marks=tuple(
            mark for mark in dict.fromkeys(mark for doc in sections for mark in doc.marks) if mark == PROVISIONAL
        ),
    )
    return dressed(doc, settings)


def _first_sentence(numbers: Sequence[Number], said: dict[str, str]) -> str:
    """What comes first to a reader: how much of the bill is somebody's, what the rest is, and whether it adds up."""
    known = {number.key: str(number) for number in numbers}
    bill = said[reconciliation.TITLE].split(":")[0].rstrip(".")
    return (
        f"{said[spend.TITLE].rstrip('.')}; bill reconciled: {bill.lower()}; users with a fresh list: "
        f"{known.get('share_fresh', 'unknown')}; saved against on-demand alone: {known.get('saved_share', 'unknown')}."
    )
