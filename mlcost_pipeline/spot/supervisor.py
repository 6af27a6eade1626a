"""The one owner of a job's attempts: decides, launches, watches, closes, until a candidate is trained.

A successor finds everything in the state and the job folder: it re-attaches to a trainer that lives, and closes the
record of one that does not. The market's interruptions are bounded by the deadline, errors of the job by a small
budget.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from types import FrameType

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.accounts import AttemptSummary, on_demand_cost, summarise
from mlcost_pipeline.spot.attempts import attempts_of
from mlcost_pipeline.spot.jobs import require_job
from mlcost_pipeline.spot.lease import Lease, held, supervisor_lease
from mlcost_pipeline.spot.supervision import Supervision
from mlcost_pipeline.warehouse import Warehouse

__all__ = ["JobResult", "Lease", "job_result", "supervise", "supervisor_lease"]


@dataclass(frozen=True)
class JobResult:
    """How a job stands. Money is in the settings' currency.

    `state`: ``trained`` (a candidate awaits its gate), ``exhausted``, ``ended`` (promoted, rejected or cancelled),
    ``held_elsewhere`` (another supervisor lives), ``stopped`` (we were told to stop; to be resumed).
    """

    job_id: str
    model: str
    state: str
    version: str | None
    attempts: list[AttemptSummary]
    cost_usd: Decimal
    on_demand_usd: Decimal


def supervise(
    warehouse: Warehouse,
    settings: Settings,
    job_id: str,
    *,
    orchestrator_run_id: str | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> JobResult:
    """Carry a job to its candidate, whoever began it. Call it again as often as you like.

    SIGTERM and SIGINT ask the trainer to save, close the records and return ``stopped``.

    Raises:
        JobError: the job was never opened, or its settings were changed after it had begun.
    """
    model = str(require_job(warehouse, job_id)["model"])
    clock = model_clock(warehouse, settings, model)
    with held(warehouse, job_id) as lease:
        if lease is None:
            report(f"job {job_id}: another supervisor lives; nothing to do")
            return _result(warehouse, settings, clock, job_id, model, "held_elsewhere")
        with _stop_asked() as stop:
            supervision = Supervision(warehouse, settings, clock, job_id, lease, stop, report, orchestrator_run_id)
            state = supervision.run()
    return _result(warehouse, settings, clock, job_id, model, state)


def job_result(warehouse: Warehouse, settings: Settings, job_id: str) -> JobResult:
    """How a job stands, asked from outside: as :func:`supervise` would answer, or ``open`` while it is under way."""
    job = require_job(warehouse, job_id)
    model, state = str(job["model"]), "open"
    if job["ended_at"] is not None:
        state = "exhausted" if job["state"] == "exhausted" else "ended"
    elif job["candidate"] is not None:
        state = "trained"
    return _result(warehouse, settings, model_clock(warehouse, settings, model), job_id, model, state)


def _result(warehouse: Warehouse, settings: Settings, clock: Clock, job_id: str, model: str, state: str) -> JobResult:
    attempts = attempts_of(warehouse, job_id)
    summaries = [summarise(attempt, clock.now()) for attempt in attempts]
    candidate = require_job(warehouse, job_id).get("candidate")
    return JobResult(
        job_id=job_id,
        model=model,
        state=state,
        version=None if candidate is None else str(candidate["version"]),
        attempts=summaries,
        cost_usd=sum((summary.cost_usd for summary in summaries), Decimal(0)),
        on_demand_usd=on_demand_cost(warehouse, settings, clock, model, attempts),
    )


@contextmanager
def _stop_asked() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, and nothing else; outside the main thread it never is."""
    stop = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
