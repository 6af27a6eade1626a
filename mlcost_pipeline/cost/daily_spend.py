"""A model's spend by day: what the ledgers in force say, and the price book's estimate of what no bill has reached.

Charges longer than a day (a month's fee) and charges that follow others (tax, support) belong to no day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import FINAL, books, closed, left_out, versions_of
from mlcost_pipeline.cost.counted import month_bounds
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.cost.prices import PriceBook
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_DAY = timedelta(days=1)

# One day in a zone with summer time has up to 25 hours.
_BY_DAY = """
WITH mine AS (SELECT delivery_id, slot_id, method = 'derived' AS derived, run_id IS NOT NULL AS of_run,
    sum(effective) AS effective FROM cost_ledger WHERE model = ? AND currency = ? GROUP BY ALL),
placed AS (SELECT m.*, CAST(s.charge_start AS DATE) AS day,
    s.charge_end - s.charge_start <= INTERVAL 25 HOUR AS short
  FROM mine m JOIN billing_slots s USING (delivery_id, slot_id))
SELECT CASE WHEN short AND NOT derived THEN day END AS day, derived, of_run, sum(effective) AS effective
FROM placed GROUP BY ALL ORDER BY ALL
"""

# Of a run that the month's bill names, the time after the last charge for the resource; of any other, all of its time.
# A bill that is final reaches all that it ever will.
_NOT_REACHED = """
WITH paid AS (SELECT DISTINCT run_id FROM cost_ledger WHERE run_id IS NOT NULL),
until AS (SELECT lower(resource_id) AS resource, max(charge_end) AS charge_end FROM billing_slots
  WHERE category = 'Usage' AND charge_end - charge_start <= INTERVAL 25 HOUR AND resource_id IS NOT NULL GROUP BY ALL)
SELECT r.run_id, r.price, r.pool, o.resource_id, o.share_milli,
  CASE WHEN p.run_id IS NULL THEN o.start ELSE greatest(o.start, u.charge_end) END AS start,
  coalesce(o."end", r.ended_at, ?) AS "end"
FROM occupancy o JOIN run_records r USING (run_id) LEFT JOIN paid p USING (run_id)
LEFT JOIN until u ON u.resource = lower(o.resource_id)
WHERE r.model = ? AND o.start < ? AND coalesce(o."end", r.ended_at, ?) > ?
  AND (p.run_id IS NULL OR (u.charge_end IS NOT NULL AND NOT ?)) ORDER BY r.run_id, o.resource_id, o.start
"""

_REACHED = """
SELECT max(charge_end) AS until FROM billing_slots
WHERE category = 'Usage' AND charge_end - charge_start <= INTERVAL 25 HOUR
"""


@dataclass(frozen=True)
class DailySpend:
    """Spend of one billing period by UTC day. What has no day is in `undated` and `derived`.

    `billed_until` is the end of the newest hour that any bill of the period charges for; bills that are `final` do not
    change any more. `left_out` says of which months' bills nothing is in it, for no ledger stands on them.
    """

    billed: Mapping[date, Decimal]
    without_run: Mapping[date, Decimal]  # the part of `billed` that no run record explains, so that no estimate will
    estimated: Mapping[date, Decimal]
    undated: Decimal
    derived: Decimal
    unpriced_runs: int
    billed_until: datetime | None
    final: bool
    left_out: tuple[str, ...] = ()


def daily_spend(warehouse: Warehouse, settings: Settings, model: str, period: str, now: datetime) -> DailySpend:
    """The spend of a model in one billing period, "YYYY-MM", as it is known at `now`."""
    every = books(warehouse, settings.currency, period)
    versions = versions_of(closed(warehouse, every))
    rows = warehouse.query(
        _BY_DAY, [model, settings.currency], tables=["cost_ledger", "billing_slots"], versions=versions
    ).to_pylist()
    [reached] = warehouse.query(_REACHED, tables=["billing_slots"], versions=versions).to_pylist()
    final = bool(every) and all(book.standing == FINAL for book in every)
    estimated, unpriced = _estimated(warehouse, settings, model, period, now, final, versions)
    return DailySpend(
        billed=_by_day(rows),
        without_run=_by_day([row for row in rows if not row["of_run"]]),
        estimated=estimated,
        undated=money_sum(row["effective"] for row in rows if row["day"] is None and not row["derived"]),
        derived=money_sum(row["effective"] for row in rows if row["derived"]),
        unpriced_runs=unpriced,
        billed_until=reached["until"],
        final=final,
        left_out=left_out(every, settings),
    )


def together(before: DailySpend, after: DailySpend) -> DailySpend:
    """Two periods as one stretch of days."""
    return DailySpend(
        _added(before.billed, after.billed),
        _added(before.without_run, after.without_run),
        _added(before.estimated, after.estimated),
        money_sum([before.undated, after.undated]),
        money_sum([before.derived, after.derived]),
        before.unpriced_runs + after.unpriced_runs,
        after.billed_until or before.billed_until,
        before.final and after.final,
        (*before.left_out, *after.left_out),
    )


def _added(one: Mapping[date, Decimal], other: Mapping[date, Decimal]) -> dict[date, Decimal]:
    days = sorted({*one, *other})
    return {day: money_sum([one.get(day, Decimal(0)), other.get(day, Decimal(0))]) for day in days}


def _by_day(rows: Sequence[Mapping[str, Any]]) -> dict[date, Decimal]:
    found: dict[date, list[Decimal]] = {}
    for row in rows:
        if row["day"] is not None:
            found.setdefault(row["day"], []).append(row["effective"])
    return {day: money_sum(amounts) for day, amounts in sorted(found.items())}


def _estimated(
    warehouse: Warehouse, settings: Settings, model: str, period: str, now: datetime, final: bool,
    versions: Mapping[str, Sequence[tuple[str, str]]],
) -> tuple[dict[date, Decimal], int]:  # fmt: skip
    """Hours held that no bill has reached × price × share, by day; and how many runs have no price."""
    first, end_of_month = month_bounds(period)
    last = min(now, end_of_month)
    tables = ["cost_ledger", "billing_slots", "occupancy", "run_records"]
    params = [now, model, last, now, first, final]
    holds = warehouse.query(_NOT_REACHED, params, tables=tables, versions=versions).to_pylist()
    book = PriceBook.of(warehouse, settings, {hold["resource_id"] for hold in holds})
    found, unpriced = dict[date, Decimal](), set[str]()
    for hold in holds:
        start, end = max(first, hold["start"]), min(last, hold["end"])
        while start < end:
            until = min(end, datetime.combine(start.date() + _DAY, time(), tzinfo=UTC))
            price = book.of_hold(hold, hold, start, until)
            if price is None:
                unpriced.add(hold["run_id"])
                break
            found[start.date()] = found.get(start.date(), Decimal(0)) + price.amount
            start = until
    return {day: amount.quantize(UNIT) for day, amount in sorted(found.items())}, len(unpriced)
