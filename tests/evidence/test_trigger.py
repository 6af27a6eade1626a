"""What a sensor is told: once for each launch that is needed, and a reason with numbers for each that is not."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evidence.acts import freeze, request_retrain, unfreeze
from mlcost_pipeline.evidence.decision import take
from mlcost_pipeline.evidence.trigger import Fire, Skip, day_due, retrain_due
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.jobs import end_job, note_candidate, set_current_attempt
from mlcost_pipeline.spot.lease import held
from mlcost_pipeline.warehouse import Warehouse
from tests.evidence.worlds import AS_OF, FIRST, clock_at, fraud_world, settings_of


@pytest.fixture
def decided(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """A decided retrain, in a warehouse whose tables can no longer be read."""
    warehouse = fraud_world(tmp_path / "warehouse", caught=2)
    assert take(warehouse, settings, clock_at(), "fraud", AS_OF).job_open
    return warehouse


def test_a_thousand_ticks_are_one_launch_and_read_no_table(
    decided: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a tick read a table")

    monkeypatch.setattr(Warehouse, "_run", refuse)
    reads: list[str] = []
    get = decided.state.get
    monkeypatch.setattr(decided.state, "get", lambda path: (reads.append(path), get(path))[1])
    found = [retrain_due(decided, settings, "fraud") for _ in range(1000)]
    fires = {each.key for each in found if isinstance(each, Fire)}
    assert len(fires) == 1 and next(iter(fires)).endswith(":1")
    assert len(reads) == 5 * 1000  # model, job, freeze, lease, summary


def test_a_live_supervisor_holds_and_a_dead_one_is_due_again(decided: Warehouse, settings: Settings) -> None:
    first = retrain_due(decided, settings, "fraud")
    assert isinstance(first, Fire) and first.decision_id is not None
    with held(decided, first.decision_id):
        busy = retrain_due(decided, settings, "fraud")
        assert isinstance(busy, Skip) and "in progress" in busy.reason and "supervisor 1" in busy.reason
    again = retrain_due(decided, settings, "fraud")
    assert isinstance(again, Fire) and again.key == f"{first.decision_id}:2"


def test_a_trained_job_waits_for_its_gate_and_not_for_ever(decided: Warehouse, settings: Settings) -> None:
    first = retrain_due(decided, settings, "fraud")
    assert isinstance(first, Fire) and first.decision_id is not None
    with held(decided, first.decision_id):
        assert set_current_attempt(decided, first.decision_id, 1)
        assert note_candidate(decided, first.decision_id, attempt=1, version="fraud-2")
    waiting = retrain_due(decided, settings, "fraud")
    assert isinstance(waiting, Skip) and "gate" in waiting.reason
    assert waiting.wait_seconds is not None and waiting.wait_seconds <= 20
    assert isinstance(retrain_due(decided, settings, "fraud", gate_seconds=0), Fire)


def test_an_ended_job_is_not_due(decided: Warehouse, settings: Settings) -> None:
    first = retrain_due(decided, settings, "fraud")
    assert isinstance(first, Fire) and first.decision_id is not None
    end_job(decided, clock_at(), first.decision_id, "rejected", "worse")
    found = retrain_due(decided, settings, "fraud")
    assert isinstance(found, Skip) and "its job has ended" in found.reason


def test_a_frozen_job_is_not_launched(decided: Warehouse, settings: Settings) -> None:
    freeze(decided, clock_at(), model="fraud", who="Ada", reason="audit")
    found = retrain_due(decided, settings, "fraud")
    assert isinstance(found, Skip) and "frozen by Ada: audit" in found.reason
    unfreeze(decided, clock_at(), model="fraud", who="Ada", reason="done")
    assert isinstance(retrain_due(decided, settings, "fraud"), Fire)


def test_an_open_job_waits_while_its_model_only_observes(decided: Warehouse, tmp_path: Path) -> None:
    observing = settings_of(tmp_path / "warehouse", mode="observe")
    found = retrain_due(decided, observing, "fraud")
    assert isinstance(found, Skip) and "open but not launched: mode is observe" in found.reason
    assert isinstance(retrain_due(decided, settings_of(tmp_path / "warehouse"), "fraud"), Fire)


def test_every_skip_says_why_with_numbers(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    assert retrain_due(warehouse, settings, "fraud") == Skip("fraud: no decision yet")
    take(warehouse, settings, clock_at(), "fraud", AS_OF)
    held_back = retrain_due(warehouse, settings, "fraud")
    assert isinstance(held_back, Skip)
    assert "hold (no_evidence)" in held_back.reason and "age_days 21 of 60" in held_back.reason


def test_observing_says_that_it_would(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "warehouse", mode="observe")
    warehouse = fraud_world(tmp_path / "warehouse", caught=2)
    take(warehouse, settings, clock_at(), "fraud", AS_OF)
    found = retrain_due(warehouse, settings, "fraud")
    assert isinstance(found, Skip) and "would retrain, but mode is observe" in found.reason


def test_only_the_newest_complete_day_is_due(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    found = day_due(warehouse, settings, clock_at(), "fraud")
    assert isinstance(found, Fire) and found.day == AS_OF
    take(warehouse, settings, clock_at(), "fraud", AS_OF)
    for hour in range(24):
        clock = Clock.fixed_origin(clock_at().now() + timedelta(minutes=58 * hour))
        skipped = day_due(warehouse, settings, clock, "fraud")
        assert isinstance(skipped, Skip) and "2025-05-04 is decided (hold, no_evidence)" in skipped.reason
    later = day_due(warehouse, settings, clock_at(AS_OF + timedelta(days=5)), "fraud")
    assert isinstance(later, Fire) and later.day == AS_OF + timedelta(days=5)


def test_what_a_person_does_makes_the_decided_day_due_once_more(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    take(warehouse, settings, clock_at(), "fraud", AS_OF)
    act = request_retrain(warehouse, clock_at(), model="fraud", who="Ada", reason="try")
    found = day_due(warehouse, settings, clock_at(), "fraud")
    assert isinstance(found, Fire) and found.key == f"fraud:{AS_OF}:{act}"
    take(warehouse, settings, clock_at(), "fraud", AS_OF)
    assert isinstance(day_due(warehouse, settings, clock_at(), "fraud"), Skip)


def test_before_the_first_day_nothing_is_due(tmp_path: Path, settings: Settings) -> None:
    found = day_due(Warehouse(tmp_path), settings, clock_at(FIRST - timedelta(days=1)), "fraud")
    assert isinstance(found, Skip) and str(date(2025, 3, 3)) in found.reason
