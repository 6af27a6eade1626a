"""The month whose money the questions are about: what the model cost in it, by stage and per outcome."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

from mlcost_pipeline.cost.books import books, closed, versions_of
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.cost.unit_cost import UnitCost, unit_cost
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_EXACT = Context(prec=60)
DAY = timedelta(days=1)


def month_of(warehouse: Warehouse, settings: Settings, model: str) -> UnitCost | None:
    """The newest month of which a final bill names the model; else of any bill; else of its runs, as an estimate.

    A month with a bill that no ledger stands on is none of these, for it would look cheap.
    """
    every = books(warehouse, settings.currency)
    without = {book.bill.period for book in every if book.version is None}
    bills = [book for book in closed(warehouse, every) if book.bill.period not in without]
    named = warehouse.query(
        "SELECT DISTINCT account, period FROM cost_ledger WHERE model = ?",
        [model], tables=["cost_ledger"], versions=versions_of(bills),
    )  # fmt: skip
    mine = {(row["account"], row["period"]) for row in named.to_pylist()}
    found = [book.bill for book in bills if (book.bill.account, book.bill.period) in mine]
    periods = {bill.period for bill in found if bill.state == "final"} or {bill.period for bill in found}
    if not periods:
        ended = warehouse.rows("run_records", where="model = ? AND ended_at IS NOT NULL", params=[model])
        periods = {row["started_at"].strftime("%Y-%m") for row in ended} - without
    return unit_cost(warehouse, settings, model, max(periods)) if periods else None


def stage_cost(by_stage: Mapping[str, Decimal], stage: str) -> Decimal:
    """Money of one stage; zero where nothing was spent on it."""
    return by_stage.get(stage, Decimal(0))


def days_known(period: str, first_day: date, now: datetime) -> float:
    """Days of a month between the first day of data and now."""
    year, month = map(int, period.split("-"))
    start = datetime(year, month, 1, tzinfo=UTC)
    end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    begin = max(start, datetime.combine(first_day, time(), UTC))
    length: timedelta = min(end, now) - begin
    return max(0.0, length / DAY)


def as_money(amount: Decimal) -> Decimal:
    """Rounded to the 18 decimals that tables keep."""
    return amount.quantize(UNIT, context=_EXACT)


def facts_of(month: UnitCost) -> dict[str, Any]:
    """Where the money of an answer comes from."""
    return {"period": month.period, "provisional": month.provisional, "estimated": str(month.estimated)}
