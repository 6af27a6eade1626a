"""The outcomes of a model's month, put together from the rows of ``outcomes`` that cover it without overlap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_WORDS = {"added_clicks": "added clicks", "fraud_caught": "fraud cases caught", "hits": "hits (a proxy)"}


@dataclass(frozen=True)
class Counted:
    """A count with its bounds, its unit and definition, and the stretch of the month that it covers."""

    count: float
    low: float | None
    high: float | None
    unit: str
    definition_version: str
    state: str
    start: datetime
    end: datetime

    @property
    def bounds(self) -> tuple[float, float | None, float | None]:
        return self.count, self.low, self.high

    @property
    def sentence(self) -> str:
        between = "" if self.low == self.high else f" ({_number(self.low)} to {_number(self.high)})"
        return f"{_number(self.count)}{between} {_WORDS.get(self.unit, self.unit)}"


def counted(warehouse: Warehouse, settings: Settings, model: str, period: str) -> Counted | None:
    """The outcome of `model` in `period` by the settings' definition; None if nothing was measured.

    Counts of another unit or definition are left out: they are not comparable. Bounds of several stretches are added
    up, which is wider than the bounds of their sum and never narrower.
    """
    outcome = settings.model(model).outcome
    start, end = month_bounds(period)
    rows = warehouse.rows(
        "outcomes",
        where="model = ? AND unit = ? AND definition_version = ? AND slice = 'all' AND start >= ? AND \"end\" <= ?",
        params=[model, outcome.unit, outcome.definition_version, start, end],
    )
    chosen = _without_overlap(rows)
    if not chosen:
        return None
    lows, highs = [row["low"] for row in chosen], [row["high"] for row in chosen]
    states = {row["state"] for row in chosen}
    return Counted(
        count=sum(row["count"] for row in chosen),
        low=None if None in lows else sum(lows),
        high=None if None in highs else sum(highs),
        unit=outcome.unit,
        definition_version=outcome.definition_version,
        state="provisional" if "provisional" in states else sorted(states)[0],
        start=chosen[0]["start"],
        end=chosen[-1]["end"],
    )


def month_bounds(period: str) -> tuple[datetime, datetime]:
    """[start, end) of a period "YYYY-MM"."""
    start = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def _without_overlap(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Windows from the earliest on, the longest of each start, none inside another; all versions of a window."""
    chosen: list[dict[str, Any]] = []
    covered = None
    for start, end in sorted({(row["start"], row["end"]) for row in rows}, key=lambda w: (w[0], -w[1].timestamp())):
        if covered is not None and start < covered:
            continue
        chosen += _versions([row for row in rows if (row["start"], row["end"]) == (start, end)])
        covered = end
    return chosen


def _versions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts of several versions add up, except added clicks: those are of all versions together, counted last."""
    if rows[0]["unit"] != "added_clicks":
        return rows
    return [max(rows, key=lambda row: (row["model_version"] == "several", row["model_version"]))]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
