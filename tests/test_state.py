"""State objects: conditional create and compare-and-swap, by threads, processes and after a kill."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from mlcost_pipeline.errors import StateConflict, WarehouseError
from mlcost_pipeline.state import StateStore


def test_only_the_first_create_makes_the_object(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    assert state.create("jobs/a", {"by": "first"})
    assert not state.create("jobs/a", {"by": "second"})
    assert state.get("jobs/a").value == {"by": "first"}  # type: ignore[union-attr]


def test_of_many_claimants_exactly_one_wins(tmp_path: Path) -> None:
    state, won = StateStore(tmp_path), []
    claimants = [
        threading.Thread(target=lambda i=i: won.append(i) if state.create("claim", {"by": i}) else None)
        for i in range(16)
    ]
    for thread in claimants:
        thread.start()
    for thread in claimants:
        thread.join()
    assert len(won) == 1
    assert state.get("claim").value == {"by": won[0]}  # type: ignore[union-attr]


def test_a_swap_with_an_old_serial_is_refused_even_if_the_content_is_equal(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    state.create("pointer", {"version": "a"})
    first = state.get("pointer")
    assert first is not None
    state.swap("pointer", {"version": "b"}, serial=first.serial)
    state.swap("pointer", {"version": "a"}, serial=first.serial + 1)
    with pytest.raises(StateConflict, match="expected serial 1, found serial 3"):
        state.swap("pointer", {"version": "c"}, serial=first.serial)


def _count_up(root: str, times: int) -> None:
    state = StateStore(Path(root))
    for _ in range(times):
        state.update("counter", lambda value: {"n": (value or {"n": 0})["n"] + 1})


def test_updates_of_several_processes_all_count(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_count_up, args=(str(tmp_path), 25)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert StateStore(tmp_path).get("counter").value == {"n": 75}  # type: ignore[union-attr]


def test_names_that_are_no_file_names_are_kept(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    for name in ("0012/ü|2025-06", "a.b", "..", "x y"):
        assert state.create("scopes/" + name.replace("/", "~"), {"name": name})
    assert state.names("scopes") == sorted(["0012~ü|2025-06", "a.b", "..", "x y"])
    assert not (tmp_path.parent / "x.json").exists()


def test_a_torn_object_says_which_file_it_is(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    state.create("a", {"x": 1})
    (tmp_path / "a.json").write_text('{"serial": 1, "val')
    with pytest.raises(WarehouseError, match=r"a\.json.*not JSON"):
        state.get("a")
