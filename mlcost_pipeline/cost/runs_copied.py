"""Run records of what an orchestrator ran: each step of each run once, told from plain facts.

A step that recorded itself (by its orchestrator's run id and asset) gets no second record; if it was left open, it is
closed as its orchestrator says it ended. Whatever is written is found again by its id, so facts may come any number of
times, in any order, and the reader's cursor may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.runs import STAGES, close_run, find_run
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: Whose a run is that names no model: kept, so that its cost is still found by asset and partition.
UNASSIGNED = "unassigned"
STATUSES = ("succeeded", "failed", "cancelled", "lost")


@dataclass(frozen=True)
class StepFacts:
    """One step of a run that has ended, in the orchestrator's wall time (UTC).

    `source` names the orchestrator (``dagster``, ``dagster:main``); a step that makes several assets is one fact each.
    """

    source: str
    run_id: str
    step: str
    started_at: datetime
    ended_at: datetime
    status: str
    asset: str | None = None
    partition: str | None = None
    model: str | None = None
    stage: str | None = None
    cause: str | None = None
    resource_id: str | None = None
    share_milli: int = 1000
    code_version: str | None = None
    inputs_version: str | None = None
    assets_of_step: int = field(default=1)

    @property
    def record_id(self) -> str:
        """The id of this step's own record, the same whenever it is made."""
        several = f":{self.asset}" if self.assets_of_step > 1 and self.asset else ""
        return f"{self.source}:{self.run_id}:{self.step}{several}"


def copy_steps(
    warehouse: Warehouse, settings: Settings, facts: Iterable[StepFacts], *, own_clock: bool = True
) -> list[str]:
    """Write what is missing and close what was left open; returns the ids of the records that were touched.

    `own_clock` maps times onto the model's clock (for work of this pipeline); without it they are as they are.
    """
    touched = []
    for fact in facts:
        own = _recorded_itself(warehouse, fact)
        if own:
            touched += [run_id for run_id in own if _closed(warehouse, settings, run_id, fact)]
        elif find_run(warehouse, fact.record_id) is None:
            _write(warehouse, settings, fact, own_clock)
            touched.append(fact.record_id)
    return touched


def _recorded_itself(warehouse: Warehouse, fact: StepFacts) -> list[str]:
    """Records that the step's own work wrote: of its asset, or attempts of the job that it waited for."""
    rows = warehouse.rows(
        "run_records",
        columns=["run_id"],
        where="orchestrator_run_id = ? AND coalesce(source, 'mlcost') NOT LIKE 'dagster%' "
        "AND (asset = ? OR (asset IS NULL AND purpose = 'retrain' AND ? LIKE '%candidate'))",
        params=[fact.run_id, fact.asset, fact.asset or ""],
    )
    return [str(row["run_id"]) for row in rows]


def _closed(warehouse: Warehouse, settings: Settings, run_id: str, fact: StepFacts) -> bool:
    """Close a record that is still open although its step has ended badly; attempts have a supervisor that does."""
    record = find_run(warehouse, run_id)
    if record is None or record["status"] != "running" or record["purpose"] == "retrain":
        return False
    clock = model_clock(warehouse, settings, record["model"])
    ended = max(record["started_at"], _on(clock, fact.ended_at))
    status = fact.status if fact.status != "succeeded" else "lost"  # a step that succeeded would have closed its own
    close_run(warehouse, clock, run_id, status=status, cause=fact.cause, ended_at=ended)
    return True


def _write(warehouse: Warehouse, settings: Settings, fact: StepFacts, own_clock: bool) -> None:
    """The hold first: a record that is there has its hold."""
    model = fact.model or UNASSIGNED
    clock = model_clock(warehouse, settings, model) if own_clock else Clock()
    start, end = (_on(clock, at) if own_clock else at.astimezone(UTC) for at in (fact.started_at, fact.ended_at))
    end = max(start, end)
    if fact.resource_id is not None:
        hold = {"run_id": fact.record_id, "resource_id": fact.resource_id, "start": start, "end": end}
        warehouse.append("occupancy", [{**hold, "share_milli": fact.share_milli}])
    warehouse.append("run_records", [_record(fact, model, start, end)])


def _record(fact: StepFacts, model: str, start: datetime, end: datetime) -> Mapping[str, Any]:
    stage = fact.stage if fact.stage in STAGES else "evaluation"
    purpose = {"training": "trial", "serving": "batch", "features": "build"}.get(stage, "measure")
    return {
        "run_id": fact.record_id, "model": model, "stage": stage, "purpose": purpose, "asset": fact.asset,
        "partition": fact.partition, "started_at": start, "ended_at": end, "status": fact.status,
        "cause": fact.cause[:500] if fact.cause else None, "orchestrator_run_id": fact.run_id,
        "code_version": fact.code_version, "source": fact.source, "inputs_version": fact.inputs_version,
    }  # fmt: skip


def _on(clock: Clock, wall: datetime) -> datetime:
    """A wall time on a model's clock, which may stand elsewhere and run faster."""
    passed = (datetime.now(UTC) - wall.astimezone(UTC)) / timedelta(seconds=1)
    return clock.now() - timedelta(seconds=clock.rate * passed)
