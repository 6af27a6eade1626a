"""How much of a month its outcomes cover: a whole month's spend over half a month's outcomes would be no unit cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from mlcost_pipeline.cost.counted import Counted
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.warehouse import Warehouse


class Covered(NamedTuple):
    """Days whose outcomes were counted, days that had something to count, and what counting them takes."""

    counted: int
    wanted: int
    how: str = "scored"

    @property
    def whole(self) -> bool:
        return self.counted >= self.wanted

    @property
    def reason(self) -> str:
        """Why a month that is not whole has no cost per outcome, for a person."""
        return f"only {self.counted} of {self.wanted} days were {self.how}"


# A prediction is dated the end of the day it speaks of, so the day is the one before.
_SCORED = """
SELECT day, bool_or(counted) AS counted FROM (
  SELECT CAST(happened_at AS DATE) AS day, false AS counted FROM transactions
  UNION ALL SELECT CAST(predicted_at - INTERVAL 1 MICROSECOND AS DATE), true FROM predictions WHERE model = ?)
GROUP BY day HAVING NOT bool_and(counted) ORDER BY day
"""
_SERVED = """
SELECT day, bool_or(counted) AS counted FROM (
  SELECT CAST(happened_at AS DATE) AS day, false AS counted FROM interactions
  UNION ALL SELECT CAST(looked_up_at AS DATE), true FROM lookups
  WHERE arm = 'treated' AND (model IS NULL OR model = ?))
GROUP BY day HAVING NOT bool_and(counted) ORDER BY day
"""
_BOUGHT = """
SELECT DISTINCT CAST(happened_at AS DATE) AS day, true AS counted FROM interactions
WHERE user_id IS NOT NULL AND list_contains(?, kind) ORDER BY day
"""


_DAYS = {
    "fraud_caught": (_SCORED, ("transactions", "predictions"), "scored"),
    "added_clicks": (_SERVED, ("interactions", "lookups"), "served"),
    "hits": (_BOUGHT, ("interactions",), "counted"),
}


def covered_by_month(
    warehouse: Warehouse, block: ModelSettings, model: str, outcomes: Mapping[str, Counted], now: datetime
) -> dict[str, Covered]:
    """Of each month the days that had something to count, up to the last complete day, and those that were counted.

    A day counts where it lies in a stretch that the month's outcome was measured on, and where the model had a say in
    it: its payments were scored, or its lists were looked up. What had something to count are days with payments
    (scoring), with anything users did (added clicks) or bought (hits).
    """
    sql, tables, how = _DAYS[block.outcome.unit]
    param = list(block.positive_kinds) if block.outcome.unit == "hits" else model
    found: dict[str, tuple[int, int]] = {}
    for row in warehouse.query(sql, [param], tables=tables).to_pylist():
        day: date = row["day"]
        if not block.first_day <= day < now.date():
            continue
        period = f"{day:%Y-%m}"
        counted, wanted = found.get(period, (0, 0))
        found[period] = counted + (row["counted"] and _measured(outcomes.get(period), day)), wanted + 1
    return {period: Covered(*days, how) for period, days in found.items()}


def _measured(outcome: Counted | None, day: date) -> bool:
    if outcome is None:
        return False
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return any(since <= start and start + timedelta(days=1) <= until for since, until in outcome.windows)
