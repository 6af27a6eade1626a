"""Outcomes: counts of what a model earned, with a definition, an interval and a state, in the table ``outcomes``.

States: `measured`; `provisional` while labels or the window are still open; `proxy` for hits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.catches import fraud_caught
from mlcost_pipeline.cost.clicks import added_clicks, served_versions
from mlcost_pipeline.cost.hits import DAY, day_hits, kept_lists
from mlcost_pipeline.settings import ModelSettings, Settings
from mlcost_pipeline.warehouse import Warehouse

ALL = "all"
MIXED = "several"


def measure_outcomes(
    warehouse: Warehouse, settings: Settings, model: str, start: date, end: date, *, now: datetime | None = None
) -> list[dict[str, Any]]:
    """Count what `model` earned on the days [start, end), as known at `now` (default: its clock), and store it.

    Rows are of the table ``outcomes``; measuring the same again with nothing new known changes nothing. Where nothing
    could be measured (no exposures, no predictions, no list) there is no row: unknown is not zero.
    """
    block = settings.model(model)
    moment = now or model_clock(warehouse, settings, model).now()
    first, last = _midnight(start), _midnight(end)
    rows = list(_MEASURES[block.outcome.unit](warehouse, block, model, first, last, moment))
    warehouse.append("outcomes", rows, holds_now=True)
    return rows


def count_outcomes(warehouse: Warehouse, settings: Settings, clock: Clock, model: str) -> list[dict[str, Any]]:
    """:func:`measure_outcomes` for every month up to the last complete day; settled months are not counted again.

    Hits are stored day by day, because the lists they are counted on are dropped in time; what is returned are months.
    """
    block, now = settings.model(model), clock.now()
    known = warehouse.rows("outcomes", where="model = ?", params=[model])
    if block.outcome.unit == "hits":
        known = _count_days(warehouse, settings, model, known, now)
        return [row for start, end in months(block.first_day, now.date()) for row in _month_of_days(known, start, end)]
    counted = []
    for start, end in months(block.first_day, now.date()):
        rows = [row for row in known if _is(row, block, start, end)]
        settled = rows and all(row["state"] != "provisional" for row in rows)
        counted += rows if settled else measure_outcomes(warehouse, settings, model, start, end, now=now)
    return counted


def _count_days(
    warehouse: Warehouse, settings: Settings, model: str, known: Sequence[dict[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Rows of single days, those that were known and those that can be counted by now, in the settings' definition."""
    block, lists = settings.model(model), kept_lists(warehouse, model)
    day = max(_midnight(block.first_day), _midnight_after(min(made["data_cut"] for made in lists))) if lists else now
    days = {row["start"] for row in known if _is(row, block, row["start"].date(), row["start"].date() + DAY)}
    while day + DAY <= now:
        if day not in days:
            measure_outcomes(warehouse, settings, model, day.date(), day.date() + DAY, now=now)
        day += DAY
    rows = warehouse.rows("outcomes", where="model = ?", params=[model])
    return [row for row in rows if _is(row, block, row["start"].date(), row["start"].date() + DAY)]


def _month_of_days(rows: Sequence[dict[str, Any]], start: date, end: date) -> Iterator[dict[str, Any]]:
    """A month's rows, one a model version, from those of its days."""
    ours = [row for row in rows if start <= row["start"].date() < end]
    for version in sorted({row["model_version"] for row in ours}):
        days = [row for row in ours if row["model_version"] == version]
        hits = sum(row["count"] for row in days)
        source = f"proxy: purchases of users with a list on {len(days)} days; never compare with added clicks"
        yield {
            **days[0], "start": _midnight(start), "end": _midnight(end), "count": hits, "low": hits, "high": hits,
            "source": source,
        }  # fmt: skip


def months(first: date, end: date) -> Iterator[tuple[date, date]]:
    """[start, end) of each calendar month from `first` to `end` (exclusive); the last may be cut short."""
    start = first.replace(day=1)
    while start < end:
        following = (start + timedelta(days=32)).replace(day=1)
        yield start, min(following, end)
        start = following


def _clicks(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime, now: datetime
) -> Iterator[dict[str, Any]]:
    versions = served_versions(warehouse, model, start, end)
    version = versions[0] if len(versions) == 1 else MIXED if versions else "none"
    settled = end + timedelta(hours=block.outcome.attribution_hours) <= now
    for name, added in added_clicks(warehouse, block, model, start, end):
        source = f"{added.treated_lookups} treated and {added.holdout_lookups} holdout lookups; bootstrap over users"
        state = "measured" if settled else "provisional"
        yield _row(block, model, version, start, end, name, (added.count, added.low, added.high), state, source)


def _catches(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime, now: datetime
) -> Iterator[dict[str, Any]]:
    for found in fraud_caught(warehouse, block, model, start, end, now):
        counts = float(found.caught), float(found.caught), float(found.caught + found.open)
        state = "measured" if found.matured and end <= now else "provisional"
        source = f"labels known by {now:%Y-%m-%d}" if state == "provisional" else "labels, matured"
        yield _row(block, model, found.model_version, start, end, found.slice, counts, state, source)


def _hits(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime, now: datetime
) -> Iterator[dict[str, Any]]:
    sums: dict[str, tuple[int, int, int]] = {}
    lists = kept_lists(warehouse, model)
    day = max(start, _midnight_after(min(made["data_cut"] for made in lists))) if lists else end
    while day + DAY <= min(end, now):
        found = day_hits(warehouse, block, model, day, lists)
        if found is not None:
            hits, purchases, days = sums.get(found.model_version, (0, 0, 0))
            sums[found.model_version] = hits + found.hits, purchases + found.purchases, days + 1
        day += DAY
    for version, (hits, purchases, days) in sorted(sums.items()):
        source = f"proxy: {purchases} purchases of users with a list on {days} days; never compare with added clicks"
        yield _row(block, model, version, start, end, ALL, (float(hits),) * 3, "proxy", source)


_MEASURES = {"added_clicks": _clicks, "fraud_caught": _catches, "hits": _hits}


def _row(
    block: ModelSettings, model: str, version: str, start: datetime, end: datetime, name: str,
    counts: tuple[float, float, float], state: str, source: str,
) -> dict[str, Any]:  # fmt: skip
    count, low, high = counts
    return {
        "model": model, "model_version": version, "start": start, "end": end, "slice": name,
        "unit": block.outcome.unit, "definition_version": block.outcome.definition_version, "count": count,
        "low": low, "high": high, "state": state, "source": source,
    }  # fmt: skip


def _is(row: dict[str, Any], block: ModelSettings, start: date, end: date) -> bool:
    return (row["start"], row["end"], row["unit"], row["definition_version"]) == (
        _midnight(start), _midnight(end), block.outcome.unit, block.outcome.definition_version,
    )  # fmt: skip


def _midnight_after(moment: datetime) -> datetime:
    """The first midnight that is not before `moment`."""
    day = _midnight(moment.astimezone(UTC).date())
    return day if day == moment else day + DAY


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
