"""With this any Python job records itself: no warehouse, no orchestrator and no other library is needed where it runs.

A run is two small CSV files in a folder (or a mounted bucket) that the pipeline reads as a source: one written before
the work begins, one when it has ended. A job that is killed leaves its last sign of life, and is closed as lost.

>>> with record("runs/", model="fraud", stage="features", purpose="build") as run:  # doctest: +SKIP
...     run.steps(done=build_features())
"""

from __future__ import annotations

import csv
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlcost_pipeline.errors import JobError

STAGES = ("training", "serving", "features", "evaluation")
PURPOSES = ("retrain", "shadow", "drill", "trial", "backtest", "batch", "online", "build", "measure")
RUN_COLUMNS = (
    "run_id", "model", "model_version", "stage", "purpose", "asset", "partition", "market", "pool", "price",
    "started_at", "ended_at", "status", "cause", "steps_done", "steps_redone", "busy_seconds", "busy_metric",
    "busy_coverage", "data_wait_seconds", "code_version", "inputs_version", "source", "job_id", "attempt",
    "orchestrator_run_id",
)  # fmt: skip
HOLD_COLUMNS = ("run_id", "resource_id", "start", "end", "share_milli")
RUNS, HOLDS = "run_records", "occupancy"
BEAT_SECONDS = 10.0
#: A run without a sign of life for so long is lost.
SILENT_SECONDS = 600.0
#: SageMaker names a training job's ARN to its container, and the bill has it as the resource id.
JOB_ARN = "TRAINING_JOB_ARN"


@dataclass
class Recording:
    """A run under way: what its work has to say about itself."""

    folder: Path
    run: dict[str, Any]
    resource_id: str
    share_milli: int
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    def steps(self, done: int, redone: int = 0) -> None:
        """Steps that this run executed, and how many of them an earlier run had already done."""
        self.measured |= {"steps_done": int(done), "steps_redone": int(redone)}

    def busy(self, seconds: float, metric: str, coverage: float = 1.0) -> None:
        """Busy seconds, how they were measured, and the share of the run that was measured."""
        self.measured |= {"busy_seconds": seconds, "busy_metric": metric, "busy_coverage": coverage}

    def waited_for_data(self, seconds: float) -> None:
        """Seconds in which the work waited for data."""
        self.measured["data_wait_seconds"] = seconds


@contextmanager
def record(
    folder: str | Path,
    *,
    model: str,
    stage: str,
    purpose: str,
    resource_id: str | None = None,
    share_milli: int = 1000,
    run_id: str | None = None,
    job_id: str | None = None,
    attempt: int | None = None,
    **more: str | None,
) -> Iterator[Recording]:
    """Record the work of the ``with`` block in `folder`: `succeeded`, `failed` with what went wrong, or `cancelled`.

    Args:
        resource_id: what the bill calls the machine or job; by default SageMaker's job ARN, else the host's name.
        share_milli: thousandths of a device that the run holds.
        job_id: of a retrain: what its attempts are attempts of, so that all of them are its cost; by default the run.
        attempt: of a retrain: which of its attempts this is, from 1 on.
        more: further columns of a run record: ``asset``, ``partition``, ``market``, ``pool``, ``price``,
            ``model_version``, ``code_version``, ``inputs_version``, and ``orchestrator_run_id``: with ``asset``, the
            Dagster run that this work is part of, so that it is on record once where those runs are read too.

    Raises:
        JobError: stage, purpose or a column is unknown, or the run id was used before in this folder.
    """
    _check(stage, purpose, share_milli, {**more, "job_id": job_id, "attempt": attempt})
    held = resource_id or os.environ.get(JOB_ARN) or socket.gethostname()
    run: dict[str, Any] = {
        "run_id": run_id or f"{model}-{stage}-{uuid.uuid4().hex[:16]}", "model": model, "stage": stage,
        "purpose": purpose, "started_at": _now(), "status": "running", "source": "recorded", **more,
    }  # fmt: skip
    if purpose == "retrain":
        run |= {"job_id": job_id or run["run_id"], "attempt": attempt or 1}
    recording = Recording(Path(folder), run, held, share_milli)
    if _file(recording.folder, RUNS, recording.run_id, "1-open").exists():
        raise JobError(f"run {recording.run_id}: was recorded in {folder} before; new work needs a run id of its own")
    _write(recording, "1-open")
    stop, began = threading.Event(), _cpu_seconds()
    beating = threading.Thread(target=_beat, args=(recording, stop), name=f"recording {recording.run_id}", daemon=True)
    beating.start()
    try:
        yield recording
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
        _close(recording, began, "cancelled" if stopped else "failed", f"{type(error).__name__}: {error}"[:500])
        raise
    else:
        _close(recording, began, "succeeded", None)
    finally:
        stop.set()
        beating.join()
        _alive(recording.folder, recording.run_id).unlink(missing_ok=True)


