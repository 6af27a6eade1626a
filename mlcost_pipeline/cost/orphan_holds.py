"""Holds of resources by runs that are not on record: their time is billed, and nobody can say to whom."""

from __future__ import annotations

from mlcost_pipeline.warehouse import Warehouse

_ORPHANS = """
SELECT count(*) AS holds, count(DISTINCT run_id) AS runs, list(DISTINCT run_id ORDER BY run_id)[:3] AS first
FROM occupancy WHERE run_id NOT IN (SELECT run_id FROM run_records)"""


def orphan_holds(warehouse: Warehouse) -> str | None:
    """A sentence on occupancy that names runs without a run record; None where there is none."""
    [found] = warehouse.query(_ORPHANS, tables=["occupancy", "run_records"]).to_pylist()
    if not found["holds"]:
        return None
    named = ", ".join(found["first"]) + (", …" if found["runs"] > len(found["first"]) else "")
    holds = "1 row of occupancy names a run" if found["holds"] == 1 else f"{found['holds']} rows of occupancy name runs"
    return f"{holds} that no run record tells of ({named}): what they held is nobody's; add the runs to run_records."
