"""Real processes, real signals: one training, whatever happens to whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.runs import close_lost_runs
from mlcost_pipeline.evaluation.versions import get_version
from mlcost_pipeline.spot import jobs
from mlcost_pipeline.spot.attempts import attempts_of, claim_next
from mlcost_pipeline.spot.launching import prepare, request
from mlcost_pipeline.spot.local import LocalCapacity
from mlcost_pipeline.spot.policy import POLICIES, Choice
from mlcost_pipeline.spot.supervisor import JobResult, job_result, supervise, supervisor_lease
from mlcost_pipeline.spot.timeline import timeline
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.loop import Stop, train
from mlcost_pipeline.training.pulse import read_heartbeat
from tests.spot.world import JOB, MODEL, SUM_OF_40, World
from tests.training.toys import Tiny, tiny_job

CHILD = """
import sys
from pathlib import Path
from mlcost_pipeline.settings import load_settings
from mlcost_pipeline.spot.supervisor import supervise
from mlcost_pipeline.warehouse import Warehouse
root = Path(sys.argv[1])
print(supervise(Warehouse(root / "warehouse"), load_settings(root / "mlcost.yaml"), "job1").state, flush=True)
"""


def run(world: World) -> JobResult:
    return supervise(world.warehouse, world.settings, JOB, report=print)


def elsewhere(world: World) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    return subprocess.Popen([sys.executable, "-c", CHILD, str(world.root)], env=environment, text=True,
                            stdout=subprocess.PIPE)  # fmt: skip


def wait_for(condition: Any, seconds: float = 40.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def step_of(world: World, attempt: int) -> int:
    beat = read_heartbeat(world.folder / "attempts" / str(attempt) / "heartbeat.json")
    return 0 if beat is None else beat.step


def trained_sum(world: World, result: JobResult) -> int:
    assert result.state == "trained" and result.version is not None
    version = get_version(world.warehouse, MODEL, result.version)
    return int(json.loads((version.folder(world.warehouse) / "sum.json").read_text())["sum"])


def nothing_runs(world: World) -> bool:
    return LocalCapacity(world.warehouse, world.settings, world.clock).list_mine(JOB) == []


def test_spot_is_lost_with_notice_and_without_and_the_training_ends_once(tmp_path: Path) -> None:
    """Spot for some ticks, then gone (the notice is given), again for some, then gone for good: on-demand."""
    world = World(tmp_path, up=[1, 1, 0, 1, 1], sleep=0.06)
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    first = result.attempts[0]
    assert first.market == "spot" and first.outcome == "interrupted" and str(first.cause).startswith("market")
    steps = [(row["steps_done"], row["steps_redone"]) for row in world.runs()]
    assert sum(done - redone for done, redone in steps) == 40
    assert result.attempts[1].resumed_from == first.reached_step  # a notice loses no step
    rows = world.runs()
    assert [row["run_id"] for row in rows] == [f"{JOB}/{n + 1}" for n in range(len(rows))]
    assert {row["status"] for row in rows[:-1]} == {"interrupted"} and rows[-1]["status"] == "succeeded"
    assert all(row["busy_seconds"] <= (row["ended_at"] - row["started_at"]).total_seconds() for row in rows)
    holds = {row["run_id"]: row for row in world.warehouse.rows("occupancy")}
    assert all(holds[row["run_id"]]["end"] == row["ended_at"] for row in rows)
    resources = {row["resource_id"]: row for row in world.warehouse.rows("resources")}
    assert resources[f"spot-a/{JOB}/1"]["capacity_milli"] == 1000 and resources[f"spot-a/{JOB}/1"]["valid_to"]
    exact = sum(
        (row["price"] * Decimal((row["ended_at"] - row["started_at"]) // timedelta(microseconds=1)) for row in rows),
        Decimal(0),
    ) / Decimal(3_600_000_000)
    assert abs(result.cost_usd - exact) < Decimal("1e-15") and result.on_demand_usd > 0
    line = timeline(world.warehouse, JOB, world.clock.now())
    assert all(before.end == after.start for before, after in pairwise(line))
    assert sum(segment.steps for segment in line) == 40
    assert job_result(world.warehouse, world.settings, JOB) == result
    again = run(world)
    assert (again.state, again.version, len(again.attempts)) == ("trained", result.version, len(result.attempts))


def test_a_lost_notice_costs_the_work_since_the_last_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1, 1, 0], sleep=0.06, window_hours=1.5, spot={"notice_lost_share": 1.0})
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    first, second = result.attempts[0], result.attempts[1]
    assert first.outcome == "interrupted" and second.resumed_from % 5 == 0
    assert second.steps_redone == first.reached_step - second.resumed_from <= 5


def test_without_spot_it_goes_on_demand_in_time(tmp_path: Path) -> None:
    world = World(tmp_path, up=[], window_hours=1.5)
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    assert [attempt.market for attempt in result.attempts] == ["on_demand"]
    assert "two changeovers" in result.attempts[0].reason
    ended = result.attempts[0].ended_at
    deadline = world.warehouse.rows("jobs")[0]["deadline"]
    assert ended is not None and ended < deadline
    assert [segment.what for segment in timeline(world.warehouse, JOB, ended)][-1] == "on_demand"
    looks = world.warehouse.rows("market_observations", where="pool = 'spot-a'")
    assert looks and not any(look["available"] for look in looks)


@pytest.mark.parametrize(
    ("params", "attempts", "reason"),
    [
        ({"failures": 9, "exit": 64, "cause": "bad_job"}, 1, "bad_job: as asked"),
        (
            {"failures": 9, "exit": 70, "cause": "model"},
            2,
            "2 attempts failed, 1 retries allowed; last: model: as asked",
        ),
    ],
)
def test_errors_of_the_job_have_a_small_budget_of_their_own(
    tmp_path: Path, params: dict[str, Any], attempts: int, reason: str
) -> None:
    world = World(tmp_path, up=[1] * 500, **params)
    world.warehouse.state.update(f"models/{MODEL}", lambda now: {**(now or {}), "incumbent": "shop-1"})
    result = run(world)
    assert (result.state, result.version, len(result.attempts)) == ("exhausted", None, attempts)
    assert world.warehouse.rows("jobs")[0]["reason"] == reason
    model = world.warehouse.state.get(f"models/{MODEL}")
    assert model is not None and model.value["blocked"] == ["shop-1"] and model.value["open_job"] is None
    assert [row["status"] for row in world.runs()] == ["failed"] * attempts
    notices = (world.warehouse.root / "notices.jsonl").read_text()
    assert "mlcost rearm shop" in notices
    assert run(world).state == "exhausted" and len(world.runs()) == attempts


def test_one_error_is_forgiven_and_a_hung_trainer_is_one(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, hang_at=7, trainer={"timeout_seconds": 1.5})
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    assert [attempt.outcome for attempt in result.attempts] == ["failed", "succeeded"]
    assert str(result.attempts[0].cause).startswith("hung")


def test_interrupted_while_it_boots(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1, 0], window_hours=2.7, spot={"startup_seconds": 3000})
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    first = result.attempts[0]
    assert (first.outcome, first.reached_step, first.steps_done) == ("interrupted", 0, 0)
    assert attempts_of(world.warehouse, JOB)[0].exit_code == 75 and result.attempts[-1].outcome == "succeeded"


def test_a_person_is_told_at_once_when_the_deadline_cannot_be_kept(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, window_hours=0.4)
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40  # late is better than never
    assert [attempt.market for attempt in result.attempts] == ["on_demand"]
    notices = [json.loads(line) for line in (world.warehouse.root / "notices.jsonl").read_text().splitlines()]
    assert [notice["key"] for notice in notices] == [f"deadline/{JOB}"]
    assert "can no longer be guaranteed" in notices[0]["text"] and "production is of: never" in notices[0]["text"]


def test_two_supervisors_one_training(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.05)
    results: list[JobResult] = []
    first = threading.Thread(target=lambda: results.append(run(world)))
    first.start()
    wait_for(lambda: step_of(world, 1) > 2)
    second = run(world)
    assert second.state == "held_elsewhere" and second.version is None
    first.join()
    assert trained_sum(world, results[0]) == SUM_OF_40 and len(world.runs()) == 1
    lease = supervisor_lease(world.warehouse, JOB)
    assert lease is not None and lease.launches == 1 and not lease.live


def test_a_killed_supervisor_is_succeeded_and_the_living_trainer_kept(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.15)
    dying = elsewhere(world)
    wait_for(lambda: step_of(world, 1) > 2)
    dying.kill()
    dying.communicate()
    lease = supervisor_lease(world.warehouse, JOB)
    assert lease is not None and not lease.live  # at once: its owner is seen to be gone
    assert close_lost_runs(world.warehouse, lambda model: world.clock) == []  # its trainer lives
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    assert [attempt.outcome for attempt in result.attempts] == ["succeeded"] and len(world.runs()) == 1
    assert result.attempts[0].steps_done == 40 and world.runs()[0]["status"] == "succeeded"


def test_a_launch_that_was_never_noted_is_found_by_its_tags(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.1)
    attempt = claim_next(world.warehouse, JOB, pool="spot-a", market="spot", price_per_hour=Decimal("0.9731"),
                         reason="", now=world.clock.now())  # fmt: skip
    assert attempt is not None
    made = prepare(world.warehouse, world.settings, jobs.require_job(world.warehouse, JOB))
    dying = LocalCapacity(world.warehouse, world.settings, world.clock)
    launched = dying.launch(request(made, attempt, AttemptFolder(world.folder, 1), "2025-06-02T00:00:00+00:00"))
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40 and not dying.observe(launched).alive
    assert [(one.outcome, one.steps_done) for one in result.attempts] == [("succeeded", 40)]
    assert [row["status"] for row in world.runs()] == ["succeeded"]


def test_supervisor_and_trainer_killed_the_attempt_is_lost_and_another_resumes(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.05, trainer={"error_retries": 0})
    dying = elsewhere(world)
    wait_for(lambda: step_of(world, 1) > 12)
    dying.kill()
    dying.communicate()
    capacity = LocalCapacity(world.warehouse, world.settings, world.clock)
    mine = capacity.list_mine(JOB)
    assert [instance.attempt for instance in mine] == [1]
    capacity.terminate(mine[0])
    assert close_lost_runs(world.warehouse, lambda model: world.clock) == [f"{JOB}/1"]
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    assert [attempt.outcome for attempt in result.attempts] == ["lost", "succeeded"]
    assert result.attempts[1].resumed_from >= 10
    assert [row["status"] for row in world.runs()] == ["lost", "succeeded"]


def test_a_stopped_supervisor_leaves_a_checkpoint_and_nothing_that_runs(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.05)
    stopped = elsewhere(world)
    wait_for(lambda: step_of(world, 1) > 2)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.communicate(timeout=30)[0].strip() == "stopped"
    assert nothing_runs(world)
    assert [(row["status"], row["cause"]) for row in world.runs()] == [("interrupted", "stopped: by the supervisor")]
    first = attempts_of(world.warehouse, JOB)[0]
    assert first.durable_step == first.reached_step > 2
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40 and result.attempts[1].resumed_from == first.reached_step


FROZEN: dict[str, Any] = {"all": {"act_id": "a", "who": "Ada", "reason": "audit", "at": "2025-06-01"}, "models": {}}
LIFTED: dict[str, Any] = {"all": None, "models": {}}


def test_a_model_that_only_observes_gets_no_attempt_until_it_acts(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500)
    acting = world.settings.models[MODEL]
    watching = world.settings.model_copy(update={"models": {MODEL: acting.model_copy(update={"mode": "observe"})}})
    said: list[str] = []
    held_back = supervise(world.warehouse, watching, JOB, report=said.append)
    assert (held_back.state, held_back.attempts) == ("stopped", []) and world.runs() == []
    assert any("no further attempt, mode is observe" in line for line in said)
    assert jobs.open_job_of(world.warehouse, MODEL) == JOB
    assert trained_sum(world, run(world)) == SUM_OF_40


def test_a_freeze_lets_the_attempt_that_lives_go_on_to_its_end(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.1)
    results: list[JobResult] = []
    thread = threading.Thread(target=lambda: results.append(run(world)))
    thread.start()
    wait_for(lambda: step_of(world, 1) > 2)
    world.warehouse.state.update("freeze", lambda _: FROZEN)
    thread.join(timeout=60)
    assert trained_sum(world, results[0]) == SUM_OF_40
    assert [attempt.outcome for attempt in results[0].attempts] == ["succeeded"]


def test_a_freeze_ends_no_attempt_for_a_move_that_it_would_forbid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the freeze on the policy would rather be on demand; nothing may be launched there, so spot is kept."""
    world = World(tmp_path, up=[1] * 500, sleep=0.1)
    frozen = threading.Event()
    monkeypatch.setitem(
        POLICIES,
        world.settings.capacity.spot_policy,
        lambda now: Choice("od-a" if frozen.is_set() else "spot-a", "as the test says"),
    )
    results: list[JobResult] = []
    thread = threading.Thread(target=lambda: results.append(run(world)))
    thread.start()
    wait_for(lambda: step_of(world, 1) > 2)
    world.warehouse.state.update("freeze", lambda _: FROZEN)
    frozen.set()
    thread.join(timeout=60)
    assert trained_sum(world, results[0]) == SUM_OF_40
    assert [(one.pool, one.outcome) for one in results[0].attempts] == [("spot-a", "succeeded")]


