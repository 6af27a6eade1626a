"""Why the bill moved between the last two whole months, all models."""

from __future__ import annotations

from mlcost_pipeline.cost.bridge import bridge, last_two_months
from mlcost_pipeline.errors import BillError, NothingCompared, Unreconciled
from mlcost_pipeline.reports.bridge_view import TITLE, bridge_document
from mlcost_pipeline.reports.document import Document, Table
from mlcost_pipeline.reports.dress import dressed
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def moved(warehouse: Warehouse, settings: Settings) -> Document:
    """The bridge of the last two whole months; where it cannot be made it says why."""
    months = last_two_months(warehouse, settings)
    if months is None:
        return _not_known("no two months in a row are over and have a bill", settings)
    try:
        return bridge_document(bridge(warehouse, settings, *months), settings)
    except (NothingCompared, Unreconciled):  # the section on reconciliation tells of which account, masked or not
        return _not_known(f"a bill of {' or '.join(months)} does not add up or was not attributed", settings)
    except BillError as error:
        return _not_known(str(error), settings)


def _not_known(why: str, settings: Settings) -> Document:
    said = " ".join(why.split()).rstrip(".")
    doc = Document(
        title=TITLE,
        summary=f"Not known why the bill moved: {said}.",
        tables=[Table(TITLE, [], [], empty=said)],
    )
    return dressed(doc, settings)
