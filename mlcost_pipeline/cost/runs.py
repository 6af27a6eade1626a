"""Run records: every stretch of billed work is on record before it starts and closed when it ends, however it ends.

Order of writing when opening: state, record, occupancy; when closing: occupancy, then the record, whose status is
what commits the end. A process that dies in between leaves a run that :func:`close_lost_runs` can still close.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy.stored import busy_of
from mlcost_pipeline.cost.heartbeat import Heartbeat
from mlcost_pipeline.cost.processes import ProcessIdentity, identify, is_alive
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.recording import PURPOSES, STAGES
from mlcost_pipeline.warehouse import Warehouse

ENDED = ("succeeded", "failed", "interrupted", "cancelled", "lost")
#: A run on another machine is given up after this many wall seconds without a heartbeat.
SILENT_SECONDS = 600.0


@dataclass
class RunHandle:
    """An open run: what its work has to say about itself."""

    run_id: str
    warehouse: Warehouse
    clock: Clock
    heartbeat: Heartbeat
    measured: dict[str, Any] = field(default_factory=dict)

    def busy(self, seconds: float, metric: str, coverage: float) -> None:
        """Busy seconds in the clock's time, how they were measured, and the share of the run that was measured."""
        self.measured |= {"busy_seconds": float(seconds), "busy_metric": metric, "busy_coverage": float(coverage)}

    def steps(self, done: int, redone: int = 0) -> None:
        """Steps executed in this run, and how many of them an earlier run had already done."""
        self.measured |= {"steps_done": int(done), "steps_redone": int(redone)}

    def waited_for_data(self, seconds: float) -> None:
        """Seconds of the clock in which the work waited for data."""
        self.measured |= {"data_wait_seconds": float(seconds)}

    def watch(self, pid: int) -> None:
        """The work is done by process `pid`: the run is lost when that process is gone."""
        self.heartbeat.watch(pid)

    def close(self, *, status: str, cause: str | None = None, ended_at: datetime | None = None) -> None:
        """End the run with what it has measured itself; busy time is else what its heartbeats measured."""
        end = ended_at or self.clock.now()
        self.heartbeat.stop()
        close_run(self.warehouse, self.clock, self.run_id, status=status, cause=cause, ended_at=end, **self.measured)


def open_run(
    warehouse: Warehouse,
    clock: Clock,
    *,
    model: str,
    stage: str,
    purpose: str,
    resource_id: str,
    asset: str | None = None,
    partition: str | None = None,
    share_milli: int = 1000,
    market: str | None = None,
    pool: str | None = None,
    price: Decimal | None = None,
    model_version: str | None = None,
    orchestrator_run_id: str | None = None,
    run_id: str | None = None,
    job_id: str | None = None,
    attempt: int | None = None,
    started_at: datetime | None = None,
    code_version: str | None = None,
    pid: int | None = None,
    gpus: bool | Sequence[str] = False,
) -> RunHandle:
    """Put a run on record before its work begins, and start its heartbeat.

    Opening a run that still runs, or was given up as lost, attaches to it again and keeps its start. `price` is money
    an hour for the whole resource; `pid` the process that does the work (default: this one); `gpus` that it works on
    GPUs: all that it sees, or these (see ``cost.busy``).

    Raises:
        JobError: stage or purpose is unknown, or the run has already ended.
    """
    _check_words(stage, purpose, job_id, attempt, share_milli)
    watched = identify(pid)
    run_id = run_id or (f"{job_id}/{attempt}" if purpose == "retrain" else f"{stage}-{uuid.uuid4().hex[:16]}")
    heartbeat = Heartbeat(warehouse.state, clock, run_id, watched, gpus=gpus, share_milli=share_milli)
    record: dict[str, Any] = {
        "run_id": run_id, "job_id": job_id, "attempt": attempt, "model": model, "model_version": model_version,
        "stage": stage, "purpose": purpose, "asset": asset, "partition": partition, "market": market, "pool": pool,
        "price": price, "started_at": (started_at or clock.now()).astimezone(UTC), "status": "running",
        "orchestrator_run_id": orchestrator_run_id, "code_version": code_version,
    }  # fmt: skip
    found = find_run(warehouse, run_id)
    if found is not None:
        record = _attached(warehouse, found)
    hold = {"resource_id": resource_id, "share_milli": share_milli, "model": model}
    _put_on_record(warehouse, record, {**hold, "heartbeat_at": clock.now().isoformat()}, watched)
    heartbeat.start(record["started_at"])
    return RunHandle(run_id, warehouse, clock, heartbeat)


