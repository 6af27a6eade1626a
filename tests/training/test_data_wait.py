"""How long a training waited for its data: measured around the fetch, of whatever family, and never guessed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.models.data_wait import waited_for, waited_seconds, waiting_for_data
from mlcost_pipeline.models.encoding import read_training_rows
from mlcost_pipeline.models.sequences import read_sequences
from mlcost_pipeline.training.contract import DONE, AttemptFolder, read_json, write_json
from mlcost_pipeline.training.loop import Stop, train
from mlcost_pipeline.training.pulse import read_heartbeat
from tests.training.toys import CUT, Tiny, tiny_job

SLOW_SOURCE = "import sys, time\nfor asked in sys.stdin:\n    time.sleep(0.08)\n    print(asked, flush=True, end='')"


class Streaming(Tiny):
    """Asks a slow source for a line before each step."""

    def start(self, features, training_cut):
        super().start(features, training_cut)
        self.source = subprocess.Popen(
            [sys.executable, "-c", SLOW_SOURCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def step(self, indices, step_seed):
        with waiting_for_data():
            self.source.stdin.write(b"next\n")
            self.source.stdin.flush()
            assert self.source.stdout.readline() == b"next\n"
        return super().step(indices, step_seed)


def trained(folder: Path, family: type[Tiny], **params) -> tuple[AttemptFolder, dict]:
    job, place = tiny_job(folder, checkpoint_seconds=3600.0, samples=50, epochs=1, **params), AttemptFolder(folder, 1)
    place.path.mkdir(parents=True)
    made = family(job.params, job.seed)
    assert train(job, made, place, Stop(), print) == DONE
    if isinstance(made, Streaming):
        made.source.communicate()
    result = read_json(place.result)
    assert result is not None
    return place, result["data_wait"]


def test_a_slow_reader_is_where_the_time_went(tmp_path: Path) -> None:
    place, waited = trained(tmp_path, Streaming)
    assert 0.4 <= waited["seconds"] <= waited["of_seconds"]
    assert waited["share"] == waited["seconds"] / waited["of_seconds"]
    beat = read_heartbeat(place.heartbeat)
    assert beat is not None and beat.data_wait_seconds is not None and beat.data_wait_seconds >= waited["seconds"]


def test_work_is_not_waiting(tmp_path: Path) -> None:
    _, waited = trained(tmp_path, Tiny, sleep=0.05)
    assert waited["seconds"] < 0.1 and waited["of_seconds"] >= 0.25


def test_a_trainer_that_does_not_say_has_waited_for_an_unknown_time(tmp_path: Path) -> None:
    write_json(tmp_path / "heartbeat.json", {"step": 3})
    beat = read_heartbeat(tmp_path / "heartbeat.json")
    assert beat is not None and (beat.step, beat.data_wait_seconds) == (3, None)


def test_a_loader_counts_until_each_batch_comes_and_no_longer() -> None:
    def loader() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.03)
            yield number

    before = waited_seconds()
    for _ in waited_for(loader()):
        time.sleep(0.1)
    assert 0.09 <= waited_seconds() - before < 0.3


def test_one_fetch_inside_another_counts_once_and_reading_ahead_not_at_all() -> None:
    before = waited_seconds()
    with waiting_for_data(), waiting_for_data():
        time.sleep(0.05)
    once = waited_seconds() - before
    assert 0.05 <= once < 0.1

    def read_ahead() -> None:
        with waiting_for_data():
            time.sleep(0.05)

    reader = threading.Thread(target=read_ahead)
    reader.start()
    reader.join()
    assert waited_seconds() - before == once


@pytest.mark.parametrize("read", [read_training_rows, read_sequences])
def test_reading_the_features_counts_even_if_it_fails(tmp_path: Path, read: Callable) -> None:
    before = waited_seconds()
    with pytest.raises((OSError, MlcostError)):
        read(tmp_path, CUT)
    assert waited_seconds() > before
