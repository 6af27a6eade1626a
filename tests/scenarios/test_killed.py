"""The main job killed at ten random points and started again ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlcost_pipeline.cost.deliveries import bills_in_force
from mlcost_pipeline.cost.reconciliation import require_reconciled
from mlcost_pipeline.home import PROJECT
from mlcost_pipeline.warehouse import Warehouse
from tests.scenarios.conftest import Shop

KILLS = 3


def run_killed(home: Path, words: list[str], seed: int, *, kills: int = KILLS, longest_seconds: float = 6.0) -> int:
    """Run the demo, killing it (every second time with all its children) until it ends by itself."""
    rng, killed = random.Random(seed), 0
    for attempt in range(60):
        with (home.parent / f"log-{attempt}").open("wb") as log:
            command = [sys.executable, "-m", "mlcost_pipeline.cli", "demo", *words, "--home", str(home)]
            process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=subprocess.STDOUT)
        delay = rng.uniform(1.5, longest_seconds) if killed < kills else 420
        try:
            code = process.wait(delay)
        except subprocess.TimeoutExpired:
            family = psutil.Process(process.pid).children(recursive=True) if killed % 2 else []
            process.send_signal(signal.SIGKILL)
            process.wait()
            for member in family:
                if member.is_running():
                    os.kill(member.pid, signal.SIGKILL)
            killed += 1
            continue
        assert code == 0, (home.parent / f"log-{attempt}").read_text()[-3000:]
        return killed
    raise AssertionError("it never came to an end")


def ending(warehouse: Warehouse) -> dict[str, Any]:
    """Verdicts, reasons, weights, lists and outcomes: everything but measured seconds and the money made of them."""
    versions = warehouse.rows("model_versions")
    weights = {}
    for row in versions:
        result = json.loads((warehouse.root / row["artefact"]).parent.joinpath("result.json").read_text())
        weights[row["version"]] = result["artefact"]
    lists = warehouse.read_version("recommendations", "recommendations").to_pylist()
    named = ("model", "as_of", "verdict", "reason", "evidence_id", "decision_id", "policy_version")
    return {
        "decisions": [{name: row[name] for name in named} for row in warehouse.rows("decisions")],
        "gates": {row["version"]: (row["gate_passed"], row["gate"]) for row in versions},
        "weights": weights,
        "lists": lists,
        "predictions": [{**row, "run_id": None} for row in warehouse.rows("predictions")],
        "outcomes": warehouse.rows("outcomes"),
        "interactions": warehouse.rows("interactions"),
        "jobs": [(row["job_id"], row["model"], row["state"]) for row in warehouse.rows("jobs")],
        "publications": [
            (row["version"], row["model_version"], row["data_cut"], row["users"], row["published_at"] is not None)
            for row in warehouse.rows("publications")
        ],
    }


@pytest.mark.timeout(800)
def test_kills_change_nothing_but_the_bill(shop: Shop, tmp_path: Path) -> None:
    killed = run_killed(tmp_path / "home", ["--small"], seed=int(os.environ.get("MLCOST_SEED", "11")))
    assert killed == KILLS, f"only {killed} kills came before the end"
    warehouse = Warehouse(tmp_path / "home" / "shop" / "warehouse")
    expected, found = ending(shop.warehouse), ending(warehouse)
    for part in expected:
        assert found[part] == expected[part], part
    assert_all_runs_are_accounted_for(warehouse)


def assert_all_runs_are_accounted_for(warehouse: Warehouse) -> None:
    """Every run has ended and holds its resource for as long as it ran; every bill is reconciled to the unit."""
    records = warehouse.rows("run_records")
    assert [row for row in records if row["status"] == "running" or row["ended_at"] is None] == []
    held = {row["run_id"] for row in warehouse.rows("occupancy") if row["end"] is not None}
    assert {row["run_id"] for row in records} <= held
    periods = bills_in_force(warehouse)
    assert periods
    for account, period in periods:
        require_reconciled(warehouse, account, period)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_whole_shop_survives_ten_kills(tmp_path: Path) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    begun = time.monotonic()
    run_killed(tmp_path / "undisturbed" / "home", [], seed=0, kills=0)
    longest = (time.monotonic() - begun) / 12  # short enough for ten kills to come before the end
    killed = run_killed(tmp_path / "killed" / "home", [], seed=5, kills=10, longest_seconds=longest)
    assert killed == 10
    warehouses = [Warehouse(tmp_path / name / "home" / "shop" / "warehouse") for name in ("undisturbed", "killed")]
    expected, found = (ending(warehouse) for warehouse in warehouses)
    for part in expected:
        assert found[part] == expected[part], part
    assert_all_runs_are_accounted_for(warehouses[1])
