"""The runs of the shop's past, and the fleet that stands: a recommender retrained every night on four GPUs whether or
not anything changed, a fraud model every Monday, and two GPU replicas that wait all day for two peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from mlcost_pipeline.demo.files import write_parquet
from mlcost_pipeline.demo.plan import MODEL, SCORER, Plan
from mlcost_pipeline.settings import digest
from mlcost_pipeline.tables import TABLES

GPU_REPLICAS = ("serve-gpu-1", "serve-gpu-2")
CPU_REPLICA = "serve-cpu-1"
WORKER = "shop-worker"
NOTEBOOK = "dev-gpu-1"
PRICES = {"gpu": Decimal("3.06"), "gpu4": Decimal("12.24"), "cpu": Decimal("0.192"), "cpu16": Decimal("0.768")}
CAPACITY = {
    "gpu": (1000, "milli_gpu"),
    "gpu4": (4000, "milli_gpu"),
    "cpu": (4000, "milli_cpu"),
    "cpu16": (16000, "milli_cpu"),
}
_STANDING_KINDS = {**dict.fromkeys(GPU_REPLICAS, "gpu"), CPU_REPLICA: "cpu", WORKER: "cpu16"}
_UNMEASURED_DAYS = 14  # busy time of training was not measured in the beginning


@dataclass
class DayRuns:
    """What one day adds: run records, holds, resources."""

    run_records: list[dict[str, Any]] = field(default_factory=list)
    occupancy: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)


def standing_runs(plan: Plan, day: int) -> DayRuns:
    """The serving fleet on one day, past or live: it runs whatever comes, and on weekdays somebody's notebook does."""
    made, start, end = DayRuns(), plan.opening(day), plan.midnight(day + 1)
    if day == 0:
        for resource_id in (*GPU_REPLICAS, CPU_REPLICA, WORKER):
            _resource(made, resource_id, _STANDING_KINDS[resource_id], start, None)
    if plan.day(day).weekday() < 5:
        morning = plan.midnight(day) + timedelta(hours=9)
        _resource(made, NOTEBOOK, "gpu", morning, morning + timedelta(hours=8))
    rng = plan.rng("serving", day)
    for replica in (*GPU_REPLICAS, CPU_REPLICA):
        model = SCORER if replica == CPU_REPLICA else MODEL
        busy = (end - start).total_seconds() * float(rng.uniform(0.06, 0.11))
        kind = _STANDING_KINDS[replica]
        _run(
            made, f"past-serving-{replica}-{plan.day(day)}", model, "serving", "online", replica, kind, start, end,
            share_milli=CAPACITY[kind][0], busy=round(busy, 3), metric="process_cpu" if kind == "cpu" else "gpu_active",
            model_version=_version(plan, model, day), asset="endpoint", partition=str(plan.day(day)),
        )  # fmt: skip
    return made


def past_runs(plan: Plan, day: int) -> DayRuns:
    """All runs of a day of the past."""
    made, midnight = standing_runs(plan, day), plan.midnight(day)
    if day == 0:  # the shop opened at seven: its first night of batch work is the next
        return made
    rng = plan.rng("runs", day)
    hours = 3.2 + 0.2 * float(rng.standard_normal())
    _retrain(
        made, plan, MODEL, day, midnight + timedelta(hours=3), hours, "gpu4", _accident(day), rng.uniform(0.35, 0.5)
    )
    if plan.day(day).weekday() == 0:
        length = 1.4 + 0.1 * float(rng.standard_normal())
        _retrain(made, plan, SCORER, day, midnight + timedelta(hours=4), length, "cpu16", None, rng.uniform(0.6, 0.8))
    shares = {
        (MODEL, "features"): 9000,
        (SCORER, "features"): 5000,
        (MODEL, "evaluation"): 4000,
        (SCORER, "evaluation"): 4000,
    }
    begins = {
        "features": (midnight + timedelta(minutes=10), 8700),
        "evaluation": (midnight + timedelta(hours=7), 2700),
    }
    for number, ((model, stage), share) in enumerate(shares.items()):
        begin, seconds = begins[stage]
        begin += timedelta(minutes=20 * (number % 2))  # the two models' runs overlap on the shared worker
        seconds += int(rng.integers(0, 600))
        _run(
            made, f"past-{stage}-{model}-{plan.day(day)}", model, stage, "build" if stage == "features" else "measure",
            WORKER, "cpu16", begin, begin + timedelta(seconds=seconds), share_milli=share, busy=round(seconds * 0.8, 3),
            metric="process_cpu", model_version=None, asset=stage, partition=str(plan.day(day)),
        )  # fmt: skip
    return made


