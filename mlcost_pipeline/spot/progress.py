"""How far an attempt has come, from its heartbeat: the steps it made, those made before, and what they took."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.pulse import read_heartbeat

_FIELDS = (
    "resumed_from", "reached_step", "durable_step", "total_steps", "steps_done", "steps_redone", "load_seconds",
    "stepping_wall_seconds", "cpu_wall_seconds", "data_wait_wall_seconds", "beat_at",
)  # fmt: skip


def progress(attempt: Attempt, place: AttemptFolder, clock: Clock, reached_before: int) -> Attempt:
    """The attempt with what its newest heartbeat says.

    Args:
        reached_before: the furthest step of earlier attempts; steps from the resume point up to it are done again.
    """
    beat = read_heartbeat(place.heartbeat)
    if beat is None:
        return attempt
    done = max(0, beat.step - beat.resumed_from)
    redone = max(0, min(beat.step, reached_before) - beat.resumed_from)
    load = attempt.load_seconds
    if load is None and beat.stepping_seconds > 0 and attempt.launched_at is not None:
        first_step_age = time.monotonic() - (beat.monotonic - beat.stepping_seconds)
        since_launch = (clock.now() - attempt.launched_at).total_seconds()
        load = max(0.0, since_launch - first_step_age * clock.rate)
    return replace(
        attempt,
        resumed_from=beat.resumed_from,
        reached_step=beat.step,
        durable_step=beat.durable_step,
        total_steps=beat.total_steps,
        steps_done=done,
        steps_redone=redone,
        load_seconds=load,
        stepping_wall_seconds=beat.stepping_seconds,
        cpu_wall_seconds=beat.cpu_seconds,
        data_wait_wall_seconds=beat.data_wait_seconds,
        beat_at=_told_at(clock, beat.monotonic),
    )


def _told_at(clock: Clock, monotonic: float) -> datetime | None:
    """A monotonic time of this machine on the model's clock; None for a trainer that does not give it."""
    return clock.now() - timedelta(seconds=(time.monotonic() - monotonic) * clock.rate) if monotonic else None


def progress_fields(attempt: Attempt) -> dict[str, object]:
    """What :func:`progress` sets, as changes of an attempt's record."""
    return {name: getattr(attempt, name) for name in _FIELDS}


def silent_seconds(place: AttemptFolder, since_launch_wall_seconds: float) -> float:
    """Wall seconds since the last heartbeat, or since the launch if there was none."""
    beat = read_heartbeat(place.heartbeat)
    return max(0.0, since_launch_wall_seconds if beat is None else time.monotonic() - beat.monotonic)
