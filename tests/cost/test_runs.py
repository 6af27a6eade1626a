"""Run records: on record before the work, closed however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost import heartbeat
from mlcost_pipeline.cost.processes import ProcessIdentity, identify, is_alive
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.runs import RunHandle, close_lost_runs, close_run, find_run, open_run, record_run, runs
from mlcost_pipeline.errors import JobError
from mlcost_pipeline.warehouse import Warehouse

ORIGIN = datetime(2026, 3, 1, 6, tzinfo=UTC)
JOB = {
    "model": "fraud",
    "stage": "training",
    "purpose": "retrain",
    "resource_id": "spot-1",
    "job_id": "j1",
    "attempt": 1,
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def clock() -> Clock:
    return Clock.fixed_origin(ORIGIN, rate=60)


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.02)
    yield


def _spend_cpu(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_run_is_on_record_while_it_works_and_closed_after(warehouse: Warehouse, clock: Clock) -> None:
    work = {"model": "fraud", "stage": "features", "purpose": "build", "resource_id": "worker"}
    with record_run(warehouse, clock, **work, share_milli=500) as run:
        assert find_run(warehouse, run.run_id)["status"] == "running"  # type: ignore[index]
        [hold] = warehouse.rows("occupancy")
        assert (hold["end"], hold["share_milli"]) == (None, 500)
        _spend_cpu(0.1)
        run.steps(done=7, redone=2)
    [record] = runs(warehouse, "fraud")
    [hold] = warehouse.rows("occupancy")
    assert record["status"] == "succeeded"
    assert hold["end"] == record["ended_at"] > record["started_at"]
    assert (record["steps_done"], record["steps_redone"]) == (7, 2)
    # CPU seconds × the clock's rate: at most two cores' worth of the run's own duration, in the same seconds.
    assert (record["busy_metric"], record["busy_coverage"]) == ("process_cpu", 1.0)
    assert 0.1 * 60 <= record["busy_seconds"] <= 8 * (record["ended_at"] - record["started_at"]).total_seconds()


def test_a_run_that_raises_is_failed_with_its_cause(warehouse: Warehouse, clock: Clock) -> None:
    work = {"model": "fraud", "stage": "serving", "purpose": "batch", "resource_id": "worker"}
    with pytest.raises(ZeroDivisionError), record_run(warehouse, clock, **work):
        raise ZeroDivisionError("no users")
    [record] = runs(warehouse)
    assert (record["status"], record["cause"]) == ("failed", "ZeroDivisionError: no users")


def test_an_attempt_is_named_by_its_job_and_closed_once(warehouse: Warehouse, clock: Clock) -> None:
    handle = open_run(warehouse, clock, **JOB)
    assert handle.run_id == "j1/1"
    handle.heartbeat.stop()
    end = ORIGIN + timedelta(hours=1)
    close_run(warehouse, clock, "j1/1", status="interrupted", cause="notice", ended_at=end, busy_seconds=10.0,
              busy_metric="steps", busy_coverage=0.5)  # fmt: skip
    close_run(warehouse, clock, "j1/1", status="succeeded", ended_at=end + timedelta(hours=1))
    [record] = runs(warehouse)
    assert (record["status"], record["ended_at"], record["busy_seconds"]) == ("interrupted", end, 10.0)
    with pytest.raises(JobError, match="already ended as interrupted"):
        open_run(warehouse, clock, **JOB)


def test_opening_a_running_run_again_keeps_its_start(warehouse: Warehouse, clock: Clock) -> None:
    first = open_run(warehouse, clock, **JOB, started_at=ORIGIN)
    second = open_run(warehouse, clock, **JOB, started_at=ORIGIN + timedelta(hours=2))
    for handle in (first, second):
        handle.heartbeat.stop()
    second.close(status="succeeded")
    [record] = runs(warehouse)
    assert record["started_at"] == ORIGIN
    assert len(warehouse.rows("occupancy")) == 1


def test_words_that_mean_nothing_are_refused(warehouse: Warehouse, clock: Clock) -> None:
    with pytest.raises(JobError, match="stage 'cooking'"):
        open_run(warehouse, clock, **{**JOB, "stage": "cooking"})
    with pytest.raises(JobError, match="job_id and an attempt"):
        open_run(warehouse, clock, **{**JOB, "job_id": None})
    with pytest.raises(JobError, match="not on record"):
        close_run(warehouse, clock, "nobody", status="failed")
    assert runs(warehouse) == []


KILLED = """
import sys, time
from datetime import datetime, UTC
from pathlib import Path
from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost import heartbeat
from mlcost_pipeline.cost.runs import record_run
from mlcost_pipeline.warehouse import Warehouse
heartbeat.BEAT_SECONDS = 0.02
clock = Clock.fixed_origin(datetime(2026, 3, 1, 6, tzinfo=UTC), rate=60)
with record_run(Warehouse(Path(sys.argv[1])), clock, model="fraud", stage="serving", purpose="batch",
                resource_id="worker", run_id="killed"):
    print("open", flush=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass
"""


def _killed_run(warehouse: Warehouse) -> None:
    work = subprocess.Popen([sys.executable, "-c", KILLED, str(warehouse.root)], stdout=subprocess.PIPE, text=True)
    assert work.stdout is not None
    assert work.stdout.readline() == "open\n"
    time.sleep(0.5)
    work.send_signal(signal.SIGKILL)
    work.communicate()


def test_a_killed_run_is_closed_as_lost_at_its_last_heartbeat(warehouse: Warehouse, clock: Clock) -> None:
    with record_run(
        warehouse, clock, model="fraud", stage="features", purpose="build", resource_id="worker", run_id="alive"
    ):
        _killed_run(warehouse)
        assert close_lost_runs(warehouse, lambda _: clock) == ["killed"]
        assert close_lost_runs(warehouse, lambda _: clock) == []
    record = find_run(warehouse, "killed")
    assert record is not None
    stored = warehouse.state.get("runs/killed")
    assert stored is not None
    assert record["status"] == "lost"
    assert record["ended_at"] == datetime.fromisoformat(stored.value["heartbeat_at"])
    assert record["busy_seconds"] > 0
    [hold] = warehouse.rows("occupancy", where="run_id = 'killed'")
    assert hold["end"] == record["ended_at"]


def test_a_lost_run_that_comes_back_goes_on(warehouse: Warehouse, clock: Clock) -> None:
    _killed_run(warehouse)
    close_lost_runs(warehouse, lambda _: clock)
    work = {"model": "fraud", "stage": "serving", "purpose": "batch", "resource_id": "worker", "run_id": "killed"}
    for _ in range(2):
        handle: RunHandle = open_run(warehouse, clock, **work)
        assert find_run(warehouse, "killed")["status"] == "running"  # type: ignore[index]
        handle.heartbeat.stop()
        close_run(warehouse, clock, "killed", status="lost", ended_at=clock.now())
    open_run(warehouse, clock, **work).close(status="succeeded")
    assert find_run(warehouse, "killed")["status"] == "succeeded"  # type: ignore[index]


def test_a_run_lives_and_dies_with_the_process_it_watches(warehouse: Warehouse, clock: Clock) -> None:
    trainer = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    handle = open_run(warehouse, clock, **JOB)
    handle.watch(trainer.pid)
    watched, until = psutil.Process(trainer.pid), time.monotonic() + 60
    while watched.cpu_times().user < 0.5 and time.monotonic() < until:  # on a busy machine it waits its turn
        time.sleep(0.1)
    time.sleep(0.5)
    assert close_lost_runs(warehouse, lambda _: clock) == []
    trainer.kill()
    trainer.wait()
    handle.heartbeat.stop()
    assert close_lost_runs(warehouse, lambda _: clock) == ["j1/1"]
    [record] = runs(warehouse)
    assert record["busy_seconds"] > 0.1 * 60
    assert 0.5 < record["busy_coverage"] <= 1.0


def test_a_reused_process_number_is_another_process() -> None:
    me = identify()
    assert is_alive(me) is True
    assert is_alive(ProcessIdentity(me.host, me.boot_id, me.pid, me.start_ticks + 1)) is False
    assert is_alive(ProcessIdentity(me.host, "an earlier boot", me.pid, me.start_ticks)) is False
    assert is_alive(ProcessIdentity("another machine", "its boot", 1, 1)) is None
    assert os.getpid() == me.pid


def test_registering_a_resource_twice_is_one_resource(warehouse: Warehouse) -> None:
    for _ in range(2):
        register_resource(warehouse, "worker", "cpu", 2000, "milli_cpu", ORIGIN)
    [row] = warehouse.rows("resources")
    assert (row["capacity_milli"], row["valid_to"]) == (2000, None)
