"""The trainer as a command: ``python -m mlcost_pipeline.training.trainer --job FOLDER --attempt N --deadline ISO``.

It imports no orchestrator. The exit code is the verdict (see ``contract``), and ``error.json`` says why it failed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from datetime import datetime
from pathlib import Path

from mlcost_pipeline.errors import CheckpointError, MlcostError
from mlcost_pipeline.training.contract import BAD_JOB, MODEL_ERROR, AttemptFolder, write_json
from mlcost_pipeline.training.job import read_job
from mlcost_pipeline.training.loop import Stop, train


def main(arguments: list[str] | None = None) -> int:
    """Run one attempt and return its exit code."""
    stop = Stop().listen()  # before anything slow is imported: a notice during start-up must not be lost
    parser = argparse.ArgumentParser(prog="mlcost_pipeline.training.trainer")
    parser.add_argument("--job", type=Path, required=True, help="job folder, holds job.json")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--deadline", type=datetime.fromisoformat, required=True)
    given = parser.parse_args(arguments)
    place = AttemptFolder(given.job.resolve(), given.attempt)
    place.path.mkdir(parents=True, exist_ok=True)
    try:
        return _attempt(place, stop)
    except CheckpointError as error:
        return _failed(place, MODEL_ERROR, "checkpoint", error)
    except MlcostError as error:
        return _failed(place, BAD_JOB, "bad_job", error)
    except Exception as error:
        traceback.print_exc()
        return _failed(place, MODEL_ERROR, "model", error)


def _attempt(place: AttemptFolder, stop: Stop) -> int:
    from mlcost_pipeline.models.registry import family

    job = read_job(place.job_folder)
    made = family(job.family)(dict(job.params), job.seed)
    if made.stepped:
        _steady_torch(job.threads)
    return train(job, made, place, stop, say=_say)


def _steady_torch(threads: int) -> None:
    """The same sums in the same order on every attempt: a fixed number of threads, deterministic algorithms."""
    import torch

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)


def _failed(place: AttemptFolder, code: int, cause: str, error: Exception) -> int:
    text = f"{type(error).__name__}: {error}"
    print(text, file=sys.stderr, flush=True)
    write_json(place.error, {"exit_code": code, "cause": cause, "text": text})
    return code


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