def close_run(
    warehouse: Warehouse,
    clock: Clock,
    run_id: str,
    *,
    status: str,
    cause: str | None = None,
    ended_at: datetime | None = None,
    busy_seconds: float | None = None,
    busy_metric: str | None = None,
    busy_coverage: float | None = None,
    steps_done: int | None = None,
    steps_redone: int | None = None,
    data_wait_seconds: float | None = None,
    model_version: str | None = None,
) -> None:
    """End a run. A run that has ended stays as it ended (so a repeat is a no-op), unless it was given up as lost.

    Busy time that is not given is what the heartbeats measured, with the share of the run that they covered.

    Raises:
        JobError: no such run, or an unknown status.
    """
    if status not in ENDED:
        raise JobError(f"run {run_id}: status {status!r} ends no run; allowed: {', '.join(ENDED)}")
    record = find_run(warehouse, run_id)
    if record is None:
        raise JobError(f"run {run_id}: is not on record; open it with open_run before closing it")
    if record["status"] not in ("running", "lost") or record["status"] == status:
        return
    stored = warehouse.state.get(f"runs/{run_id}")
    held = stored.value if stored else {}
    end = max(record["started_at"], (ended_at or clock.now()).astimezone(UTC))
    if busy_seconds is None:
        measured = _measured(record, held, end)
    else:
        measured = {"busy_seconds": busy_seconds, "busy_metric": busy_metric, "busy_coverage": busy_coverage}
    if held:
        _occupy(warehouse, record, held, end=end)
    final = {
        **record, **measured, "status": status, "ended_at": end, "cause": cause[:500] if cause else None,
        "steps_done": steps_done if steps_done is not None else record["steps_done"],
        "steps_redone": steps_redone if steps_redone is not None else record["steps_redone"],
        "model_version": model_version or record["model_version"],
        "data_wait_seconds": data_wait_seconds if data_wait_seconds is not None else record["data_wait_seconds"],
    }  # fmt: skip
    warehouse.append("run_records", [final])


@contextmanager
def record_run(
    warehouse: Warehouse,
    clock: Clock,
    *,
    model: str,
    stage: str,
    purpose: str,
    resource_id: str,
    asset: str | None = None,
    partition: str | None = None,
    share_milli: int = 1000,
    market: str | None = None,
    pool: str | None = None,
    price: Decimal | None = None,
    model_version: str | None = None,
    orchestrator_run_id: str | None = None,
    run_id: str | None = None,
    job_id: str | None = None,
    attempt: int | None = None,
    gpus: bool | Sequence[str] = False,
) -> Iterator[RunHandle]:
    """Record the work of the ``with`` block as one run: `succeeded`, `failed` with what went wrong, or `cancelled`.

    >>> with record_run(warehouse, clock, model="fraud", stage="features", purpose="build", resource_id="w1") as run:
    ...     run.steps(done=build())                                   # doctest: +SKIP
    """
    handle = open_run(
        warehouse, clock, model=model, stage=stage, purpose=purpose, resource_id=resource_id, asset=asset,
        partition=partition, share_milli=share_milli, market=market, pool=pool, price=price,
        model_version=model_version, orchestrator_run_id=orchestrator_run_id, run_id=run_id, job_id=job_id,
        attempt=attempt, gpus=gpus,
    )  # fmt: skip
    try:
        yield handle
    except BaseException as error:
        # What is no Exception is somebody's wish that the work should stop, not a fault of it.
        status = "failed" if isinstance(error, Exception) else "cancelled"
        handle.close(status=status, cause=f"{type(error).__name__}: {error}")
        raise
    handle.close(status="succeeded")


