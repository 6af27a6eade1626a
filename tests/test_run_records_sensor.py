"""Every materialisation of this code location has its run record: found once, however its run ended."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.runs import open_run
from mlcost_pipeline.warehouse import Warehouse
from sensors.run_records import copy_finished, copy_run, owners_of
from tests.cost.billing import two_models


@dg.asset(tags={"mlcost/model": "fraud", "mlcost/stage": "evaluation"})
def silent() -> None: ...


@dg.asset(tags={"mlcost/model": "recs", "mlcost/stage": "features"})
def broken() -> None:
    raise ValueError("no such column")


OWNERS = owners_of([silent, broken])


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Any:
    return SimpleNamespace(warehouse=Warehouse(tmp_path / "warehouse"), settings=two_models())


def test_an_asset_that_records_nothing_gets_a_record_and_its_failure_too(
    instance: dg.DagsterInstance, project: Any
) -> None:
    result = dg.materialize([silent, broken], instance=instance, raise_on_error=False)
    made = copy_run(instance, project, result.run_id, OWNERS)
    assert sorted(made) == [f"dagster:{result.run_id}:broken", f"dagster:{result.run_id}:silent"]
    assert copy_run(instance, project, result.run_id, OWNERS) == []
    found = {row["asset"]: row for row in project.warehouse.rows("run_records")}
    assert (found["silent"]["status"], found["silent"]["model"]) == ("succeeded", "fraud")
    assert found["broken"]["status"] == "failed" and "no such column" in found["broken"]["cause"]
    assert {row["resource_id"] for row in project.warehouse.rows("occupancy")} == {"local-worker"}


def test_an_asset_that_recorded_itself_gets_no_second_record_and_an_open_one_is_closed(
    instance: dg.DagsterInstance, project: Any
) -> None:
    result = dg.materialize([silent, broken], instance=instance, raise_on_error=False)
    for asset, model in (("silent", "fraud"), ("broken", "recs")):
        run = open_run(
            project.warehouse, Clock(), model=model, stage="evaluation", purpose="measure", resource_id="w",
            asset=asset, orchestrator_run_id=result.run_id, run_id=f"own-{asset}",
        )  # fmt: skip
        if asset == "silent":
            run.close(status="succeeded")
        run.heartbeat.stop()  # the other's process died before it could close its record
    assert copy_run(instance, project, result.run_id, OWNERS) == ["own-broken"]
    assert copy_run(instance, project, result.run_id, OWNERS) == []
    found = {row["run_id"]: row["status"] for row in project.warehouse.rows("run_records")}
    assert found == {"own-silent": "succeeded", "own-broken": "failed"}


def test_runs_are_read_once_and_a_lost_cursor_doubles_nothing(instance: dg.DagsterInstance, project: Any) -> None:
    for _ in range(2):
        dg.materialize([silent], instance=instance)
    first = copy_finished(instance, project, OWNERS, None)
    assert (first.runs, first.records) == (2, 2)
    assert first.cursor is not None
    assert copy_finished(instance, project, OWNERS, first.cursor).records == 0
    assert copy_finished(instance, project, OWNERS, None).records == 0
    assert len(project.warehouse.rows("run_records")) == 2