def test_a_frozen_job_gets_no_second_attempt_and_goes_on_when_it_is_lifted(tmp_path: Path) -> None:
    """The market takes the first attempt while the model is frozen."""
    world = World(tmp_path, up=[1, 1, 1, 0], sleep=0.15)
    results: list[JobResult] = []
    said: list[str] = []
    thread = threading.Thread(
        target=lambda: results.append(supervise(world.warehouse, world.settings, JOB, report=said.append))
    )
    thread.start()
    wait_for(lambda: step_of(world, 1) > 2)
    world.warehouse.state.update("freeze", lambda _: FROZEN)
    thread.join(timeout=60)
    assert results[0].state == "stopped" and nothing_runs(world)
    assert [attempt.outcome for attempt in results[0].attempts] == ["interrupted"]
    assert str(results[0].attempts[0].cause).startswith("market"), "nobody but the market ended it"
    assert any("no further attempt, frozen by Ada: audit" in line for line in said)
    world.warehouse.state.update("freeze", lambda _: LIFTED)
    result = run(world)
    assert trained_sum(world, result) == SUM_OF_40
    assert result.attempts[1].resumed_from == results[0].attempts[0].reached_step


def test_a_cancelled_job_stops_its_trainer(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1] * 500, sleep=0.1)
    results: list[JobResult] = []
    thread = threading.Thread(target=lambda: results.append(run(world)))
    thread.start()
    wait_for(lambda: step_of(world, 1) > 2)
    jobs.cancel_job(world.warehouse, world.clock, JOB, "not needed")
    thread.join(timeout=30)
    assert results[0].state == "ended" and results[0].version is None and nothing_runs(world)
    assert [row["status"] for row in world.runs()] == ["cancelled"]


