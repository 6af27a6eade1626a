"""The job file: what a trainer is told. It is written once per job, and its hash names the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import digest
from mlcost_pipeline.training.contract import JOB_FILE, read_json, write_json


@dataclass(frozen=True)
class TrainerJob:
    """One training: which family, on which data, how, and what must never change between two attempts of it."""

    job_id: str
    model: str
    family: str
    params: Mapping[str, Any]
    seed: int
    data_version: str
    features: Path
    training_cut: datetime
    checkpoint_seconds: float
    threads: int = 1
    command: list[str] = field(default_factory=list)

    @property
    def config_hash(self) -> str:
        """Names all that the weights depend on; a checkpoint of another configuration is not resumed from."""
        return digest(
            self.model, self.family, dict(self.params), self.seed, self.data_version,
            self.training_cut.isoformat(), self.threads, self.command,
        )  # fmt: skip


def write_job(folder: Path, job: TrainerJob) -> None:
    """Write ``job.json``. The features path is kept relative, so that the warehouse may move.

    Raises:
        JobError: the folder holds a job of another configuration.
    """
    known = read_json(folder / JOB_FILE)
    if known is not None and known.get("config_hash") != job.config_hash:
        raise JobError(
            f"{folder / JOB_FILE}: job {job.job_id} was begun with other settings (configuration "
            f"{known.get('config_hash')}, now {job.config_hash}); restore them, or cancel the job and decide anew"
        )
    value = {
        "job_id": job.job_id,
        "model": job.model,
        "family": job.family,
        "params": dict(job.params),
        "seed": job.seed,
        "data_version": job.data_version,
        "features": os.path.relpath(job.features, folder),
        "training_cut": job.training_cut.isoformat(),
        "checkpoint_seconds": job.checkpoint_seconds,
        "threads": job.threads,
        "command": job.command,
        "config_hash": job.config_hash,
    }
    if known != value:
        write_json(folder / JOB_FILE, value)


def read_job(folder: Path) -> TrainerJob:
    """Read ``job.json``.

    Raises:
        JobError: the file is absent, incomplete, or was changed by hand.
    """
    file = folder / JOB_FILE
    value = read_json(file)
    if value is None:
        raise JobError(f"{file}: absent or not a JSON object; the supervisor writes it (mlcost train --job ID)")
    try:
        job = TrainerJob(
            job_id=str(value["job_id"]),
            model=str(value["model"]),
            family=str(value["family"]),
            params=dict(value["params"]),
            seed=int(value["seed"]),
            data_version=str(value["data_version"]),
            features=(folder / value["features"]).resolve(),
            training_cut=datetime.fromisoformat(value["training_cut"]),
            checkpoint_seconds=float(value["checkpoint_seconds"]),
            threads=int(value["threads"]),
            command=list(value["command"]),
        )
        stated = str(value["config_hash"])
    except (KeyError, TypeError, ValueError) as error:
        raise JobError(f"{file}: {error!r}: a field is missing or mistyped; remove the file and start again") from error
    if stated != job.config_hash:
        raise JobError(f"{file}: configuration hash {stated} does not match its fields; it was changed by hand")
    return job
