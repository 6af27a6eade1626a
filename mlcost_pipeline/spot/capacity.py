"""What a provider of capacity must do: show its pools, launch, observe, give notice, terminate, list what is mine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.spot.policy import PoolView
from mlcost_pipeline.training.contract import AttemptFolder


class CapacityRefused(JobError):
    """The pool has no capacity now; not a fault of the job."""


@dataclass(frozen=True)
class LaunchRequest:
    """What to start. Launching the same (job, attempt) twice must not start it twice."""

    job_id: str
    attempt: int
    pool: str
    place: AttemptFolder
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Instance:
    """Something that was launched; `handle` is the provider's own and is kept with the attempt's record."""

    job_id: str
    attempt: int
    pool: str
    place: AttemptFolder
    launched_at: datetime
    handle: Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """An instance as it was found. Times are of the model's clock."""

    alive: bool
    exit_code: int | None = None  # None while it runs, and if it was killed
    ended_at: datetime | None = None  # None while it runs, and if it vanished while nobody looked
    preempted: bool = False  # the market took it, or has given notice


class Capacity(Protocol):
    """One provider. Every capacity and quota error is a :class:`CapacityRefused`."""

    def pools(self) -> tuple[PoolView, ...]:
        """All pools as they look now; each look is kept in ``market_observations``."""
        ...

    def launch(self, request: LaunchRequest) -> Instance: ...

    def observe(self, instance: Instance) -> Seen: ...

    def notice(self, instance: Instance) -> None:
        """Ask the instance to save and stop."""
        ...

    def terminate(self, instance: Instance) -> None:
        """End it without asking; returns when nothing of it runs any more."""
        ...

    def list_mine(self, job_id: str) -> list[Instance]:
        """Everything of this job that runs, also what no record tells of."""
        ...
