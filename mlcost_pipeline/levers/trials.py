"""Trials on record: an experiment of one lever on one model, found again instead of run again."""

from __future__ import annotations

import json
from typing import Any

from mlcost_pipeline.warehouse import Warehouse


def find_trial(warehouse: Warehouse, lever: str, model: str, trial_id: str) -> dict[str, Any] | None:
    """The trial's row with its slices as values, or None."""
    rows = warehouse.rows(
        "lever_trials", where="lever = ? AND model = ? AND trial_id = ?", params=[lever, model, trial_id]
    )
    return {**rows[0], "slices": json.loads(rows[0]["slices"])} if rows else None


def write_trial(warehouse: Warehouse, row: dict[str, Any]) -> None:
    """Put a trial on record. `slices` may hold any plain values."""
    text = json.dumps(row["slices"], sort_keys=True, separators=(",", ":"))
    warehouse.append("lever_trials", [{**row, "slices": text}])
