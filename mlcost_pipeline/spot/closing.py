"""After an attempt: its end in the tables, when it was last seen, and whether another one is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy.cgroups import CgroupCpu
from mlcost_pipeline.cost.busy.measured import Busy
from mlcost_pipeline.cost.busy.process_tree import ProcessTree
from mlcost_pipeline.cost.busy.stored import busy_of
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.runs import close_run, find_run
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.spot.capacity import Instance
from mlcost_pipeline.spot.progress import silent_seconds
from mlcost_pipeline.warehouse import Warehouse


def settle(warehouse: Warehouse, settings: Settings, clock: Clock, attempt: Attempt) -> None:
    """Bring the tables to what the record of an ended attempt says; a repeat changes nothing.

    Busy time is never more than was billed, and unknown where neither we nor the trainer measured it.
    """
    if attempt.ended_at is None or find_run(warehouse, attempt.run_id) is None:
        return
    billed = (attempt.ended_at - attempt.claimed_at) / timedelta(seconds=1)
    busy, waited = _busy(warehouse, clock, attempt, billed), attempt.data_wait_wall_seconds
    cancelled = attempt.outcome == "refused" or str(attempt.cause).startswith("cancelled")
    close_run(
        warehouse,
        clock,
        attempt.run_id,
        status="cancelled" if cancelled else str(attempt.outcome),
        cause=attempt.cause,
        ended_at=attempt.ended_at,
        busy_seconds=None if busy is None else min(busy.seconds, billed),
        busy_metric=None if busy is None else busy.metric,
        busy_coverage=None if busy is None else busy.coverage,
        data_wait_seconds=None if waited is None else min(waited * clock.rate, billed),
        steps_done=attempt.steps_done,
        steps_redone=attempt.steps_redone,
    )
    pool = next((pool for pool in settings.capacity.pools if pool.name == attempt.pool), None)
    kind = "gpu" if pool is None else pool.resource_kind
    until = max(attempt.ended_at, attempt.claimed_at + timedelta(microseconds=1))
    register_resource(warehouse, attempt.resource_id, kind, 1000, f"milli_{kind}", attempt.claimed_at, valid_to=until)


def _busy(warehouse: Warehouse, clock: Clock, attempt: Attempt, billed: float) -> Busy | None:
    """What the sampler measured; the trainer's own account of its CPU time instead where it reaches further.

    That is so at its end, which comes between two readings, and for as long as no supervisor was there. CPU time
    never stands in for time on a GPU.
    """
    stored = warehouse.state.get(f"runs/{attempt.run_id}")
    sampled = None if stored is None else busy_of(stored.value, billed)
    if attempt.beat_at is None or attempt.cpu_wall_seconds <= 0 or billed <= 0:
        return sampled
    covered = min(billed, max(0.0, (attempt.beat_at - attempt.claimed_at) / timedelta(seconds=1)))
    told = Busy(
        attempt.cpu_wall_seconds * clock.rate, ProcessTree.metric, covered / billed, ProcessTree.device, 1, covered, 1.0
    )
    if sampled is None:
        return told
    of_cpu = sampled.metric in (ProcessTree.metric, CgroupCpu.metric)
    further = told.covered_seconds > sampled.covered_seconds and told.seconds >= sampled.seconds
    return told if of_cpu and further else sampled


def last_seen(warehouse: Warehouse, clock: Clock, attempt: Attempt, instance: Instance) -> datetime:
    """When an attempt that vanished was last known to live: what its run says, else its own heartbeat."""
    record = find_run(warehouse, attempt.run_id)
    if record is not None and record["status"] == "lost":
        return cast(datetime, record["ended_at"])
    since_launch = (clock.now() - instance.launched_at).total_seconds()
    silent = silent_seconds(instance.place, clock.wall_seconds(since_launch)) * clock.rate
    return clock.now() - timedelta(seconds=silent)


def spent_budget(attempts: Sequence[Attempt], deadline: datetime, retries: int) -> str | None:
    """Why no further attempt is allowed, or None. Interruptions are bounded by the deadline, errors by `retries`."""
    failed = [attempt for attempt in attempts if _is_error(attempt, deadline)]
    if failed and str(failed[-1].cause).startswith("bad_job"):
        return str(failed[-1].cause)
    if len(failed) > retries:
        return f"{len(failed)} attempts failed, {retries} retries allowed; last: {failed[-1].cause}"
    return None


def _is_error(attempt: Attempt, deadline: datetime) -> bool:
    """An error of the job; after the deadline every other end counts too, for time bounds those no more."""
    if attempt.outcome == "failed":
        return True
    late = attempt.ended_at is not None and attempt.ended_at > deadline
    return late and attempt.outcome in ("lost", "interrupted") and not str(attempt.cause).startswith("stopped")
