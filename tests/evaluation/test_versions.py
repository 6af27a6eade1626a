"""Registering, promoting and rejecting: once, by the right attempt, against the right incumbent, killed anywhere."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError, ModelError
from mlcost_pipeline.evaluation.candidates import settle, waiting_candidate
from mlcost_pipeline.evaluation.gate import GateResult
from mlcost_pipeline.evaluation.versions import (
    all_versions,
    get_version,
    incumbent,
    latest_of,
    load_predictor,
    promote,
    record_gate,
    register,
    reject,
)
from mlcost_pipeline.spot.jobs import cancel_job, job_state
from mlcost_pipeline.state import StateStore
from mlcost_pipeline.training.jobs import announce_end
from mlcost_pipeline.warehouse import Warehouse
from tests.evaluation.toys import MIDNIGHT, TOY, settings_of, shop_model, trained

CLOCK = Clock.fixed_origin(MIDNIGHT)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def verdict(version: str, against: str | None, *, passed: bool = True) -> GateResult:
    return GateResult(
        passed, "harmless" if passed else "harmful", "a sentence", "shop", version, against, "x", "d1", "r1"
    )


def put_in_force(warehouse: Warehouse, job: str) -> str:
    before = incumbent(warehouse, "shop")
    version = trained(warehouse, "shop", job, shop_model(3, [0]))
    gate = verdict(version, None if before is None else before.version)
    assert promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id=job, gate=gate)
    return version


def settled(warehouse: Warehouse) -> dict[str, Any]:
    """All that a promotion leaves behind, without times."""
    model = warehouse.state.get("models/shop")
    assert model is not None
    versions = [
        (v.version, v.gate_passed, v.promoted_at is not None, v.retired_at is not None)
        for v in all_versions(warehouse, "shop")
    ]
    jobs = [(row["job_id"], row["state"], row["ended_at"] is not None) for row in warehouse.rows("jobs")]
    state = {key: value for key, value in model.value.items() if key != "promoted_at"}
    return {"model": state, "versions": versions, "jobs": jobs}


def test_registering_twice_is_one_version_with_a_relative_path(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    assert trained(warehouse, "shop", "j1", shop_model(3, [0])) == version
    (found,) = all_versions(warehouse, "shop")
    assert found.artefact == "artefacts/shop/jobs/j1/attempts/1/artefact"
    assert latest_of(warehouse, "shop") == found and incumbent(warehouse, "shop") is None
    assert hasattr(load_predictor(warehouse, "shop", version), "represent")


def test_a_later_attempt_takes_the_place_of_an_earlier_one_never_the_other_way(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    assert trained(warehouse, "shop", "j1", shop_model(3, [1]), attempt=2) == version
    assert get_version(warehouse, "shop", version).attempt == 2
    with pytest.raises(JobError, match="attempt 1 is stale"):
        trained(warehouse, "shop", "j1", shop_model(3, [0]), attempt=1)


@pytest.mark.parametrize("damage", ["flip", "drop", "add"])
def test_an_artefact_that_is_not_what_was_trained_is_refused(warehouse: Warehouse, damage: str) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    file = get_version(warehouse, "shop", version).folder(warehouse) / "toy.json"
    if damage == "flip":
        data = bytearray(file.read_bytes())
        data[3] ^= 1
        file.write_bytes(data)
    elif damage == "drop":
        file.unlink()
    else:
        (file.parent / "more.json").write_text("{}")
    with pytest.raises(ModelError, match="differs from what its attempt wrote"):
        load_predictor(warehouse, "shop", version)


def test_an_attempt_without_a_result_is_not_registered(warehouse: Warehouse) -> None:
    folder = warehouse.folder("shop", "jobs", "j1", "attempts", "1", "artefact")
    with pytest.raises(ModelError, match="never finished"):
        register(warehouse, model="shop", family=TOY, job_id="j1", attempt=1, artefact=folder, training_cut=MIDNIGHT)


def test_an_unknown_version_is_answered_with_the_known_ones(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    with pytest.raises(ModelError, match=version):
        get_version(warehouse, "shop", "nope")


def test_promotion_puts_in_force_retires_and_ends_the_job(warehouse: Warehouse) -> None:
    first = put_in_force(warehouse, "j1")
    second = put_in_force(warehouse, "j2")
    found = incumbent(warehouse, "shop")
    old, new = get_version(warehouse, "shop", first), get_version(warehouse, "shop", second)
    assert found == new and new.gate_passed and new.retired_at is None
    assert old.retired_at == new.promoted_at and new.promoted_at is not None
    assert MIDNIGHT <= new.promoted_at < MIDNIGHT + timedelta(hours=1)
    assert {row["job_id"]: row["state"] for row in warehouse.rows("jobs")} == {"j1": "promoted", "j2": "promoted"}
    state = warehouse.state.get("models/shop")
    assert state is not None and state.value["open_job"] is None and state.value["cooldown_factor"] == 1


def test_unknown_keys_of_the_models_state_are_kept(warehouse: Warehouse) -> None:
    warehouse.state.create("models/shop", {"blocked": ["x"], "something": 5})
    put_in_force(warehouse, "j1")
    state = warehouse.state.get("models/shop")
    assert state is not None and state.value["blocked"] == ["x"] and state.value["something"] == 5


def test_a_stale_attempt_changes_nothing(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]), attempt=2)
    before = settled(warehouse)
    gate = verdict(version, None)
    assert not promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=gate)
    failed = verdict(version, None, passed=False)
    assert not reject(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=failed)
    assert settled(warehouse) == before


def test_of_two_promoters_judged_against_the_same_incumbent_one_wins(warehouse: Warehouse) -> None:
    old = put_in_force(warehouse, "j0")
    mine = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    theirs = put_in_force(warehouse, "j2")
    warehouse.state.update("models/shop", lambda now: {**(now or {}), "open_job": "j1"})
    assert not promote(warehouse, CLOCK, model="shop", version=mine, attempt=1, job_id="j1", gate=verdict(mine, old))
    found = incumbent(warehouse, "shop")
    assert found is not None and found.version == theirs
    again = verdict(mine, theirs)  # judged again, against what is in force now
    assert promote(warehouse, CLOCK, model="shop", version=mine, attempt=1, job_id="j1", gate=again)


def test_the_same_promotion_by_two_processes_is_one(warehouse: Warehouse) -> None:
    version = put_in_force(warehouse, "j1")
    once = settled(warehouse)
    at = get_version(warehouse, "shop", version).promoted_at
    gate = verdict(version, None)
    assert promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=gate)
    assert settled(warehouse) == once and get_version(warehouse, "shop", version).promoted_at == at


def test_promoters_at_the_same_time_promote_once(warehouse: Warehouse) -> None:
    old = put_in_force(warehouse, "j0")
    version = trained(warehouse, "shop", "j1", shop_model(3, [1]))
    gate = verdict(version, old)

    def act(_: int) -> bool:
        return promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=gate)

    with ThreadPoolExecutor(4) as pool:
        assert any(pool.map(act, range(4)))
    new, before = get_version(warehouse, "shop", version), get_version(warehouse, "shop", old)
    assert new.promoted_at == before.retired_at and new.retired_at is None
    assert [row["state"] for row in warehouse.rows("jobs")] == ["promoted", "promoted"]


def test_a_cancelled_job_promotes_nothing(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    cancelled = {"state": "cancelled", "ended_at": MIDNIGHT.isoformat()}
    warehouse.state.update("jobs/j1/job", lambda now: {**(now or {}), **cancelled})
    gate = verdict(version, None)
    assert not promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=gate)
    assert incumbent(warehouse, "shop") is None


def test_a_gate_that_failed_or_judged_another_promotes_nothing(warehouse: Warehouse) -> None:
    version = trained(warehouse, "shop", "j1", shop_model(3, [0]))
    for gate in (verdict(version, None, passed=False), verdict("other", None)):
        with pytest.raises(ModelError, match="cannot be promoted"):
            promote(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id="j1", gate=gate)


def test_rejection_keeps_the_incumbent_and_doubles_the_cooldown_once(warehouse: Warehouse) -> None:
    old = put_in_force(warehouse, "j0")
    for number, factor in enumerate((2, 4, 4), start=1):
        version = trained(warehouse, "shop", f"j{number}", shop_model(3, [0]))
        gate = verdict(version, old, passed=False)
        for _ in range(2):
            assert reject(warehouse, CLOCK, model="shop", version=version, attempt=1, job_id=f"j{number}", gate=gate)
        state = warehouse.state.get("models/shop")
        assert state is not None and state.value["cooldown_factor"] == factor and state.value["incumbent"] == old
        assert state.value["open_job"] is None
    assert get_version(warehouse, "shop", version).gate_passed is False


class Killed(Exception):
    """Stands for SIGKILL in these tests."""


def dying_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this many writes to tables and state through, then die before the next."""
    left = [writes]

    def guarded(write: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return write(*args, **kwargs)

        return attempt

    monkeypatch.setattr(Warehouse, "append", guarded(Warehouse.append))
    monkeypatch.setattr(StateStore, "update", guarded(StateStore.update))


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("writes", range(6))
def test_killed_between_any_two_writes_and_called_again(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, passed: bool
) -> None:
    other = Warehouse(tmp_path / "undisturbed")
    ends = []
    for place, disturbed in ((other, False), (warehouse, True)):
        old = put_in_force(place, "j0")
        version = trained(place, "shop", "j1", shop_model(3, [1]))
        gate = verdict(version, old, passed=passed)
        act = promote if passed else reject
        arguments: dict[str, Any] = {"model": "shop", "version": version, "attempt": 1, "job_id": "j1", "gate": gate}
        if disturbed:
            with monkeypatch.context() as patch:
                dying_after(writes, patch)
                try:
                    act(place, CLOCK, **arguments)
                except Killed:
                    pass
                else:
                    assert writes == 5 and not passed  # a rejection has five writes, a promotion six
        later = replace(CLOCK, origin=MIDNIGHT + timedelta(hours=3))
        assert act(place, later, **arguments)
        ends.append(settled(place))
    assert ends[0] == ends[1]


def test_a_job_that_is_being_promoted_can_no_longer_be_cancelled(warehouse: Warehouse) -> None:
    trained(warehouse, "shop", "j1", {})
    assert announce_end(warehouse, "j1", "promoted")
    with pytest.raises(JobError, match="cannot be cancelled, it is being promoted already"):
        cancel_job(warehouse, CLOCK, "j1", "wrong data")
    found = job_state(warehouse, "j1")
    assert found is not None and found.get("ended_at") is None


@pytest.mark.parametrize("passed", [True, False])
def test_a_judged_candidate_waits_while_its_model_may_not_act(warehouse: Warehouse, passed: bool) -> None:
    """Frozen, then only observing, then free: settled once, by the verdict that was on record all the time."""
    old = put_in_force(warehouse, "j0")
    version = trained(warehouse, "shop", "j1", shop_model(3, [1]))
    record_gate(warehouse, model="shop", version=version, gate=verdict(version, old, passed=passed))
    acting, observing = settings_of(warehouse.root), settings_of(warehouse.root, mode="observe")
    before = settled(warehouse)
    entry = {"act_id": "a", "who": "Ada", "reason": "audit", "at": MIDNIGHT.isoformat()}
    warehouse.state.update("freeze", lambda _: {"all": None, "models": {"shop": entry}})
    assert settle(warehouse, acting, CLOCK, "shop") is None
    warehouse.state.update("freeze", lambda _: {"all": None, "models": {"shop": None}})
    assert settle(warehouse, observing, CLOCK, "shop") is None
    assert settled(warehouse) == before and waiting_candidate(warehouse, "shop") is not None
    done = settle(warehouse, acting, CLOCK, "shop")
    assert done is not None and (done.version, done.promoted) == (version, passed)
    found = incumbent(warehouse, "shop")
    assert found is not None and found.version == (version if passed else old)
    assert settle(warehouse, acting, CLOCK, "shop") is None
