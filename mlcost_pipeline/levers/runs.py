"""Training runs of a model as the run records tell them: hours, money at their price, work done and done again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.levers.spending import as_money
from mlcost_pipeline.warehouse import Warehouse

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class TrainingRun:
    """One ended attempt; `busy_hours` is None where nobody measured it."""

    run_id: str
    job_id: str
    market: str | None
    started_at: datetime
    hours: float
    price: Decimal | None
    busy_hours: float | None
    redone_share: float

    @property
    def cost(self) -> Decimal | None:
        """Hours at the run's own price, None where no price is on record."""
        return None if self.price is None else as_money(Decimal(repr(self.hours)) * self.price)


def training_runs(warehouse: Warehouse, model: str) -> list[TrainingRun]:
    """All ended retraining attempts, oldest first."""
    rows = warehouse.rows(
        "run_records", where="model = ? AND purpose = 'retrain' AND ended_at IS NOT NULL", params=[model]
    )
    return sorted(map(_run, rows), key=lambda run: (run.started_at, run.run_id))


def cost_of(runs: Iterable[TrainingRun]) -> Decimal | None:
    """Money of several runs; None if there is none or one has no price."""
    costs = [run.cost for run in runs]
    return None if not costs or None in costs else sum((c for c in costs if c is not None), Decimal(0))


def _run(row: dict[str, Any]) -> TrainingRun:
    done, redone = row["steps_done"] or 0, row["steps_redone"] or 0
    return TrainingRun(
        run_id=row["run_id"],
        job_id=row["job_id"],
        market=row["market"],
        started_at=row["started_at"],
        hours=(row["ended_at"] - row["started_at"]) / HOUR,
        price=row["price"],
        busy_hours=None if row["busy_seconds"] is None else row["busy_seconds"] / 3600,
        redone_share=redone / done if done else 0.0,
    )
