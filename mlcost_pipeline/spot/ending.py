"""How an attempt ended, and whose fault it was: the market's and ours cost no retries, an error of the job does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.evaluation.artefact import verify
from mlcost_pipeline.spot.capacity import Seen
from mlcost_pipeline.training.contract import BAD_JOB, DONE, INTERRUPTED, MODEL_ERROR, AttemptFolder, read_json

SIGNALLED = (128 + 2, 128 + 15)  # SIGINT, SIGTERM before the trainer could listen


@dataclass(frozen=True)
class Ending:
    """The end of an attempt; `cause` is for people, but begins with a stable word."""

    outcome: str  # succeeded | interrupted | failed | lost
    cause: str | None
    exit_code: int | None
    ended_at: datetime


def classify(place: AttemptFolder, seen: Seen, last_seen: datetime, *, asked: str | None, progressed: bool) -> Ending:
    """Name the end of an attempt that runs no more.

    Args:
        last_seen: when it was last known to live: its end, if it vanished while nobody looked.
        asked: why we ended it ourselves (`stopped`, `cancelled`, `moved`, `hung`), or None.
        progressed: it left a durable step that was not there before.
    """
    outcome, cause = _judge(place, seen, asked, progressed)
    return Ending(outcome, cause, seen.exit_code, seen.ended_at or last_seen)


def _judge(place: AttemptFolder, seen: Seen, asked: str | None, progressed: bool) -> tuple[str, str | None]:
    code = seen.exit_code
    if code == DONE:
        fault = _faulty_result(place)
        return ("failed", f"result: {fault}") if fault else ("succeeded", None)
    if code == BAD_JOB:
        return "failed", f"bad_job: {_said(place).removeprefix('bad_job: ')}"
    if code == MODEL_ERROR:
        return "failed", _said(place)
    if code is None and seen.ended_at is None:
        return "lost", "lost: it was gone, with no exit code, when a supervisor came back to it"
    if asked == "hung":
        return "failed", "hung: no heartbeat within the time-out"
    if asked is not None:
        return "interrupted", f"{asked}: by the supervisor"
    if seen.preempted:
        return "interrupted", "market: the pool took its capacity back"
    if code == INTERRUPTED or code in SIGNALLED:
        if progressed:
            return "interrupted", "signal: asked to stop by somebody else"
        return "failed", f"exit {code}: stopped without a notice and without a new durable step"
    how = "killed from outside" if code is None else f"exit {code}"
    return "failed", f"{how}: not by the market and not by the supervisor; see {place.log}"


def _faulty_result(place: AttemptFolder) -> str | None:
    try:
        verify(place.artefact)
    except ModelError as error:
        return str(error)
    return None


def _said(place: AttemptFolder) -> str:
    error = read_json(place.error) or {}
    return f"{error.get('cause', 'error')}: {error.get('text', f'see {place.log}')}"