def close_lost_runs(warehouse: Warehouse, clock_of: Callable[[str], Clock]) -> list[str]:
    """Close runs whose process is gone: status `lost`, ended at their last heartbeat. Returns their ids, sorted.

    A running record without a state object was made by somebody else (an import) and is left to them.
    """
    lost = []
    for record in warehouse.rows("run_records", where="status = 'running'"):
        stored = warehouse.state.get(f"runs/{record['run_id']}")
        if stored is None or not _is_lost(stored.value, clock_of(record["model"])):
            continue
        seen, cause = datetime.fromisoformat(stored.value["heartbeat_at"]), "its process is gone"
        close_run(warehouse, clock_of(record["model"]), record["run_id"], status="lost", ended_at=seen, cause=cause)
        lost.append(str(record["run_id"]))
    return sorted(lost)


def find_run(warehouse: Warehouse, run_id: str) -> dict[str, Any] | None:
    """The record of one run as it stands, or None."""
    found = warehouse.rows("run_records", where="run_id = ?", params=[run_id])
    return found[0] if found else None


def runs(warehouse: Warehouse, model: str | None = None) -> list[dict[str, Any]]:
    """Run records as they stand, of one model or of all, by start and id."""
    where, params = (None, []) if model is None else ("model = ?", [model])
    return sorted(
        warehouse.rows("run_records", where=where, params=params), key=lambda r: (r["started_at"], r["run_id"])
    )


def _check_words(stage: str, purpose: str, job_id: str | None, attempt: int | None, share_milli: int) -> None:
    if stage not in STAGES:
        raise JobError(f"stage {stage!r} is unknown; allowed: {', '.join(STAGES)}")
    if purpose not in PURPOSES:
        raise JobError(f"purpose {purpose!r} is unknown; allowed: {', '.join(PURPOSES)}")
    if (purpose == "retrain") != (job_id is not None and attempt is not None):
        raise JobError("a run of purpose retrain has a job_id and an attempt, every other has neither")
    if share_milli < 1:
        raise JobError(f"share_milli {share_milli}: a run holds at least one thousandth of its resource")


def _attached(warehouse: Warehouse, found: dict[str, Any]) -> dict[str, Any]:
    """The record to go on with when a run is opened again."""
    run_id, status = found["run_id"], found["status"]
    if status == "running":
        return found
    if status != "lost":
        raise JobError(f"run {run_id}: has already ended as {status}; new work needs a run id of its own")
    # Rows never change and equal rows are one row, so each return from `lost` says the how-manieth it is.
    stored = warehouse.state.update(
        f"runs/{run_id}", lambda value: {**(value or {}), "returns": int((value or {}).get("returns", 0)) + 1}
    )
    cause = f"was given up as lost and is back ({stored.value['returns']})"
    return {**found, "status": "running", "ended_at": None, "cause": cause}


def _put_on_record(
    warehouse: Warehouse, record: dict[str, Any], hold: dict[str, Any], watched: ProcessIdentity
) -> None:
    """State, record, occupancy; a run that is opened again goes on holding what it held."""
    stored = warehouse.state.update(
        f"runs/{record['run_id']}", lambda value: {**hold, **(value or {}), "process": watched.as_json()}
    )
    warehouse.append("run_records", [record])
    _occupy(warehouse, record, stored.value, end=None)


def _occupy(warehouse: Warehouse, record: dict[str, Any], held: dict[str, Any], *, end: datetime | None) -> None:
    resource = {"resource_id": held["resource_id"], "share_milli": held["share_milli"]}
    warehouse.append("occupancy", [{"run_id": record["run_id"], "start": record["started_at"], "end": end, **resource}])


def _measured(record: dict[str, Any], held: dict[str, Any], end: datetime) -> dict[str, Any]:
    found = busy_of(held, (end - record["started_at"]) / timedelta(seconds=1))
    if found is None:
        return {"busy_seconds": None, "busy_metric": None, "busy_coverage": None}
    return {"busy_seconds": found.seconds, "busy_metric": found.metric, "busy_coverage": found.coverage}


def _is_lost(held: dict[str, Any], clock: Clock) -> bool:
    if (alive := is_alive(ProcessIdentity.from_json(held["process"]))) is not None:
        return not alive
    silent = (clock.now() - datetime.fromisoformat(held["heartbeat_at"])) / timedelta(seconds=1)
    return clock.wall_seconds(silent) > SILENT_SECONDS
