"""The outcomes of a model's month, put together from the rows of ``outcomes`` that cover it without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_WORDS = {"added_clicks": "added clicks", "fraud_caught": "fraud cases caught", "hits": "hits (a proxy)"}


@dataclass(frozen=True)
class Counted:
    """A count with its bounds, its unit and definition, and the stretches of the month that it was measured on."""

    count: float
    low: float | None
    high: float | None
    unit: str
    definition_version: str
    state: str
    start: datetime
    end: datetime
    windows: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def bounds(self) -> tuple[float, float | None, float | None]:
        return self.count, self.low, self.high

    @property
    def definition(self) -> str:
        """What was counted, and by which version of its definition: only equal ones may be compared."""
        return f"{self.unit} v{self.definition_version}"

    @property
    def words(self) -> str:
        """The unit for a person."""
        return _WORDS.get(self.unit, self.unit)

    @property
    def sentence(self) -> str:
        between = "" if self.low == self.count == self.high else f" ({_number(self.low)} to {_number(self.high)})"
        return f"{_number(self.count)}{between} {self.words}"


def counted(warehouse: Warehouse, settings: Settings, model: str, period: str) -> Counted | None:
    """The outcome of `model` in `period`; None if nothing was measured."""
    return counted_by_month(warehouse, settings, model).get(period)


def counted_by_month(warehouse: Warehouse, settings: Settings, model: str) -> dict[str, Counted]:
    """The outcome of every month in which `model` was measured, by the settings' definition where there is one.

    A month that was only ever counted by another unit or definition has that one, and says so; counts of several are
    never added up. Bounds of several stretches are added up, which is wider than the bounds of their sum and never
    narrower.
    """
    months: dict[str, list[dict[str, Any]]] = {}
    for row in warehouse.rows("outcomes", where="model = ? AND slice = 'all'", params=[model]):
        start, end = month_bounds(row["start"].strftime("%Y-%m"))
        if row["end"] <= end:
            months.setdefault(f"{start:%Y-%m}", []).append(row)
    wanted = _definition(settings, model)
    return {period: _together(_of_one_definition(rows, wanted)) for period, rows in sorted(months.items())}


def month_bounds(period: str) -> tuple[datetime, datetime]:
    """[start, end) of a period "YYYY-MM"."""
    start = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
    return start, (start + timedelta(days=32)).replace(day=1)


def _definition(settings: Settings, model: str) -> tuple[str | None, str | None]:
    """(unit, version) that the settings name; of a model that is only accounted, the unit alone."""
    if model in settings.models:
        outcome = settings.models[model].outcome
        return outcome.unit, outcome.definition_version
    return (settings.accounted[model].unit if model in settings.accounted else None), None


def _of_one_definition(rows: Sequence[dict[str, Any]], wanted: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    def nearness(definition: tuple[str, str]) -> tuple[bool, bool, str, str]:
        return definition == wanted, definition[0] == wanted[0], definition[1], definition[0]

    chosen = max({(row["unit"], row["definition_version"]) for row in rows}, key=nearness)
    return [row for row in rows if (row["unit"], row["definition_version"]) == chosen]


def _together(rows: Sequence[dict[str, Any]]) -> Counted:
    chosen = _without_overlap(rows)
    lows, highs = [row["low"] for row in chosen], [row["high"] for row in chosen]
    states = {row["state"] for row in chosen}
    return Counted(
        count=sum(row["count"] for row in chosen),
        low=None if None in lows else sum(lows),
        high=None if None in highs else sum(highs),
        unit=chosen[0]["unit"],
        definition_version=chosen[0]["definition_version"],
        state="provisional" if "provisional" in states else sorted(states)[0],
        start=chosen[0]["start"],
        end=chosen[-1]["end"],
        windows=tuple(sorted({(row["start"], row["end"]) for row in chosen})),
    )


def _without_overlap(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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
