from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.spot import jobs
from tests.spot.world import DATA, JOB, MODEL, ORIGIN, World


def model_state(world: World) -> dict:
    stored = world.warehouse.state.get(f"models/{MODEL}")
    assert stored is not None
    return stored.value


def open_(world: World, job_id: str) -> bool:
    return jobs.open_job(world.warehouse, world.settings, world.clock, job_id=job_id, model=MODEL, data_version=DATA)


def test_one_job_is_open_however_often_and_by_whomever_it_is_opened(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    first = jobs.require_job(world.warehouse, JOB)
    assert open_(world, JOB) and not open_(world, "job2")
    assert jobs.job_state(world.warehouse, JOB) == first  # the deadline is counted from the first call
    assert jobs.open_job_of(world.warehouse, MODEL) == JOB and jobs.job_state(world.warehouse, "job2") is None
    rows = world.warehouse.rows("jobs")
    assert [(row["job_id"], row["state"]) for row in rows] == [(JOB, "open")]
    assert timedelta(hours=6) <= rows[0]["deadline"] - ORIGIN < timedelta(hours=6, minutes=30)


def test_opening_killed_after_the_claim_is_finished_by_the_next_call(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    jobs.end_job(world.warehouse, world.clock, JOB, "promoted", "better")
    world.warehouse.state.update(f"models/{MODEL}", lambda now: {**(now or {}), "open_job": "job2"})
    assert open_(world, "job2")
    assert jobs.require_job(world.warehouse, "job2")["state"] == "open"


def test_an_ended_job_frees_the_model_and_is_never_opened_again(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    world.warehouse.state.update(f"models/{MODEL}", lambda now: {**(now or {}), "incumbent": "shop-1", "mine": 1})
    jobs.end_job(world.warehouse, world.clock, JOB, "exhausted", "three errors")
    jobs.end_job(world.warehouse, world.clock, JOB, "promoted", "too late")
    assert model_state(world) == {
        "incumbent": "shop-1", "open_job": None, "blocked": ["shop-1"], "cooldown_factor": 1, "promoted_at": None,
        "mine": 1,
    }  # fmt: skip
    row = world.warehouse.rows("jobs")[0]
    assert (row["state"], row["reason"]) == ("exhausted", "three errors") and row["ended_at"] > ORIGIN
    assert not open_(world, JOB) and open_(world, "job2")


def test_an_end_killed_before_the_model_was_freed_is_finished_by_whoever_comes_next(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    world.warehouse.state.update(
        f"jobs/{JOB}/job", lambda now: {**(now or {}), "state": "cancelled", "ended_at": ORIGIN.isoformat()}
    )
    assert open_(world, "job2")
    assert {row["job_id"]: row["state"] for row in world.warehouse.rows("jobs")} == {JOB: "cancelled", "job2": "open"}
    assert model_state(world)["blocked"] == [None]  # even the lack of an incumbent is blocked until it is rearmed


def test_a_stale_attempt_names_no_candidate(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    assert jobs.set_current_attempt(world.warehouse, JOB, 1) and jobs.set_current_attempt(world.warehouse, JOB, 2)
    assert not jobs.set_current_attempt(world.warehouse, JOB, 1)
    assert not jobs.note_candidate(world.warehouse, JOB, attempt=1, version="old")
    assert jobs.note_candidate(world.warehouse, JOB, attempt=2, version="new")
    assert jobs.note_candidate(world.warehouse, JOB, attempt=2, version="new")
    assert not jobs.note_candidate(world.warehouse, JOB, attempt=2, version="other")
    assert jobs.require_job(world.warehouse, JOB)["candidate"] == {"attempt": 2, "version": "new"}


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, up=[1])
    with pytest.raises(JobError, match="ends no job"):
        jobs.end_job(world.warehouse, world.clock, JOB, "finished", "")
    with pytest.raises(JobError, match="never opened"):
        jobs.cancel_job(world.warehouse, world.clock, "job9", "")