def close_silent(folder: str | Path, *, silent_seconds: float = SILENT_SECONDS) -> list[str]:
    """Close the runs of a folder that gave no sign of life for so long: `lost`, ended at their last one."""
    lost = []
    for alive in sorted(Path(folder).glob(f"{RUNS}/*.alive")):
        run_id = alive.name.removesuffix(".alive")
        opened = alive.with_name(f"{run_id}.1-open.csv")
        if alive.with_name(f"{run_id}.2-closed.csv").exists():
            alive.unlink(missing_ok=True)
        elif opened.exists() and time.time() - alive.stat().st_mtime > silent_seconds:
            _close_lost(Path(folder), opened, alive)
            lost.append(run_id)
    return lost


def _close_lost(folder: Path, opened: Path, alive: Path) -> None:
    [run], [hold] = _read(opened), _read(folder / HOLDS / opened.name)
    run = {name: value or None for name, value in run.items()}
    recording = Recording(folder, run, hold["resource_id"], int(hold["share_milli"]))
    ended = max(alive.read_text().strip() or run["started_at"], run["started_at"])
    recording.run |= {"status": "lost", "ended_at": ended, "cause": "gave no sign of life any more"}
    _write(recording, "2-closed")
    alive.unlink(missing_ok=True)


def _check(stage: str, purpose: str, share_milli: int, more: Mapping[str, Any]) -> None:
    if stage not in STAGES:
        raise JobError(f"stage {stage!r} is unknown; allowed: {', '.join(STAGES)}")
    if purpose not in PURPOSES:
        raise JobError(f"purpose {purpose!r} is unknown; allowed: {', '.join(PURPOSES)}")
    if purpose != "retrain" and (more["job_id"] is not None or more["attempt"] is not None):
        raise JobError(f"purpose {purpose!r}: only a retrain has a job_id and attempts")
    if share_milli < 1:
        raise JobError(f"share_milli {share_milli}: a run holds at least one thousandth of its resource")
    if unknown := sorted(set(more) - set(RUN_COLUMNS)):
        raise JobError(f"no column {', '.join(unknown)} in a run record; there are: {', '.join(RUN_COLUMNS)}")


def _close(recording: Recording, began: float, status: str, cause: str | None) -> None:
    if "busy_seconds" not in recording.measured:
        recording.busy(round(_cpu_seconds() - began, 3), "process_cpu")
    recording.run |= {"status": status, "cause": cause, "ended_at": _now(), **recording.measured}
    _write(recording, "2-closed")


def _write(recording: Recording, state: str) -> None:
    """The hold first, then the record: a record that is there has its hold."""
    run = recording.run
    hold = {
        "run_id": run["run_id"], "resource_id": recording.resource_id, "start": run["started_at"],
        "end": run.get("ended_at"), "share_milli": recording.share_milli,
    }  # fmt: skip
    for table, columns, row in ((HOLDS, HOLD_COLUMNS, hold), (RUNS, RUN_COLUMNS, run)):
        file = _file(recording.folder, table, recording.run_id, state)
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}")
        with aside.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerow({name: "" if row.get(name) is None else row[name] for name in columns})
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(file)


def _beat(recording: Recording, stop: threading.Event) -> None:
    alive = _alive(recording.folder, recording.run_id)
    while True:
        with suppress(OSError):  # a full disk must not end the work that it records
            alive.write_text(_now())
        if stop.wait(BEAT_SECONDS):
            return


def _read(file: Path) -> list[dict[str, Any]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _file(folder: Path, table: str, run_id: str, state: str) -> Path:
    return folder / table / f"{_plain(run_id)}.{state}.csv"


def _alive(folder: Path, run_id: str) -> Path:
    return folder / RUNS / f"{_plain(run_id)}.alive"


def _plain(run_id: str) -> str:
    """A run id as one word of a path."""
    return "".join(char if char.isalnum() or char in "-_.=" else f"%{ord(char):02X}" for char in run_id)


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _now() -> str:
    return datetime.now(UTC).isoformat()
