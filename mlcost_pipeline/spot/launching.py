"""From a decision to a running trainer: job file, record, command and environment of an attempt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mlcost_pipeline import __version__
from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.runs import RunHandle, open_run
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.spot.capacity import LaunchRequest
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.job import TrainerJob, write_job
from mlcost_pipeline.warehouse import Warehouse

TRAINER = "mlcost_pipeline.training.trainer"


def job_folder(warehouse: Warehouse, model: str, job_id: str) -> Path:
    """Where a job's files lie."""
    return warehouse.folder(model, "jobs", job_id)


def prepare(warehouse: Warehouse, settings: Settings, job: dict[str, Any]) -> TrainerJob:
    """Make the job file from the settings; of a job that has begun it must still say the same.

    ``trainer.params`` may hold ``command``, a trainer of the team's own, which is not handed to the model family; and
    ``threads``, which is (a family that knows none refuses it) and also bounds the process as a whole (default 1).
    """
    from mlcost_pipeline.models.features import load_features

    trainer = settings.model(job["model"]).trainer
    features = load_features(warehouse, job["model"], job["data_version"])
    params = dict(trainer.params)
    threads, command = int(params.get("threads", 1)), list(params.pop("command", []))
    made = TrainerJob(
        job_id=job["job_id"],
        model=job["model"],
        family=trainer.family,
        params=params,
        seed=trainer.seed,
        data_version=job["data_version"],
        features=features.folder,
        training_cut=features.cuts.training_cut,
        checkpoint_seconds=trainer.checkpoint_seconds,
        threads=threads,
        command=command,
    )
    write_job(job_folder(warehouse, job["model"], job["job_id"]), made)
    return made


def open_record(
    warehouse: Warehouse,
    settings: Settings,
    clock: Clock,
    attempt: Attempt,
    model: str,
    orchestrator_run_id: str | None,
) -> RunHandle:
    """Put the attempt on record before it is launched: its resource, its run, its hold on the resource."""
    pool = next(pool for pool in settings.capacity.pools if pool.name == attempt.pool)
    register_resource(
        warehouse, attempt.resource_id, pool.resource_kind, 1000, f"milli_{pool.resource_kind}", attempt.claimed_at
    )
    return open_run(
        warehouse, clock, model=model, stage="training", purpose="retrain", resource_id=attempt.resource_id,
        market=attempt.market, pool=attempt.pool, price=attempt.price_per_hour, run_id=attempt.run_id,
        job_id=attempt.job_id, attempt=attempt.number, started_at=attempt.claimed_at,
        orchestrator_run_id=orchestrator_run_id, code_version=__version__, gpus=pool.resource_kind == "gpu",
    )  # fmt: skip


def request(job: TrainerJob, attempt: Attempt, place: AttemptFolder, deadline: str) -> LaunchRequest:
    """The command and environment of an attempt: what the supervisor can import, the trainer can too."""
    place.path.mkdir(parents=True, exist_ok=True)
    program = job.command or [sys.executable, "-m", TRAINER]
    arguments = ["--job", str(place.job_folder), "--attempt", str(attempt.number), "--deadline", deadline]
    threads = str(job.threads)
    environment = {
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry and not _of_interpreter(Path(entry))),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "MLCOST_MODEL": job.model,
    }
    return LaunchRequest(attempt.job_id, attempt.number, attempt.pool, place, [*program, *arguments], environment)


def _of_interpreter(entry: Path) -> bool:
    """Whether a path belongs to this interpreter; a trainer of another one must not be given it."""
    return any(entry.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
