"""What a sensor makes of a trigger: requests once a key, again after a failure, and a reason where nothing is due."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from mlcost_pipeline.triggers import MAX_FAILURES, Found, Request, note_failure
from mlcost_pipeline.warehouse import Warehouse
from sensors.request import answer

FOUND = Found([Request("fraud_day", "fraud:day:2025-06-01", "2025-06-01 is complete", partition="2025-06-01")])


def keys(result: dg.SensorResult | dg.SkipReason) -> list[str | None]:
    assert isinstance(result, dg.SensorResult)
    return [request.run_key for request in result.run_requests or []]


def test_nothing_due_is_a_reason_with_numbers(tmp_path: Path) -> None:
    skipped = answer(Found(reason="12 of 50 rows"), Warehouse(tmp_path))
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "12 of 50 rows"


def test_the_same_work_has_the_same_key_however_often_it_is_asked(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    assert {key for _ in range(1000) for key in keys(answer(FOUND, warehouse))} == {"fraud:day:2025-06-01"}


def test_a_failed_run_does_not_block_its_work_for_ever(tmp_path: Path) -> None:
    warehouse, seen = Warehouse(tmp_path), []
    for attempt in range(MAX_FAILURES):
        seen += keys(answer(FOUND, warehouse))
        note_failure(warehouse, FOUND.requests[0].key, f"run-{attempt}")
        note_failure(warehouse, FOUND.requests[0].key, f"run-{attempt}")  # reported twice, counted once
    assert seen == [f"fraud:day:2025-06-01{again}" for again in ("", ":again-1", ":again-2")]
    given_up = answer(FOUND, warehouse)
    assert isinstance(given_up, dg.SkipReason)
    assert "fraud_day failed 3 times and is not requested again" in str(given_up.skip_message)


def test_a_ledger_announces_its_partition(tmp_path: Path) -> None:
    found = Found([Request("ledger", "k", "behind", partition="acct|2025-06")])
    result = answer(found, Warehouse(tmp_path))
    assert isinstance(result, dg.SensorResult)
    (announced,) = result.dynamic_partitions_requests or []
    assert list(announced.partition_keys) == ["acct|2025-06"]
