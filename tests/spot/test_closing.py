"""What an attempt's run says of its busy time: who measured it, for how much of the attempt, and no more than that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy.measured import Busy
from mlcost_pipeline.cost.runs import find_run
from mlcost_pipeline.spot.attempts import Attempt
from mlcost_pipeline.spot.closing import settle
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import two_models

CLAIMED = datetime(2026, 3, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
CLOCK = Clock.fixed_origin(CLAIMED + 2 * HOUR, rate=100)


def closed(tmp_path: Path, sampled: Busy | None, **told: Any) -> tuple[float | None, str | None, float | None]:
    """An attempt of one hour, settled."""
    warehouse = Warehouse(tmp_path / "warehouse")
    attempt = Attempt("j1", 1, "spot", "spot", Decimal(1), "", CLAIMED, CLAIMED, CLAIMED + HOUR, "succeeded", **told)
    warehouse.append("run_records", [{
        "run_id": "j1/1", "job_id": "j1", "attempt": 1, "model": "recs", "stage": "training", "purpose": "retrain",
        "started_at": CLAIMED, "status": "running",
    }])  # fmt: skip
    if sampled is not None:
        hold = {"resource_id": "spot/j1/1", "share_milli": 1000, "busy": {"trainer": sampled.as_json()}}
        warehouse.state.create("runs/j1/1", hold)
    for _ in range(2):
        settle(warehouse, two_models(), CLOCK, attempt)
    run = find_run(warehouse, "j1/1")
    assert run is not None and run["status"] == "succeeded"
    waited = told.get("data_wait_wall_seconds")
    assert run["data_wait_seconds"] == (None if waited is None else waited * 100)
    return run["busy_seconds"], run["busy_metric"], run["busy_coverage"]


def of(seconds: float, covered: float, metric: str = "process_cpu") -> Busy:
    return Busy(seconds, metric, 0.0, "cpu", 9, covered, 1.0)


def test_the_sampler_says_how_busy_it_was_and_how_long_anybody_looked(tmp_path: Path) -> None:
    assert closed(tmp_path, of(900, 2700), data_wait_wall_seconds=4.0) == (900, "process_cpu", 0.75)


def test_the_trainers_own_account_fills_in_where_it_reaches_further(tmp_path: Path) -> None:
    """10 s of CPU are 1000 s of its clock, told 59 minutes after the claim."""
    told = {"cpu_wall_seconds": 10.0, "beat_at": CLAIMED + timedelta(minutes=59)}
    assert closed(tmp_path / "a", of(900, 1800), **told) == (1000.0, "process_cpu", pytest.approx(59 / 60))
    assert closed(tmp_path / "b", of(1100, 1800), **told) == (1100.0, "process_cpu", 0.5)  # its children count too
    assert closed(tmp_path / "c", None, **told) == (1000.0, "process_cpu", pytest.approx(59 / 60))


def test_cpu_time_never_stands_in_for_time_on_a_gpu(tmp_path: Path) -> None:
    told = {"cpu_wall_seconds": 30.0, "beat_at": CLAIMED + HOUR}
    assert closed(tmp_path, of(700, 1800, "nvml_any_kernel"), **told) == (700, "nvml_any_kernel", 0.5)


def test_without_any_measurement_it_is_unknown_and_more_than_was_billed_is_not_busy(tmp_path: Path) -> None:
    assert closed(tmp_path / "a", None) == (None, None, None)
    assert closed(tmp_path / "b", of(9999, 3600)) == (3600.0, "process_cpu", 1.0)
