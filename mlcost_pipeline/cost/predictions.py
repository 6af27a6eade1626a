"""How many predictions a model made: payments scored, or lookups answered from its lists."""

from __future__ import annotations

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

# A prediction is dated the end of the day it speaks of, so the last day of a month is dated the first of the next.
_SCORED = """
SELECT strftime(predicted_at - INTERVAL 1 MICROSECOND, '%Y-%m') AS period, count(*) AS n FROM predictions
WHERE model = ? GROUP BY period
"""
_LOOKED_UP = """
SELECT strftime(looked_up_at, '%Y-%m') AS period, count(*) AS n FROM lookups
WHERE model IS NULL OR model = ? GROUP BY period
"""


def predictions_by_month(warehouse: Warehouse, settings: Settings, model: str) -> dict[str, int]:
    """Payments scored (scoring models, and models of elsewhere) or lookups answered (recommendations), by month."""
    block = settings.models.get(model)
    recommends = block is not None and block.task == "recommendation"
    sql, table = (_LOOKED_UP, "lookups") if recommends else (_SCORED, "predictions")
    found = warehouse.query(sql, [model], tables=[table])
    return {row["period"]: int(row["n"]) for row in found.to_pylist()}
