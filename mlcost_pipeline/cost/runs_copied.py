"""Run records of what an orchestrator ran: each step of each run once, told from plain facts.

A step that recorded itself (by its orchestrator's run id and asset) gets no second record; if it was left open, it is
closed as its orchestrator says it ended. Whatever is written is found again by its id, so facts may come any number of
times, in any order, and the reader's cursor may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.runs import close_run
from mlcost_pipeline.recording import PURPOSES, STAGES
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

#: Whose a run is that names no model: kept, so that its cost is still found by asset and partition.
UNASSIGNED = "unassigned"
#: A run's tag that names what it occupies, as the bill calls it.
RESOURCE_TAG = "mlcost/resource_id"


@dataclass(frozen=True)
class StepFacts:
    """One step of a run that has ended, in the orchestrator's wall time (UTC).

    `source` names the orchestrator (``dagster``, ``dagster:main``). A step that makes several assets or partitions is
    one fact each, of which `part` tells them apart. `job_id` and `attempt` are told of a retrain alone.
    """

    source: str
    run_id: str
    step: str
    started_at: datetime
    ended_at: datetime
    status: str
    part: str = ""
    asset: str | None = None
    partition: str | None = None
    model: str | None = None
    stage: str | None = None
    purpose: str | None = None
    job_id: str | None = None
    attempt: int = 1
    cause: str | None = None
    resource_id: str | None = None
    share_milli: int = 1000
    code_version: str | None = None
    inputs_version: str | None = None

    @property
    def record_id(self) -> str:
        """The id of this step's own record, the same whenever it is made."""
        return f"{self.source}:{self.run_id}:{self.step}{self.part}"


def how_ended(*, succeeded: bool, over: bool, cancelled: bool, cause: str | None) -> tuple[str, str | None]:
    """Status and cause of a step; one that is not over died with its run, unless that was cancelled."""
    if succeeded:
        return "succeeded", None
    if cancelled:
        return "cancelled", cause or "the run was cancelled"
    if over:
        return "failed", cause or "the step failed"
    return "lost", "its process died before the step had ended"


def versions_told(tags: Mapping[str, str], run_id: str) -> dict[str, str | None]:
    """Code and inputs version by a materialisation's tags; with no code version stated Dagster puts the run's id."""
    code = tags.get("dagster/code_version")
    inputs = sorted((key, value) for key, value in tags.items() if key.startswith("dagster/input_data_version/"))
    return {
        "code_version": None if code == run_id else code,
        "inputs_version": digest(inputs) if inputs else None,
    }


def copy_steps(warehouse: Warehouse, settings: Settings, facts: Iterable[StepFacts]) -> list[str]:
    """Write what is missing and close what was left open; returns the ids of the records that were touched.

    Times are mapped onto the model's clock, as those of the records that this pipeline's work writes itself.
    """
    told = {fact.record_id: fact for fact in facts}
    own = _recorded_themselves(warehouse, list(told.values()))
    touched = [
        str(record["run_id"])
        for name, fact in told.items()
        for record in own.get(name, [])
        if _closed(warehouse, settings, record, fact)
    ]
    stored = warehouse.rows("run_records", columns=["run_id"], where="run_id = ANY(?)", params=[list(told)])
    known = {row["run_id"] for row in stored} | set(own)
    missing = [fact for name, fact in told.items() if name not in known]
    _write(warehouse, settings, missing)
    return touched + [fact.record_id for fact in missing]


def _recorded_themselves(warehouse: Warehouse, facts: Sequence[StepFacts]) -> dict[str, list[dict[str, Any]]]:
    """By a step's id the records that its own work wrote: of its asset, or attempts of the job that it waited for."""
    rows = warehouse.rows(
        "run_records",
        where="orchestrator_run_id = ANY(?) AND coalesce(source, 'mlcost') NOT LIKE 'dagster%'",
        params=[sorted({fact.run_id for fact in facts})],
    )
    of_run: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_run.setdefault(row["orchestrator_run_id"], []).append(row)
    found = {fact.record_id: [r for r in of_run.get(fact.run_id, []) if _is_of(r, fact)] for fact in facts}
    return {name: records for name, records in found.items() if records}


