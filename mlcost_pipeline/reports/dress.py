"""What every report of one project carries: its marks and the note about its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path

from mlcost_pipeline.reports.document import PROXY, SIMULATED, Document
from mlcost_pipeline.reports.values import show_number
from mlcost_pipeline.settings import Settings

_EXACT = Context(prec=80)


def dressed(doc: Document, settings: Settings, *, model: str | None = None) -> Document:
    """The document with the project's marks; hits are marked as the proxy that they are."""
    marks = [SIMULATED] if settings.simulated else []
    if model is not None and model in settings.models and settings.models[model].outcome.unit == "hits":
        marks.append(PROXY)
    return doc.marked(*marks)


def report_path(settings: Settings) -> Path:
    """Where the full report of a project lies."""
    return settings.path(settings.warehouse) / "reports" / "report.html"


def stage_report(doc: Document, settings: Settings, *, model: str | None = None) -> Document:
    """A stage's document: marked, with the note about the project's data, linked to the full report."""
    notes = (*doc.notes, settings.proxy_note) if settings.proxy_note else tuple(doc.notes)
    return dressed(replace(doc, notes=notes), settings, model=model).linked(report=str(report_path(settings)))


def listed(parts: Sequence[str], empty: str) -> str:
    """Parts of a sentence set apart by semicolons, or what to say when there are none."""
    return "; ".join(parts) if parts else empty


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun: 1 row, 2 rows."""
    return f"{show_number(count)} {one if count == 1 else many or one + 's'}"


def summed(values: Sequence[Decimal]) -> Decimal:
    """An exact sum, whatever the number of digits; nought of nothing."""
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value)
    return total


def share_of(part: Decimal | float | int, whole: Decimal | float | int) -> float | None:
    """part ÷ whole; None if the whole is zero."""
    return float(part) / float(whole) if whole else None
