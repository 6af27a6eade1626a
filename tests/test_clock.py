"""A clock has an origin and a rate, is shared by all processes, and never stands still."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mlcost_pipeline.clock import Clock, model_clock, set_clock, standing_at
from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.warehouse import Warehouse
from tests.test_settings import GOOD, write

ORIGIN = datetime(2025, 6, 1, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def settings_with_clock(tmp_path: Path) -> Settings:
    text = GOOD.replace("    task: scoring", "    clock: {origin: 2025-06-01T06:00:00Z, rate: 600}\n    task: scoring")
    return load_settings(write(tmp_path, text))


def test_it_runs_at_its_rate() -> None:
    clock = Clock.fixed_origin(ORIGIN, rate=3600)
    first = clock.now()
    clock.sleep(60)
    assert ORIGIN <= first < clock.now()
    assert clock.now() - first >= timedelta(seconds=60)
    assert clock.wall_seconds(3600) == 1.0


def test_without_an_origin_now_is_now(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    clock = model_clock(Warehouse(tmp_path / "w"), settings, "fraud")
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)


def test_another_process_reads_the_same_clock(tmp_path: Path) -> None:
    settings = settings_with_clock(tmp_path)
    here = model_clock(Warehouse(tmp_path / "w"), settings, "fraud")
    code = (
        "import sys, pathlib; from mlcost_pipeline.clock import model_clock; "
        "from mlcost_pipeline.settings import load_settings; from mlcost_pipeline.warehouse import Warehouse; "
        "c = model_clock(Warehouse(pathlib.Path(sys.argv[1])), load_settings(pathlib.Path(sys.argv[2])), 'fraud'); "
        "print(c.anchor, c.now().isoformat())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "w"), str(tmp_path / "mlcost.yaml")],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1],
    ).stdout.split()  # fmt: skip
    assert float(out[0]) == here.anchor
    assert datetime.fromisoformat(out[1]) <= here.now()


def test_moving_it_moves_it_for_everybody(tmp_path: Path) -> None:
    settings, warehouse = settings_with_clock(tmp_path), Warehouse(tmp_path / "w")
    assert model_clock(warehouse, settings, "fraud").now().date() == ORIGIN.date()
    set_clock(warehouse, "fraud", ORIGIN + timedelta(days=3), rate=60)
    moved = model_clock(warehouse, settings, "fraud")
    assert moved.now() >= ORIGIN + timedelta(days=3)
    assert moved.rate == 60
    before = moved.now()
    time.sleep(0.01)
    assert moved.now() > before


def test_as_of_a_moment_a_clock_that_is_past_it_stands_at_it(tmp_path: Path) -> None:
    settings, warehouse = settings_with_clock(tmp_path), Warehouse(tmp_path / "w")
    model_clock(warehouse, settings, "fraud")
    stored = warehouse.state.get("clocks/fraud")
    assert stored is not None
    early, late = ORIGIN - timedelta(days=1), ORIGIN + timedelta(days=365)
    assert standing_at(stored.value, late) == stored.value and standing_at(None, datetime.now(UTC) + HOUR) is None
    held = standing_at(stored.value, early)
    assert held is not None and (held["origin"], held["rate"]) == (early.isoformat(), 0)
    of_another_boot = {**stored.value, "boot_id": "before", "anchor": -1e9}  # begins anew at its origin
    assert standing_at(of_another_boot, late) == of_another_boot
    assert standing_at(None, early) is not None
