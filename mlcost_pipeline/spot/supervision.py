"""One supervisor's work on one job: recover, then decide, launch, watch and close until the job is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.runs import RunHandle
from mlcost_pipeline.evaluation.versions import register
from mlcost_pipeline.notify import notify
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot import jobs
from mlcost_pipeline.spot.attempts import Attempt, attempts_of, change_attempt, claim_next
from mlcost_pipeline.spot.capacity import Capacity, CapacityRefused, Instance
from mlcost_pipeline.spot.closing import last_seen, settle, spent_budget
from mlcost_pipeline.spot.ending import Ending, classify
from mlcost_pipeline.spot.estimate import load_seconds, situation
from mlcost_pipeline.spot.launching import job_folder, open_record, prepare, request
from mlcost_pipeline.spot.lease import HeldLease
from mlcost_pipeline.spot.local import LocalCapacity
from mlcost_pipeline.spot.policy import POLICIES, Choice, Situation
from mlcost_pipeline.spot.predecessors import note_job
from mlcost_pipeline.spot.progress import progress, progress_fields, silent_seconds
from mlcost_pipeline.training.acting import why_not_act
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.job import read_job
from mlcost_pipeline.warehouse import Warehouse

POLL_SECONDS = 0.05
REVIEW_SECONDS = 1.0  # how often a running attempt is held against the policy, the deadline and the job's state
GRACE_SECONDS = 30.0  # wall seconds a trainer gets to save when we ask it to stop


class Supervision:
    """Holds the lease of a job while :meth:`run` carries it on."""

    def __init__(
        self, warehouse: Warehouse, settings: Settings, clock: Clock, job_id: str, lease: HeldLease,
        stop: threading.Event, report: Callable[[str], None], orchestrator_run_id: str | None = None,
    ) -> None:  # fmt: skip
        self.warehouse, self.settings, self.clock = warehouse, settings, clock
        self.job_id, self.lease, self.stop, self.report = job_id, lease, stop, report
        self.orchestrator_run_id = orchestrator_run_id
        self.model = str(jobs.require_job(warehouse, job_id)["model"])
        self.trainer = settings.model(self.model).trainer
        self.policy = POLICIES[settings.capacity.spot_policy]
        self.capacity: Capacity = LocalCapacity(warehouse, settings, clock)
        self.folder = job_folder(warehouse, self.model, job_id)

    def run(self) -> str:
        """Carry the job on until it is over; returns the state of :class:`JobResult`."""
        self.recover()
        while True:
            over = self.over()
            if over is not None:
                return over
            choice = self.decide(self.situation())
            if choice.pool is None:
                self.stop.wait(min(REVIEW_SECONDS, self.clock.wall_seconds(60)))
                continue
            self.attempt(choice)

    def over(self) -> str | None:
        """Why there is nothing more to do, or None."""
        if self.lease.lost:
            return "held_elsewhere"
        job = jobs.require_job(self.warehouse, self.job_id)
        if job["ended_at"] is not None:
            return "exhausted" if job["state"] == "exhausted" else "ended"
        if job["candidate"] is not None:
            return "trained"
        attempts = attempts_of(self.warehouse, self.job_id)
        last = attempts[-1] if attempts else None
        if last is not None and last.outcome == "succeeded":
            return self.finish(last)
        spent = spent_budget(attempts, datetime.fromisoformat(job["deadline"]), self.trainer.error_retries)
        if spent is not None:
            return self.exhaust(spent)
        if self.stop.is_set():
            return "stopped"
        forbidden = why_not_act(self.warehouse, self.settings, self.model)
        if forbidden is not None:
            self.report(f"job {self.job_id}: no further attempt, {forbidden}")
            return "stopped"
        return None

    # ── before: what an earlier supervisor left ─────────────────────────────────────────────────

    def recover(self) -> None:
        """Close what has ended, and go on with an attempt that has not."""
        attempts = attempts_of(self.warehouse, self.job_id)
        for attempt in attempts:
            if attempt.ended:
                settle(self.warehouse, self.settings, self.clock, attempt)
        if not attempts or attempts[-1].ended:
            return
        last = attempts[-1]
        launched_at = last.launched_at or last.claimed_at
        instance = Instance(self.job_id, last.number, last.pool, self.place(last), launched_at, last.handle or {})
        for found in self.capacity.list_mine(self.job_id):
            if found.attempt != last.number:
                self.capacity.terminate(found)  # billed, and nobody waits for it
            elif last.handle is None:  # its launcher died before it could note the launch
                instance = found
        jobs.set_current_attempt(self.warehouse, self.job_id, last.number)
        last = self.launched(last, instance, None)
        run = None
        if self.capacity.observe(instance).alive:
            run = open_record(self.warehouse, self.settings, self.clock, last, self.model, self.orchestrator_run_id)
            self.report(f"attempt {last.number} on {last.pool}: its trainer lives, re-attached")
        self.watch(self.launched(last, instance, run), instance, run)

    # ── an attempt ──────────────────────────────────────────────────────────────────────────────

    def situation(self) -> Situation:
        """How the job stands now."""
        job, attempts = jobs.require_job(self.warehouse, self.job_id), attempts_of(self.warehouse, self.job_id)
        return situation(
            self.warehouse, self.clock, job, attempts, self.capacity.pools(),
            checkpoint_wall_seconds=self.trainer.checkpoint_seconds,
        )  # fmt: skip

    def decide(self, now: Situation) -> Choice:
        """Ask the policy, and tell a person at once if the deadline can no longer be guaranteed."""
        market = next((pool.market for pool in now.pools if pool.name == now.running), None)
        if now.slack_seconds < (0 if market == "on_demand" else now.changeover_seconds):
            stored = self.warehouse.state.get(f"models/{self.model}")
            promoted = (stored.value if stored else {}).get("promoted_at") or "never"
            text = (
                f"model {self.model}, job {self.job_id}: the deadline can no longer be guaranteed "
                f"({now.time_left_seconds / 3600:.2f} h left, {now.work_seconds / 3600:.2f} h of work, "
                f"{now.changeover_seconds / 3600:.2f} h to start anew); the model in production is of: {promoted}"
            )
            notify(self.warehouse, self.settings, key=f"deadline/{self.job_id}", text=text)
        return self.policy(now)

    def attempt(self, choice: Choice) -> None:
        """Make the next attempt on the pool of `choice` and see it to its end."""
        job = jobs.require_job(self.warehouse, self.job_id)
        made = prepare(self.warehouse, self.settings, job)
        pool = next(pool for pool in self.settings.capacity.pools if pool.name == choice.pool)
        attempt = claim_next(
            self.warehouse, self.job_id, pool=pool.name, market=pool.market, price_per_hour=pool.price_per_hour,
            reason=choice.reason, now=self.clock.now(), clock_rate=self.clock.rate,
        )  # fmt: skip
        if attempt is None or not jobs.set_current_attempt(self.warehouse, self.job_id, attempt.number):
            return
        run = open_record(self.warehouse, self.settings, self.clock, attempt, self.model, self.orchestrator_run_id)
        self.report(f"attempt {attempt.number} on {pool.name}: {choice.reason}")
        try:
            instance = self.capacity.launch(request(made, attempt, self.place(attempt), job["deadline"]))
        except CapacityRefused as refusal:
            self.close(attempt, Ending("refused", f"refused: {refusal}", None, attempt.claimed_at), run)
            return
        self.watch(self.launched(attempt, instance, run), instance, run)

    def launched(self, attempt: Attempt, instance: Instance, run: RunHandle | None) -> Attempt:
        """Note a launch where a successor finds it; nothing is noted of one that cannot be found."""
        if not instance.handle:
            return attempt
        process = instance.handle.get("process")
        if run is not None and process is not None:
            run.watch(int(process["pid"]))
        return change_attempt(self.warehouse, attempt, launched_at=instance.launched_at, handle=dict(instance.handle))

    def watch(self, attempt: Attempt, instance: Instance, run: RunHandle | None) -> None:
        """Follow an attempt to its end; end it ourselves if it must stop."""
        asked, kill_at, reviewed = None, float("inf"), time.monotonic()
        while not self.lease.lost:
            seen = self.capacity.observe(instance)
            if not seen.alive:
                done = progress(attempt, instance.place, self.clock, self.reached_before(attempt))
                news = done.durable_step > max((one.durable_step for one in self.before(attempt)), default=0)
                alive_until = last_seen(self.warehouse, self.clock, done, instance)
                ending = classify(instance.place, seen, alive_until, asked=asked, progressed=news)
                self.close(done, ending, run)
                return
            if asked is None and (self.stop.is_set() or time.monotonic() - reviewed >= REVIEW_SECONDS):
                reviewed = time.monotonic()
                asked = self.must_end(attempt, instance)
                if asked is not None:
                    self.report(f"attempt {attempt.number}: asked to stop ({asked})")
                    self.capacity.notice(instance)
                    kill_at = time.monotonic() + (0 if asked == "hung" else GRACE_SECONDS)
            if time.monotonic() >= kill_at:
                self.capacity.terminate(instance)
                continue
            time.sleep(POLL_SECONDS)
        if run is not None:
            run.heartbeat.stop()

    def must_end(self, attempt: Attempt, instance: Instance) -> str | None:
        """Why a running attempt must be ended by us, or None."""
        if self.stop.is_set():
            return "stopped"
        if jobs.require_job(self.warehouse, self.job_id)["ended_at"] is not None:
            return "cancelled"
        silent = silent_seconds(instance.place, self.clock.wall_seconds(
            (self.clock.now() - instance.launched_at).total_seconds()))  # fmt: skip
        if silent > self.trainer.timeout_seconds:
            return "hung"
        now = progress(attempt, instance.place, self.clock, self.reached_before(attempt))
        change_attempt(self.warehouse, now, **progress_fields(now))
        if why_not_act(self.warehouse, self.settings, self.model) is not None:
            return None  # nothing could be launched to move to
        choice = self.decide(self.situation())
        return None if choice.pool == attempt.pool else "moved"

    # ── after ───────────────────────────────────────────────────────────────────────────────────

    def close(self, attempt: Attempt, ending: Ending, run: RunHandle | None = None) -> None:
        """Commit the end of an attempt, then close its run."""
        if run is not None:
            run.heartbeat.stop()
        stands = change_attempt(
            self.warehouse, attempt, **progress_fields(attempt), outcome=ending.outcome, cause=ending.cause,
            exit_code=ending.exit_code, ended_at=max(ending.ended_at, attempt.claimed_at),
        )  # fmt: skip
        settle(self.warehouse, self.settings, self.clock, stands)
        self.report(
            f"attempt {stands.number} on {stands.pool}: {stands.outcome} at step {stands.reached_step} of "
            f"{stands.total_steps}" + (f" ({stands.cause})" if stands.cause else "")
        )

    def finish(self, attempt: Attempt) -> str:
        """Register what the attempt trained and note it as the job's candidate."""
        made = read_job(self.folder)
        attempts = attempts_of(self.warehouse, self.job_id)
        useful = sum(one.useful_seconds(self.clock) for one in attempts)
        load = load_seconds(self.warehouse, self.clock, self.model, attempts)
        note_job(self.warehouse, self.model, self.job_id, work_seconds=useful, load_seconds=load)
        version = register(
            self.warehouse, model=self.model, family=made.family, job_id=self.job_id, attempt=attempt.number,
            artefact=self.place(attempt).artefact, training_cut=made.training_cut,
        )  # fmt: skip
        noted = jobs.note_candidate(self.warehouse, self.job_id, attempt=attempt.number, version=version)
        return "trained" if noted else "ended"

    def exhaust(self, reason: str) -> str:
        """End the job for want of retries and tell a person."""
        jobs.end_job(self.warehouse, self.clock, self.job_id, "exhausted", reason)
        text = (
            f"model {self.model}, job {self.job_id}: exhausted ({reason}); "
            f"once that is mended: mlcost rearm {self.model} --reason TEXT"
        )
        notify(self.warehouse, self.settings, key=f"exhausted/{self.job_id}", text=text)
        return "exhausted"

    def place(self, attempt: Attempt) -> AttemptFolder:
        return AttemptFolder(self.folder, attempt.number)

    def before(self, attempt: Attempt) -> list[Attempt]:
        return [one for one in attempts_of(self.warehouse, self.job_id) if one.number < attempt.number]

    def reached_before(self, attempt: Attempt) -> int:
        return max((one.reached_step for one in self.before(attempt)), default=0)
