"""The log of lookups: what was served is rolled into the table once, whatever tore or was rolled before."""

from __future__ import annotations

import json
import os
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.inference.lookup import Lookup
from mlcost_pipeline.inference.lookup_log import LineLog, roll_lookups, roll_requests
from mlcost_pipeline.inference.publication import make_version
from mlcost_pipeline.inference.served import measured_fallback, served
from mlcost_pipeline.warehouse import Warehouse


def line(number: int, **changes: Any) -> dict[str, Any]:
    row = {"request_id": f"r{number}", "looked_up_at": "2025-03-21T08:00:00+00:00", "user_id": "007", "arm": "treated"}
    rest = {"tier": "fresh", "reason": "current", "version": None, "items": ["a", "b"], "age_seconds": 3.0}
    return {**row, **rest, "latency_seconds": 0.001, **changes}


def only_file(folder: Path) -> Path:
    (file,) = folder.glob("*.jsonl")
    return file


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def log(warehouse: Warehouse) -> LineLog:
    return LineLog(warehouse.root / "logs" / "lookups" / "shop")


def test_lines_become_rows_once(warehouse: Warehouse, log: LineLog) -> None:
    log.write(line(1))
    log.write(line(2, user_id=None))
    assert roll_lookups(warehouse).rows == 2
    assert roll_lookups(warehouse).rows == 0
    log.write(line(3))
    assert roll_lookups(warehouse).rows == 1
    rows = warehouse.rows("lookups")
    assert [row["request_id"] for row in rows] == ["r1", "r2", "r3"]
    assert rows[0]["items"] == ["a", "b"] and rows[0]["user_id"] == "007" and rows[1]["user_id"] is None


def test_a_roll_killed_before_it_noted_how_far_it_came_doubles_nothing(
    warehouse: Warehouse, log: LineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(line(1))
    with monkeypatch.context() as patch:
        patch.setattr(warehouse.state, "update", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            roll_lookups(warehouse)
    log.write(line(2))
    assert roll_lookups(warehouse).rows == 2
    assert len(warehouse.rows("lookups")) == 2


def test_a_torn_last_line_waits_and_a_damaged_one_is_counted(warehouse: Warehouse, log: LineLog) -> None:
    log.write(line(1))
    file = only_file(warehouse.root / "logs" / "lookups" / "shop")
    whole = (json.dumps(line(2)) + "\n").encode()
    with file.open("ab") as stream:
        stream.write(b'{"request_id": "gone"\n')
        stream.write((json.dumps(line(9, items="not a list")) + "\n").encode())
        stream.write((json.dumps(line(8, looked_up_at="2025-03-21T08:00:00")) + "\n").encode())
        stream.write((json.dumps(line(7, tier=None)) + "\n").encode())
        stream.write(whole[:20])
    rolled = roll_lookups(warehouse)
    assert (rolled.rows, rolled.damaged, rolled.torn) == (1, 4, 1)
    with file.open("ab") as stream:
        stream.write(whole[20:])
    rolled = roll_lookups(warehouse)
    assert (rolled.rows, rolled.damaged, rolled.torn) == (1, 0, 0)
    assert [row["request_id"] for row in warehouse.rows("lookups")] == ["r1", "r2"]


def test_of_a_request_that_was_answered_twice_the_last_answer_counts(warehouse: Warehouse, log: LineLog) -> None:
    log.write(line(1, tier="popular"))
    log.write(line(1, tier="fresh"))
    roll_lookups(warehouse)
    assert [row["tier"] for row in warehouse.rows("lookups")] == ["fresh"]


def test_the_background_writes_within_a_second_and_the_rest_on_close(warehouse: Warehouse) -> None:
    log = LineLog(warehouse.root / "logs" / "requests" / "http", flush_seconds=0.05)
    row = {"request_id": "a", "arrived_at": "2025-03-21T08:00:00+00:00", "endpoint": "shop/score", "batch_size": 3}
    log.write({**row, "queue_seconds": 0.0, "service_seconds": 0.01})
    deadline = time.monotonic() + 1
    while not roll_requests(warehouse).rows:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    log.write({**row, "request_id": "b", "queue_seconds": 0.0, "service_seconds": 0.01})
    log.close()
    assert roll_requests(warehouse).rows == 1
    assert [row["batch_size"] for row in warehouse.rows("requests")] == [3, 3]


def test_a_full_disk_loses_no_line_and_stops_no_answer(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = Lookup(shop.warehouse, shop.settings, shop.model)
    write = os.write

    def half_then_full(stream: int, data: bytes) -> int:
        write(stream, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    lookup.recommend("u1", at=shop.cut, request_id="before")
    with monkeypatch.context() as patch:
        patch.setattr("mlcost_pipeline.inference.lookup_log.os.write", half_then_full)
        assert lookup.recommend("u2", at=shop.cut, request_id="during").items
    lookup.recommend("u3", at=shop.cut, request_id="after")
    rolled = roll_lookups(shop.warehouse)
    assert (rolled.rows, rolled.damaged, rolled.torn) == (3, 0, 1)
    assert {row["request_id"] for row in shop.warehouse.rows("lookups")} == {"before", "during", "after"}


def test_lookups_are_counted_by_tier_and_sum_to_the_lookups(shop: Any) -> None:
    made = make_version(shop.warehouse, shop.settings, shop.clock, shop.model, as_of=shop.day)
    lookup = Lookup(shop.warehouse, shop.settings, shop.model)
    at = shop.cut + timedelta(hours=2)
    for user in ("u1", "u2", "u2", "stranger", None):
        lookup.recommend(user, at=at)
    roll_lookups(shop.warehouse)
    found = served(shop.warehouse, shop.settings, shop.model, date(2025, 3, 21), date(2025, 3, 22))
    assert (found.lookups, found.users, found.fresh_users) == (5, 3, 2)
    assert found.tiers == {"fresh": 3, "popular": 2} and sum(found.tiers.values()) == found.lookups
    assert {(c.tier, c.reason): c.lookups for c in found.counts}[("popular", "anonymous")] == 1
    assert (found.fallback, found.fallback_share) == (1, 0.25)
    assert found.age_p50_seconds == found.age_p95_seconds == 7200
    assert (found.data_cut, found.published_users) == (shop.cut, made.users)
    assert measured_fallback(found, 0.5) == 0.25


def test_a_bound_on_lookups_that_nobody_made_is_not_said_to_hold(shop: Any) -> None:
    found = served(shop.warehouse, shop.settings, shop.model, date(2025, 1, 1), date(2025, 1, 2))
    assert found.lookups == 0 and found.fallback_share is None
    with pytest.raises(NothingCompared, match="untested"):
        measured_fallback(found, 0.5)
