from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from mlcost_pipeline.errors import CheckpointError
from mlcost_pipeline.training import checkpoint, saving
from mlcost_pipeline.training.contract import AttemptFolder
from mlcost_pipeline.training.order import Cursor

CONFIG = "c0ffee"


def saved(folder: Path, attempt: int, step: int, config: str = CONFIG) -> Path:
    state = {"weights": torch.full((4,), float(step)), "note": "x"}
    return checkpoint.save(AttemptFolder(folder, attempt), state, Cursor(0, step, step, step), {"last": 1.0}, config)


def search(folder: Path, *attempts: int) -> checkpoint.Search:
    return checkpoint.newest_valid([AttemptFolder(folder, number) for number in attempts], CONFIG)


def test_the_newest_over_all_attempts_is_found_and_loads(tmp_path: Path) -> None:
    for attempt, step in ((1, 5), (1, 20), (2, 10)):
        saved(tmp_path, attempt, step)
    found = search(tmp_path, 1, 2, 3).found
    assert found is not None and (found.attempt, found.step) == (1, 20)
    assert found.load_state()["weights"].tolist() == [20.0] * 4
    assert found.cursor["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "state.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "state.pt").write_bytes(bytes(data))


def truncate(folder: Path) -> None:
    data = (folder / "state.pt").read_bytes()
    (folder / "state.pt").write_bytes(data[:-10])


def lose_the_manifest(folder: Path) -> None:
    (folder / "MANIFEST.json").unlink()


def tear_the_manifest(folder: Path) -> None:
    (folder / "MANIFEST.json").write_bytes((folder / "MANIFEST.json").read_bytes()[:40])


def lose_a_file(folder: Path) -> None:
    (folder / "cursor.json").unlink()


def move_the_cursor(folder: Path) -> None:
    cursor = json.loads((folder / "cursor.json").read_text())
    (folder / "cursor.json").write_text(json.dumps({**cursor, "batch": cursor["batch"] + 1}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_bit, "state.pt does not match its SHA-256"),
        (truncate, "state.pt has .* bytes, the manifest says"),
        (lose_the_manifest, "the manifest is missing"),
        (tear_the_manifest, "the manifest is not readable"),
        (lose_a_file, "cursor.json is missing"),
        (move_the_cursor, "cursor.json"),
    ],
)
def test_a_torn_checkpoint_is_rejected_by_name_and_the_one_before_is_used(tmp_path, damage, reason) -> None:
    saved(tmp_path, 1, 5)
    torn = saved(tmp_path, 2, 9)
    damage(torn)
    result = search(tmp_path, 1, 2)
    assert result.found is not None and result.found.step == 5
    assert [rejected.path for rejected in result.rejected] == [torn]
    assert re.search(reason, result.rejected[0].reason)


def test_another_configuration_is_rejected(tmp_path: Path) -> None:
    saved(tmp_path, 1, 5, config="other")
    result = search(tmp_path, 1)
    assert result.found is None
    assert result.rejected[0].reason == "made under configuration other, this job is c0ffee"


def test_retention_keeps_two_valid_ones_and_never_removes_the_last(tmp_path: Path) -> None:
    folders = [saved(tmp_path, 1, step) for step in (1, 2, 3, 4, 5)]
    for folder in folders[2:]:
        flip_a_bit(folder)
    assert checkpoint.retain(AttemptFolder(tmp_path, 1), CONFIG) == []  # 3, 4, 5 do not count as kept
    found = search(tmp_path, 1).found
    assert found is not None and found.step == 2
    saved(tmp_path, 1, 6)
    assert checkpoint.retain(AttemptFolder(tmp_path, 1), CONFIG) == [folders[0]]


def test_a_state_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    folder = checkpoint.save(AttemptFolder(tmp_path, 1), {"evil": Path("x")}, Cursor(0, 1, 1, 1), {}, CONFIG)
    found = search(tmp_path, 1).found
    assert found is not None and found.path == folder
    with pytest.raises(CheckpointError, match="cannot read it"):
        found.load_state()


def test_failed_saves_are_borne_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    saver = saving.Saver(AttemptFolder(tmp_path, 1), CONFIG, 1.0, said.append)
    state = {"weights": torch.zeros(2)}
    assert saver.save(state, Cursor(0, 1, 1, 1), {})
    with monkeypatch.context() as patched:

        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(checkpoint, "write_durable", full)
        assert not saver.save(state, Cursor(0, 2, 2, 2), {})
    assert (saver.failures, saver.durable_step) == (1, 1) and "No space left" in said[0]
    assert saver.save(state, Cursor(0, 3, 3, 3), {}) and saver.failures == 0
    monkeypatch.setattr(checkpoint, "write_durable", full)
    with pytest.raises(CheckpointError, match="last durable step 3"):
        for step in range(4, 20):
            saver.save(state, Cursor(0, step, step, step), {})
    assert saver.failures == saving.FAILURES_ALLOWED
