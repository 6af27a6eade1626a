from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.spot.market import EPOCH, Trace, read_trace, synthetic
from mlcost_pipeline.spot.policy import PoolView
from tests.spot.world import ORIGIN, World


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_a_trace_tells_when_capacity_is_lost_and_how_old_its_spell_is() -> None:
    trace = Trace(600, np.array([1, 1, 0, 1], dtype=np.bool_))
    assert [trace.at(EPOCH + minutes(m)) for m in (0, 9.9, 10, 20, 30, 40)] == [True, True, True, False, True, True]
    assert trace.lost_at(EPOCH + minutes(3)) == EPOCH + minutes(20)
    assert trace.lost_at(EPOCH + minutes(35)) == EPOCH + minutes(60)  # it repeats
    assert trace.spell_began(EPOCH + minutes(45)) == EPOCH + minutes(30)
    assert Trace(600, np.array([1], dtype=np.bool_)).lost_at(EPOCH) is None


def test_a_synthetic_trace_is_its_seed_and_its_spells_age_as_recorded_ones() -> None:
    first, again, other = synthetic(5), Trace(600, synthetic.__wrapped__(5).available), synthetic(6)
    assert np.array_equal(first.available, again.available) and not np.array_equal(first.available, other.available)
    up = np.concatenate([synthetic(seed).available for seed in range(20)]).astype(int)
    ends = np.flatnonzero(np.diff(up)) + 1
    lengths = np.diff(ends)
    of_up = lengths[up[ends[:-1]] == 1]
    assert 0.5 < up.mean() < 0.75
    assert 0.27 < np.mean(of_up == 1) < 0.33  # hazard of the first tick: .299
    assert np.mean(of_up > 16) > 0.1  # and yet some last for hours


@pytest.mark.parametrize("text", ["", "{}", '{"metadata": {"gap_seconds": 600}, "data": []}', '{"data": [1]}'])
def test_what_is_no_trace_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    with pytest.raises(JobError, match=r"trace\.json"):
        read_trace(file)


def test_instances_obtainable_count_as_available(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"metadata": {"gap_seconds": 195}, "data": [0, 4, 16]}))
    assert read_trace(file).available.tolist() == [False, True, True]


def test_a_look_at_the_pools_is_kept(tmp_path: Path) -> None:
    from mlcost_pipeline.spot.local import LocalCapacity

    world = World(tmp_path, up=[1] * 100)
    views = LocalCapacity(world.warehouse, world.settings, world.clock).pools()
    assert isinstance(views[0], PoolView) and [view.available for view in views] == [True, True]
    rows = world.warehouse.rows("market_observations")
    assert [(row["pool"], row["available"], row["price"]) for row in rows] == [
        ("od-a", True, Decimal("3.06")),
        ("spot-a", True, Decimal("0.9731")),
    ]
    assert all(row["at"] >= ORIGIN for row in rows)
