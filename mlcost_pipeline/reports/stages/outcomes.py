"""Report of what a model earned, as counts with a definition and an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from mlcost_pipeline.reports.document import PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import stage_report
from mlcost_pipeline.reports.pictures import lines_over_days
from mlcost_pipeline.reports.values import Cell, show, show_number
from mlcost_pipeline.settings import Settings

UNITS = {"added_clicks": "added clicks", "hits": "hits (proxy)", "fraud_caught": "fraud cases caught"}
ALL = "all"
NOTHING = "nothing could be measured: no exposures, predictions or lists with labels in any month; unknown is not zero"


def outcomes_report(model: str, counted_rows: Sequence[Mapping[str, Any]], settings: Settings) -> Document:
    """Rows of the table ``outcomes`` of one model: the newest month in the sentence, all of them below."""
    unit = unit_words(settings, model)
    rows = newest_first(counted_rows)
    whole = [row for row in rows if row["slice"] == ALL]
    newest = whole[0] if whole else None
    provisional = sum(row["state"] == "provisional" for row in whole)
    if newest is None:
        summary = f"{model}: {unit} unknown, {NOTHING}."
    else:
        summary = (
            f"{model}: {interval_words(newest)} {unit} from {show(newest['start'].date())} to before "
            f"{show(newest['end'].date())} ({newest['state']}: {newest['source']})."
        )
    doc = Document(
        title=f"Outcomes of {model}",
        summary=summary,
        numbers=[
            Number("outcomes", f"{unit}, newest month", newest["count"] if newest else None),
            Number("outcomes_low", "lower bound", newest["low"] if newest else None),
            Number("outcomes_high", "upper bound", newest["high"] if newest else None),
            Number("months", "months measured", len({row["start"] for row in whole})),
            Number("provisional", "not settled yet", provisional),
        ],
        tables=[outcomes_table(rows)],
        pictures=_picture(model, unit, whole),
    )
    return stage_report(doc.marked(PROVISIONAL) if provisional else doc, settings, model=model)


def unit_words(settings: Settings, model: str) -> str:
    """What the outcomes of a model count, in words; of a model that is only accounted, as its settings name it."""
    unit = settings.accounted[model].unit if model in settings.accounted else settings.model(model).outcome.unit
    return UNITS.get(unit, unit.replace("_", " "))


def newest_first(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Newest month first; in a month the whole before its slices."""
    ordered = sorted(rows, key=lambda row: (row["slice"] != ALL, row["slice"], row["model_version"]))
    return sorted(ordered, key=lambda row: (row["start"], row["end"]), reverse=True)


def interval_words(row: Mapping[str, Any]) -> str:
    """A count with its interval."""
    low, high = row["low"], row["high"]
    bounds = "" if low is None or high is None or low == high else f" ({show_number(low)} to {show_number(high)})"
    return f"{show_number(row['count'])}{bounds}"


def outcomes_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a month, slice and version."""
    cells: list[list[Cell]] = [
        [
            row["start"].date(),
            row["end"].date(),
            row["slice"],
            UNITS.get(row["unit"], row["unit"]),
            row["count"],
            row["low"],
            row["high"],
            row["state"],
            row["model_version"],
            row["definition_version"],
            row["source"],
        ]
        for row in rows
    ]
    columns = ["from", "to before", "slice", "unit", "count", "low", "high", "state", "version", "definition", "source"]
    return Table("Outcomes by month and slice, newest first", columns, cells, empty=NOTHING)


def _picture(model: str, unit: str, whole: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """Months with their bounds; nothing to draw for fewer than two, or where versions share a month."""
    months: list[date] = [row["start"].date() for row in reversed(whole)]
    if len(months) < 2 or len(set(months)) < len(months):
        return []
    series = {
        name: [row[key] for row in reversed(whole)]
        for name, key in (("count", "count"), ("low", "low"), ("high", "high"))
    }
    return [lines_over_days(f"{unit} of {model} by month", months, series)]
