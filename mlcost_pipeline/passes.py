"""Passes over the triggers without a daemon: what a sensor would request is run here, in this process.

The runs are ordinary Dagster runs on the kept instance, so the UI shows them like any other.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import dagster as dg

from mlcost_pipeline import errors
from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.processes import ProcessIdentity, identify, is_alive
from mlcost_pipeline.cost.runs import close_lost_runs
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.home import dagster_environment
from mlcost_pipeline.settings import load_settings
from mlcost_pipeline.triggers import Request, triggers
from mlcost_pipeline.warehouse import Warehouse
from sensors.run_records import copy_run, owners_of

MAX_PASSES = 12
PROCESS_TAG = "mlcost/process"
OUR_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, MlcostError)}
QUIET_LOGS = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

#: Told of each step: (job, asset or None at the start and the end, how many of how many).
Progress = Callable[[str, str | None, int, int], None]


@dataclass(frozen=True)
class Done:
    """One trigger of one pass: the requests that were run, or the reason why there were none."""

    trigger: str
    ran: Sequence[Request]
    reason: str
    wait_seconds: float = 0.0


class Passes:
    """Evaluates the triggers of one mlcost.yaml and runs what is due, on one Dagster instance."""

    def __init__(self, config: Path, home: Path, *, progress: Progress | None = None) -> None:
        os.environ.update(dagster_environment(home, config))
        from mlcost_pipeline.definitions import build_definitions  # reads MLCOST_CONFIG, which is set only now

        self.config = config
        self.settings = load_settings(config)
        self.warehouse = Warehouse(self.settings.path(self.settings.warehouse))
        self.definitions = build_definitions(config)
        self._owners = owners_of(
            [made for made in self.definitions.assets or [] if isinstance(made, dg.AssetsDefinition)]
        )
        self._progress = progress or _silent
        close_lost_runs(self.warehouse, self._clock_of)  # whatever a killed process left open
        _close_dead_passes(home)

    def _clock_of(self, model: str) -> Clock:
        return model_clock(self.warehouse, self.settings, model)

    def tick(self, only: Sequence[str] | None = None) -> list[Done]:
        """Evaluate every trigger once, in order, and run what each requests.

        Raises:
            MlcostError: some runs failed; everything else had its turn.
        """
        done: list[Done] = []
        failed: list[str] = []
        self._pass(only, done, failed, set())
        _raise_if(failed)
        return done

    def _pass(self, only: Sequence[str] | None, done: list[Done], failed: list[str], tried: set[str]) -> None:
        """One pass; what fails is told at the end and not tried again, and does not keep the others from their turn."""
        for name, trigger in triggers(self.settings).items():
            if only is not None and name not in only:
                continue
            found = trigger(self.warehouse, self.settings)
            ran = []
            for request in found.requests:
                if request.key in tried:
                    continue
                try:
                    self.run(request.job, partition=request.partition, tags=_tags(request))
                    ran.append(request)
                except MlcostError as error:
                    tried.add(request.key)
                    failed.append(str(error))
            done.append(Done(name, ran, found.reason, found.wait_seconds))

    def until_quiet(self, only: Sequence[str] | None = None) -> list[Done]:
        """Tick until nothing is due any more; the last pass's reasons say why.

        Raises:
            MlcostError: a run failed, or something was due again and again.
        """
        ran: list[Done] = []
        failed: list[str] = []
        tried: set[str] = set()
        for _ in range(MAX_PASSES):
            done: list[Done] = []
            self._pass(only, done, failed, tried)
            ran += [item for item in done if item.ran]
            waits = [item.wait_seconds for item in done if item.wait_seconds]
            if not any(item.ran for item in done):
                if not waits:
                    _raise_if(failed)
                    return [*ran, *done]
                time.sleep(min(waits))  # somebody else is at it, or died a moment ago
        due = ", ".join(item.trigger for item in done if item.ran)
        raise MlcostError(f"after {MAX_PASSES} passes still due: {due}; see its runs in the UI (mlcost dev)")

    def run(
        self,
        job: str,
        *,
        partition: str | None = None,
        partitions: tuple[str, str] | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        """Run one job in this process, for a partition or for a range of them as one run.

        Raises:
            MlcostError: it failed.
            KeyboardInterrupt: it was told to stop (Ctrl-C), which Dagster keeps to itself.
        """
        made = self.definitions.resolve_job_def(job)
        tags = dict(tags or {})
        if partitions is not None:
            tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"] = partitions
        run_id = str(uuid.uuid4())
        total = len(set(made.asset_layer.executable_asset_keys))
        with dg.DagsterInstance.get() as instance:
            if job == "ledger" and partition is not None:
                instance.add_dynamic_partitions("bill_periods", [partition])
            instance.add_event_listener(run_id, _Listener(job, total, self._progress))
            self._progress(job, None, 0, total)
            tags[PROCESS_TAG] = json.dumps(identify().as_json())
            result = made.execute_in_process(
                instance=instance,
                run_id=run_id,
                partition_key=partition,
                tags=tags,
                run_config=QUIET_LOGS,
                raise_on_error=False,
            )
            copy_run(instance, self, run_id, self._owners)
        self._progress(job, None, total, total)
        if _was_interrupted(result):
            raise KeyboardInterrupt(f"run {run_id} of job {job}")
        if not result.success:
            raise MlcostError(f"run {run_id} of job {job} failed: {_failure(result)}; see it in the UI (mlcost dev)")


def _close_dead_passes(home: Path) -> None:
    """Runs of passes whose process was killed would read as started for ever: nobody else watches them.

    Under a lock, because two processes that open a new home at once would both make its tables.
    """
    with (home / ".opening").open("w") as lock, _held(lock), dg.DagsterInstance.get() as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            process = run.tags.get(PROCESS_TAG)
            if process and is_alive(ProcessIdentity.from_json(json.loads(process))) is False:
                instance.report_run_failed(run, "the process of this pass was killed; what it left is taken up again")


@contextmanager
def _held(lock: IO[str]) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel if this process is killed
    yield


class _Listener:
    """Counts the assets of a run as their steps end."""

    def __init__(self, job: str, total: int, progress: Progress) -> None:
        self.job, self.total, self.done, self.progress = job, total, 0, progress

    def __call__(self, record: Any) -> None:
        event = record.dagster_event
        if event is None:
            return
        if event.is_step_start:
            self.progress(self.job, event.step_key, self.done, self.total)
        elif event.is_step_success:
            self.done = min(self.done + 1, self.total)
            self.progress(self.job, event.step_key, self.done, self.total)


def _raise_if(failed: Sequence[str]) -> None:
    if failed:
        raise MlcostError("\n".join(failed))


def _was_interrupted(result: Any) -> bool:
    """Whether a signal ended the run: Dagster turns it into an event of a failed run and goes on."""
    ends = (event.event_specific_data for event in result.all_events if event.is_run_failure)
    return any(getattr(end.failure_reason, "value", None) == "UNEXPECTED_TERMINATION" for end in ends)


def _failure(result: Any) -> str:
    """The words of the first failed step: our own error's if there is one, else those of the deepest cause."""
    for event in result.all_events:
        if event.is_step_failure:
            chain, error = [], event.event_specific_data.error
            while error is not None:
                chain.append(error)
                error = error.cause
            said = next((link for link in chain if link.cls_name in OUR_ERRORS), chain[-1])
            return f"{event.step_key.replace('__', '/')}: {said.message.strip()}"
    return "no step failed; the run itself did"


def _tags(request: Request) -> dict[str, str]:
    return {**request.tags, "mlcost/reason": request.reason[:500], "mlcost/request": request.key}


def _silent(job: str, asset: str | None, done: int, total: int) -> None:
    return None
