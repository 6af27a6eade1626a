"""Interrupted anywhere, a training ends as an undisturbed one does, bit by bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mlcost_pipeline.training.contract import BAD_JOB, DONE, INTERRUPTED, MODEL_ERROR, AttemptFolder, read_json
from mlcost_pipeline.training.loop import Stop, train
from mlcost_pipeline.training.pulse import read_heartbeat
from mlcost_pipeline.training.trainer import main
from tests.training.toys import Tiny, Whole, tiny_job


class StopsAt(Tiny):
    """Is told to stop during a given step."""

    def __init__(self, job, stop: Stop, at: int) -> None:
        super().__init__(job.params, job.seed)
        self.stop, self.at = stop, at

    def step(self, indices, step_seed):
        loss = super().step(indices, step_seed)
        self.stop.requested |= self.steps == self.at
        return loss


def files_of(place: AttemptFolder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(place.artefact.iterdir())}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> AttemptFolder:
    folder = tmp_path_factory.mktemp("undisturbed")
    job, place = tiny_job(folder), AttemptFolder(folder, 1)
    place.path.mkdir(parents=True)
    assert train(job, Tiny(job.params, job.seed), place, Stop(), print) == DONE
    return place


def test_stopped_at_every_fifth_step_it_ends_the_same(tmp_path: Path, undisturbed: AttemptFolder) -> None:
    job = tiny_job(tmp_path, checkpoint_seconds=3600.0)
    attempt, code = 0, INTERRUPTED
    while code == INTERRUPTED:
        attempt += 1
        place, stop = AttemptFolder(tmp_path, attempt), Stop()
        place.path.mkdir(parents=True)
        code = train(job, StopsAt(job, stop, at=5 * attempt), place, stop, print)
    assert code == DONE and attempt == 9  # 44 steps: stopped after 5, 10, ... 40
    assert files_of(place) == files_of(undisturbed)
    result, expected = read_json(place.result), read_json(undisturbed.result)
    assert result is not None and expected is not None
    assert result["losses"] == expected["losses"] and len(result["losses"]["epoch_means"]) == 4
    assert result["cursor"] == expected["cursor"] == {"epoch": 4, "batch": 0, "samples_seen": 412, "steps": 44}
    assert result["artefact"] == expected["artefact"]
    assert read_json(place.resume) == {"from": "attempts/8/checkpoints/0000000040", "step": 40, "rejected": []}


def test_a_checkpoint_that_does_not_load_is_named_and_the_one_before_is_used(
    tmp_path: Path, undisturbed: AttemptFolder
) -> None:
    job, stop = tiny_job(tmp_path), Stop()
    first, second = AttemptFolder(tmp_path, 1), AttemptFolder(tmp_path, 2)
    for place in (first, second):
        place.path.mkdir(parents=True)
    assert train(job, StopsAt(job, stop, at=13), first, stop, print) == INTERRUPTED

    class Forgetful(Tiny):
        def load_state(self, state):
            if state["steps"] == 13:
                self.weights = None  # half loaded, then it fails
                raise KeyError("a schema of the optimizer that is no more")
            super().load_state(state)

    assert train(job, Forgetful(job.params, job.seed), second, Stop(), print) == DONE
    resume = read_json(second.resume)
    assert resume is not None and resume["step"] == 12
    assert "KeyError" in resume["rejected"][0]["reason"] and resume["rejected"][0]["path"].endswith("0000000013")
    assert files_of(second) == files_of(undisturbed)


def test_a_model_without_steps_restarts_and_sees_all_samples(tmp_path: Path) -> None:
    job, place = tiny_job(tmp_path), AttemptFolder(tmp_path, 1)
    place.path.mkdir(parents=True)
    assert train(job, Whole(job.params, job.seed), place, Stop(), print) == DONE
    result = read_json(place.result)
    assert result is not None and result["cursor"]["samples_seen"] == 103 and result["cursor"]["steps"] == 1
    assert not place.checkpoints.exists()


@pytest.fixture
def as_before():
    """The trainer's command, run inside the tests, must leave signals and torch as they were."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    strict, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    torch.use_deterministic_algorithms(strict)
    torch.set_num_threads(threads)


def start(folder: Path, attempt: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mlcost_pipeline.training.trainer", "--job", str(folder)]
    arguments = ["--attempt", str(attempt), "--deadline", "2025-06-02T00:00:00+00:00"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.PIPE)


def run(folder: Path, attempt: int) -> tuple[int, str]:
    process = start(folder, attempt)
    said = process.communicate(timeout=60)[1].decode()
    return process.returncode, said


def wait_for_step(place: AttemptFolder, step: int) -> None:
    until = time.monotonic() + 60
    while (beat := read_heartbeat(place.heartbeat)) is None or beat.step < step:
        assert time.monotonic() < until, "the trainer makes no step"
        time.sleep(0.01)


def test_killed_then_asked_to_stop_then_finished(tmp_path: Path, undisturbed: AttemptFolder) -> None:
    slow = tiny_job(tmp_path, checkpoint_seconds=0.2, sleep=0.04)
    places = [AttemptFolder(tmp_path, number) for number in (1, 2, 3)]
    killed = start(tmp_path, 1)
    wait_for_step(places[0], 12)
    killed.kill()
    killed.communicate()
    asked = start(tmp_path, 2)
    wait_for_step(places[1], 20)
    asked.send_signal(signal.SIGTERM)
    asked.communicate(timeout=30)
    assert asked.returncode == INTERRUPTED
    after_notice = read_heartbeat(places[1].heartbeat)
    assert after_notice is not None and after_notice.durable_step == after_notice.step  # a notice loses no work
    assert 0 < after_notice.resumed_from <= 12 + 10
    code, said = run(tmp_path, 3)
    assert code == DONE, said
    assert read_json(places[2].resume)["step"] == after_notice.step
    assert files_of(places[2]) == files_of(undisturbed)
    assert slow.config_hash != "" and read_heartbeat(places[2].heartbeat).samples_seen == 412


@pytest.mark.parametrize(
    ("change", "code", "cause"),
    [
        ({"family": "no.such:Model"}, BAD_JOB, "bad_job"),
        ({"family": "tests.training.toys:Tiny", "fail_at": 3}, MODEL_ERROR, "model"),
    ],
)
def test_the_exit_code_tells_whose_fault_it_was(tmp_path: Path, as_before, change: dict, code: int, cause: str) -> None:
    tiny_job(tmp_path, **change)
    assert main(["--job", str(tmp_path), "--attempt", "1", "--deadline", "2025-06-02T00:00:00+00:00"]) == code
    error = json.loads(AttemptFolder(tmp_path, 1).error.read_text())
    assert error["cause"] == cause and error["exit_code"] == code


def test_a_job_changed_by_hand_is_a_bad_job(tmp_path: Path, as_before) -> None:
    tiny_job(tmp_path)
    value = json.loads((tmp_path / "job.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps({**value, "seed": 8}))
    assert main(["--job", str(tmp_path), "--attempt", "1", "--deadline", "2025-06-02T00:00:00+00:00"]) == BAD_JOB
    assert "changed by hand" in json.loads(AttemptFolder(tmp_path, 1).error.read_text())["text"]


def test_the_trainer_imports_no_orchestrator() -> None:
    loaded = "import sys, mlcost_pipeline.training.trainer; print('dagster' in sys.modules, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})  # fmt: skip
    assert said.stdout.split() == ["False", "False"]
