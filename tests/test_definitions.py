"""The code location: what it holds, what it costs to load, and that nothing heavy comes along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from mlcost_pipeline.demo.shop import make_shop
from mlcost_pipeline.demo.shop_settings import write_settings

SNAPSHOT = Path(__file__).parent / "definitions.json"
HEAVY = ("torch", "evidently", "sklearn", "pandas", "matplotlib", "scipy", "fastapi")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("location")
    plan = make_shop(folder, days=3, users=5, items=6, payments_per_day=8)
    return write_settings(folder, plan)


@pytest.fixture(scope="module")
def definitions(config: Path) -> dg.Definitions:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLCOST_CONFIG", str(config))
        from mlcost_pipeline.definitions import build_definitions

        return build_definitions(config)


def described(definitions: dg.Definitions) -> dict[str, object]:
    """Keys, dependencies, groups, jobs, sensors and checks, as plain values."""
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    assets = {
        key.to_user_string(): {
            "group": graph.get(key).group_name,
            "deps": sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
            "partitioned": graph.get(key).is_partitioned,
        }
        for key in sorted(graph.get_all_asset_keys())
    }
    jobs = {
        job.name: sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys)
        for job in repository.get_all_jobs()
        if not job.name.startswith("__")
    }
    sensors = {sensor.name: sorted(target.job_name for target in sensor.targets) for sensor in repository.sensor_defs}
    checks = sorted(f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys)
    ordered = {"jobs": dict(sorted(jobs.items())), "sensors": dict(sorted(sensors.items()))}
    return {"assets": assets, **ordered, "checks": checks}


def test_the_location_is_as_it_was_written_down(definitions: dg.Definitions) -> None:
    """After a change that is meant: MLCOST_WRITE_SNAPSHOT=1 pytest tests/test_definitions.py, and read the diff."""
    found = described(definitions)
    if os.environ.get("MLCOST_WRITE_SNAPSHOT"):
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(SNAPSHOT.read_text())


def test_the_seven_groups_are_there_for_both_models(definitions: dg.Definitions) -> None:
    assets = described(definitions)["assets"]
    assert isinstance(assets, dict)
    groups = {asset["group"] for asset in assets.values()}
    assert groups == {"sources", "features", "evidence", "training", "serving", "cost", "levers"}


def load(config: Path, code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        capture_output=True, text=True, cwd=Path(__file__).parents[1],
        env={**os.environ, "MLCOST_CONFIG": str(config)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_adds_under_a_second_of_work_to_dagsters_own_import(config: Path) -> None:
    """CPU seconds, the best of three: what loading asks of the machine, not how busy the machine is."""
    code = (
        "import time, dagster; begun = time.process_time(); import mlcost_pipeline.definitions as d; "
        "d.defs.get_repository_def(); print(time.process_time() - begun)"
    )
    assert min(float(load(config, code)[0]) for _ in range(3)) < 1.0


def test_it_loads_nothing_heavy(config: Path) -> None:
    code = f"import sys, mlcost_pipeline.definitions; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    assert load(config, code) == []


def test_without_a_config_it_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import mlcost_pipeline.definitions"], capture_output=True, text=True,
        cwd=Path(__file__).parents[1], env={**os.environ, "MLCOST_CONFIG": str(tmp_path / "none.yaml")},
    )  # fmt: skip
    assert done.returncode != 0
    assert "none.yaml: no such file; set MLCOST_CONFIG to your mlcost.yaml, or run `make demo`" in done.stderr


def test_a_project_that_runs_no_model_has_its_bill_and_its_months(tmp_path: Path) -> None:
    file = tmp_path / "mlcost.yaml"
    file.write_text("version: 1\nname: elsewhere\nwarehouse: wh\naccounted: {ranker: {unit: orders}}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLCOST_CONFIG", str(file))
        from mlcost_pipeline.definitions import build_definitions

        found = described(build_definitions(file))
    assert found["assets"] == {
        "bill": {"group": "cost", "deps": [], "partitioned": False},
        "cost_ledger": {"group": "cost", "deps": ["bill"], "partitioned": True},
        "ranker/cost_per_outcome": {"group": "cost", "deps": ["cost_ledger"], "partitioned": True},
        "report": {"group": "levers", "deps": [], "partitioned": False},
    }
    assert found["jobs"] == {
        "bills": ["bill"], "ledger": ["cost_ledger"], "ranker_month": ["ranker/cost_per_outcome"],
        "reporting": ["report"],
    }  # fmt: skip