def test_an_old_attempt_that_finishes_late_changes_nothing(tmp_path: Path) -> None:
    """Its supervisor and its record say lost; its process goes on, finishes, and nobody reads what it wrote."""
    world = World(tmp_path, up=[1] * 500, sleep=0.02)
    stale = claim_next(world.warehouse, JOB, pool="spot-a", market="spot", price_per_hour=Decimal(1), reason="",
                       now=world.clock.now())  # fmt: skip
    assert stale is not None
    result = run(world)  # finds it claimed, never launched, and goes on with attempt 2
    assert [attempt.outcome for attempt in result.attempts] == ["lost", "succeeded"]
    late = [sys.executable, str(Path(__file__).with_name("plain_trainer.py")), "--job", str(world.folder)]
    subprocess.run([*late, "--attempt", "1", "--deadline", "x"], check=True)
    assert (world.folder / "attempts" / "1" / "result.json").exists()
    assert not jobs.note_candidate(world.warehouse, JOB, attempt=1, version="stale")
    again = run(world)
    assert again.version == result.version
    assert get_version(world.warehouse, MODEL, str(again.version)).attempt == 2
    assert jobs.require_job(world.warehouse, JOB)["candidate"] == {"attempt": 2, "version": result.version}


def test_the_projects_own_trainer_killed_and_resumed_ends_bit_equal(tmp_path: Path) -> None:
    world = World(tmp_path / "world", up=[1] * 500, rate=60.0, command=[], trainer={"params": {"sleep": 0.03}})
    results: list[JobResult] = []
    thread = threading.Thread(target=lambda: results.append(run(world)))
    thread.start()
    wait_for(lambda: step_of(world, 1) > 20)
    capacity = LocalCapacity(world.warehouse, world.settings, world.clock)
    capacity.terminate(capacity.list_mine(JOB)[0])
    thread.join()
    assert results[0].state == "trained" and results[0].version is not None
    assert [attempt.outcome for attempt in results[0].attempts] == ["failed", "succeeded"]
    assert str(results[0].attempts[0].cause).startswith("killed from outside") and results[0].attempts[1].resumed_from
    job, place = tiny_job(tmp_path / "straight"), AttemptFolder(tmp_path / "straight", 1)
    place.path.mkdir(parents=True)
    assert train(job, Tiny(job.params, world.settings.model(MODEL).trainer.seed), place, Stop(), print) == 0
    version = get_version(world.warehouse, MODEL, results[0].version)
    for name in ("weights.npy", "order.txt"):
        assert (version.folder(world.warehouse) / name).read_bytes() == (place.artefact / name).read_bytes()