def _is_of(record: Mapping[str, Any], fact: StepFacts) -> bool:
    attempt = record["asset"] is None and record["purpose"] == "retrain" and (fact.asset or "").endswith("candidate")
    return attempt or (fact.asset is not None and record["asset"] == fact.asset)


def _closed(warehouse: Warehouse, settings: Settings, record: Mapping[str, Any], fact: StepFacts) -> bool:
    """Close a record that is still open although its step has ended badly; attempts have a supervisor that does."""
    if record["status"] != "running" or record["purpose"] == "retrain":
        return False
    clock = model_clock(warehouse, settings, record["model"])
    ended = max(record["started_at"], _Mapped.of(clock).of_wall(fact.ended_at))
    status = fact.status if fact.status != "succeeded" else "lost"  # a step that succeeded would have closed its own
    close_run(warehouse, clock, str(record["run_id"]), status=status, cause=fact.cause, ended_at=ended)
    return True


def _write(warehouse: Warehouse, settings: Settings, facts: Sequence[StepFacts]) -> None:
    """The holds first: a record that is there has its hold, and a hold that is there gives its record its times."""
    if not facts:
        return
    names = [fact.record_id for fact in facts]
    held = {row["run_id"]: row for row in warehouse.rows("occupancy", where="run_id = ANY(?)", params=[names])}
    models = {fact.model or UNASSIGNED for fact in facts}
    clocks = {model: _Mapped.of(model_clock(warehouse, settings, model)) for model in models}
    holds, records = [], []
    for fact in facts:
        model, hold = fact.model or UNASSIGNED, held.get(fact.record_id)
        if hold is None:
            start, end = (clocks[model].of_wall(at) for at in (fact.started_at, fact.ended_at))
            hold = {"run_id": fact.record_id, "start": start, "end": max(start, end)}
            if fact.resource_id is not None:
                holds.append({**hold, "resource_id": fact.resource_id, "share_milli": fact.share_milli})
        records.append(record_of(fact, model, hold["start"], hold["end"]))
    warehouse.append("occupancy", holds)
    warehouse.append("run_records", records)


def record_of(fact: StepFacts, model: str, start: datetime, end: datetime) -> dict[str, Any]:
    """The run record of a step that ran from `start` to `end` by the clock of `model`."""
    stage = fact.stage if fact.stage in STAGES else "evaluation"
    by_stage = {"training": "trial", "serving": "batch", "features": "build"}.get(stage, "measure")
    purpose = fact.purpose if fact.purpose in PURPOSES else by_stage
    retrain = purpose == "retrain"
    return {
        "job_id": (fact.job_id or f"{fact.source}:{fact.run_id}") if retrain else None,
        "attempt": fact.attempt if retrain else None,
        "run_id": fact.record_id, "model": model, "stage": stage, "purpose": purpose, "asset": fact.asset,
        "partition": fact.partition, "started_at": start, "ended_at": end, "status": fact.status,
        "cause": fact.cause[:500] if fact.cause else None, "orchestrator_run_id": fact.run_id,
        "code_version": fact.code_version, "source": fact.source, "inputs_version": fact.inputs_version,
    }  # fmt: skip


@dataclass(frozen=True)
class _Mapped:
    """A model's clock, which may stand elsewhere and run faster, read once: what touches in wall time touches there."""

    clock: Clock
    wall: datetime
    there: datetime

    @classmethod
    def of(cls, clock: Clock) -> _Mapped:
        return cls(clock, datetime.now(UTC), clock.now())

    def of_wall(self, at: datetime) -> datetime:
        if self.clock.origin is None:
            return at.astimezone(UTC)
        passed = (self.wall - at.astimezone(UTC)) / timedelta(seconds=1)
        return self.there - timedelta(seconds=self.clock.rate * passed)
