"""What earlier jobs of a model took: the work and the changeover to expect of the next one.

Where safety depends on them, the 95th percentile is taken; with few jobs that is the largest.
"""

from __future__ import annotations

import math
from typing import Any

from mlcost_pipeline.warehouse import Warehouse

KEPT = 20
QUANTILE = 0.95


def expected_work_seconds(warehouse: Warehouse, model: str) -> float | None:
    """Useful seconds (of the model's clock) that a job needs at most, mostly; None before the first job ended."""
    return _high(warehouse, model, "work_seconds")


def expected_load_seconds(warehouse: Warehouse, model: str) -> float | None:
    """Seconds from the end of boot to the first step: imports, data, resume; None before the first job ended."""
    return _high(warehouse, model, "load_seconds")


def note_job(warehouse: Warehouse, model: str, job_id: str, *, work_seconds: float, load_seconds: float) -> None:
    """Remember what a finished job took; the first word on a job stands."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        jobs = (value or {}).get("jobs", [])
        if any(job["job_id"] == job_id for job in jobs):
            return {"jobs": jobs}
        new = {"job_id": job_id, "work_seconds": work_seconds, "load_seconds": load_seconds}
        return {"jobs": [*jobs, new][-KEPT:]}

    warehouse.state.update(f"predecessors/{model}", change)


def high_quantile(values: list[float]) -> float | None:
    """The smallest value that at least 95 % of `values` do not exceed."""
    if not values:
        return None
    return sorted(values)[math.ceil(QUANTILE * len(values)) - 1]


def _high(warehouse: Warehouse, model: str, field: str) -> float | None:
    stored = warehouse.state.get(f"predecessors/{model}")
    return high_quantile([float(job[field]) for job in stored.value["jobs"]] if stored else [])
