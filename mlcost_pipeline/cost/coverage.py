"""How much of a month its outcomes cover: a whole month's spend over half a month's outcomes would be no unit cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from mlcost_pipeline.cost.counted import month_bounds
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.warehouse import Warehouse

#: A prediction is dated the end of the day it speaks of, so the day is the one before.
_DAYS = """
SELECT (SELECT count(DISTINCT date_trunc('day', predicted_at - INTERVAL 1 MICROSECOND)) FROM predictions
  WHERE model = $1 AND predicted_at > $2 AND predicted_at <= $3) AS counted,
 (SELECT count(DISTINCT date_trunc('day', happened_at)) FROM transactions
  WHERE happened_at >= $2 AND happened_at < $3) AS wanted
"""


class Covered(NamedTuple):
    """Days whose outcomes were counted, and days that had something to count."""

    counted: int
    wanted: int

    @property
    def whole(self) -> bool:
        return self.counted >= self.wanted


def covered(warehouse: Warehouse, block: ModelSettings, model: str, period: str, now: datetime) -> Covered | None:
    """The scored days of a scoring model's month, up to the last complete day; None for models that score nothing."""
    if block.task != "scoring":
        return None
    start, end = month_bounds(period)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC)
    found = warehouse.query(
        _DAYS, [model, start, min(end, midnight)], tables=["predictions", "transactions"]
    ).to_pylist()[0]
    return Covered(int(found["counted"]), int(found["wanted"]))
