"""The months whose bills may say what a run costs: those that do, and those in which it ran."""

from __future__ import annotations

from collections.abc import Sequence

from mlcost_pipeline.cost.books import Book, asking, settled_months
from mlcost_pipeline.warehouse import Warehouse


def run_months(billed_by: str = "cost_ledger") -> str:
    """SQL of `run_months` (run_id, months as a sorted list), for a WITH over ``run_records`` and `billed_by`.

    A run that began or went on in a month has a cost in that month's bill, whether or not anybody has seen it yet. Its
    last month is that of its last moment, for intervals are half open.
    """
    return f"""
run_months AS (SELECT run_id, list_sort(list(DISTINCT period)) AS months FROM (
  SELECT DISTINCT run_id, period FROM {billed_by} WHERE run_id IS NOT NULL
  UNION ALL SELECT run_id, strftime(m.month, '%Y-%m') FROM run_records, unnest(generate_series(
    date_trunc('month', started_at), greatest(started_at, coalesce(ended_at, started_at) - INTERVAL 1 MICROSECOND),
    INTERVAL 1 MONTH)) AS m(month)) GROUP BY run_id)"""


def unsettled_runs(warehouse: Warehouse, found: Sequence[Book]) -> frozenset[str]:
    """Runs whose cost may still change, for a bill of them is open, has no ledger, or is still to come."""
    sql = f"""WITH {run_months()}
        SELECT run_id FROM run_months WHERE NOT list_has_all(?::VARCHAR[], months)"""
    months = sorted(settled_months(found))
    rows = asking(warehouse, found)(sql, [months], ["cost_ledger", "run_records"])
    return frozenset(rows["run_id"].to_pylist())