def write_runs(shop: Path, plan: Plan, day: int, runs: DayRuns) -> list[Path]:
    """A day's runs as the files of an older system: one Parquet a table."""
    written = []
    for table, rows in (
        ("run_records", runs.run_records),
        ("occupancy", runs.occupancy),
        ("resources", runs.resources),
    ):
        if rows:
            data = pa.Table.from_pylist(rows, schema=TABLES[table].schema)
            written.append(write_parquet(shop / "data" / table / f"{plan.day(day)}.parquet", data))
    return written


def retrain_job(plan: Plan, model: str, day: int) -> str:
    """The id of a past training job."""
    return digest("past job", plan.seed, model, str(plan.day(day)))


def _accident(day: int) -> str | None:
    if day % 17 == 5:
        return "failed"
    return "interrupted" if day % 23 == 9 else None


def _version(plan: Plan, model: str, day: int) -> str:
    last = day if model == MODEL else day - plan.day(day).weekday()
    return f"{model}-past-{plan.day(max(last, 0))}"


def _retrain(
    made: DayRuns, plan: Plan, model: str, day: int, begin: datetime, hours: float, kind: str, accident: str | None,
    busy_share: float,
) -> None:  # fmt: skip
    """One job: a failed or interrupted attempt costs its time, and the next one starts from zero (no checkpoints)."""
    job, length, steps = retrain_job(plan, model, day), timedelta(seconds=int(hours * 3600)), 24_000
    attempts = [(accident, length * (0.35 if accident == "failed" else 0.7))] if accident else []
    for number, (trouble, took) in enumerate([*attempts, (None, length)], start=1):
        end = begin + timedelta(seconds=int(took.total_seconds()))
        resource_id = f"train-{kind}-{plan.day(day)}-{number}"
        _resource(made, resource_id, kind, begin, end)
        measured = day >= _UNMEASURED_DAYS
        _run(
            made, f"{job}/{number}", model, "training", "retrain", resource_id, kind, begin, end,
            share_milli=CAPACITY[kind][0],
            busy=round((end - begin).total_seconds() * busy_share, 3) if measured else None,
            metric=("gpu_active" if kind == "gpu4" else "process_cpu") if measured else None,
            model_version=None if trouble else f"{model}-past-{plan.day(day)}", asset="train", partition=None,
            job_id=job, attempt=number, market="on_demand", pool="on-demand", status=trouble or "succeeded",
            cause={"failed": "data loader: broken pipe", "interrupted": "host maintenance"}.get(trouble or ""),
            steps_done=int(steps * took / length),
            steps_redone=int(steps * 0.7) if number == 2 and accident == "interrupted" else 0,
        )  # fmt: skip
        begin = end + timedelta(seconds=420)


def _run(
    made: DayRuns, run_id: str, model: str, stage: str, purpose: str, resource_id: str, kind: str, start: datetime,
    end: datetime, *, share_milli: int, busy: float | None, metric: str | None, model_version: str | None,
    status: str = "succeeded", **more: Any,
) -> None:  # fmt: skip
    made.run_records.append(
        {
            "run_id": run_id, "model": model, "stage": stage, "purpose": purpose, "started_at": start, "ended_at": end,
            "status": status, "price": PRICES[kind], "model_version": model_version, "busy_seconds": busy,
            "busy_metric": metric, "busy_coverage": None if busy is None else 1.0, **more,
        }
    )  # fmt: skip
    made.occupancy.append(
        {"run_id": run_id, "resource_id": resource_id, "start": start, "end": end, "share_milli": share_milli}
    )


def _resource(made: DayRuns, resource_id: str, kind: str, start: datetime, end: datetime | None) -> None:
    capacity, unit = CAPACITY[kind]
    made.resources.append(
        {
            "resource_id": resource_id, "valid_from": start, "valid_to": end, "kind": kind, "capacity_milli": capacity,
            "capacity_unit": unit, "parent": None,
        }
    )  # fmt: skip


def owners(runs: Sequence[DayRuns]) -> Mapping[str, tuple[str, str]]:
    """Run id → (model, stage), over all the given days."""
    return {row["run_id"]: (row["model"], row["stage"]) for day in runs for row in day.run_records}
