"""Fraud cases caught: payments alerted at the operating threshold whose label, as known by now, says fraud.

A label is looked at only once it is known. Until every alerted payment has one the count can only grow, so it is
provisional, from what is known to what it would be if every open alert were fraud.

An alert is made when its scoring run begins, and not before the day it speaks of is over. One that was made after the
label was known caught nothing. The time is the run's record's, for a prediction is the same whenever it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.warehouse import Warehouse

# Of several predictions for one payment the first is the one that somebody acted on.
_CAUGHT = """
WITH acted AS (
  SELECT p.entity_id, p.model_version, p.alerted, t.merchant_category,
    greatest(p.predicted_at, r.started_at) AS said_at
  FROM predictions p JOIN transactions t ON t.transaction_id = p.entity_id LEFT JOIN run_records r USING (run_id)
  WHERE p.model = ? AND t.happened_at >= ? AND t.happened_at < ?
  QUALIFY row_number() OVER (PARTITION BY p.entity_id ORDER BY p.predicted_at, p.model_version) = 1
), known AS (
  SELECT transaction_id, arg_max(is_fraud, known_at) AS is_fraud,
    min(known_at) FILTER (is_fraud) AS fraud_known_at
  FROM labels WHERE known_at <= ? GROUP BY transaction_id
)
SELECT a.model_version, a.merchant_category,
  count(*) FILTER (a.alerted AND k.is_fraud AND k.fraud_known_at >= a.said_at) AS caught,
  count(*) FILTER (a.alerted AND k.is_fraud AND k.fraud_known_at < a.said_at) AS late,
  count(*) FILTER (a.alerted AND k.is_fraud IS NULL) AS open
FROM acted a LEFT JOIN known k ON k.transaction_id = a.entity_id
GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class Caught:
    """Cases of one version and slice: known to be fraud, alerted but not known yet, alerted when it was known."""

    model_version: str
    slice: str
    caught: int
    open: int
    matured: bool
    late: int = 0


def fraud_caught(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime, now: datetime
) -> list[Caught]:
    """Cases caught among payments of [start, end) as known at `now`, for all and by merchant category."""
    rows = warehouse.query(
        _CAUGHT, [model, start, end, now], tables=["predictions", "transactions", "labels", "run_records"]
    ).to_pylist()
    matured = end + timedelta(days=block.windows.label_delay_days) <= now
    found = []
    for version in sorted({row["model_version"] for row in rows}):
        ours = [row for row in rows if row["model_version"] == version]
        slices = [("all", ours), *((f"merchant_category={row['merchant_category']}", [row]) for row in ours)]
        for name, chosen in slices:
            caught, waiting, late = (sum(row[key] for row in chosen) for key in ("caught", "open", "late"))
            found.append(Caught(version, name, caught, waiting, matured or waiting == 0, late))
    return found
