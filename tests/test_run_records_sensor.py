"""Every materialisation of this code location has its run record: found once, however its run ended."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from mlcost_pipeline.clock import Clock, set_clock
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


DAYS = dg.StaticPartitionsDefinition([f"d{number}" for number in range(7)])


@dg.asset(
    partitions_def=DAYS, tags={"mlcost/model": "fraud", "mlcost/stage": "features"},
    backfill_policy=dg.BackfillPolicy.single_run(),
)  # fmt: skip
def daily() -> None: ...


@dg.multi_asset(specs=[dg.AssetSpec(name, skippable=True) for name in ("made", "left_out")])
def chosen() -> Iterator[Any]:
    yield dg.MaterializeResult("made")


@dg.multi_asset(specs=[dg.AssetSpec("first"), dg.AssetSpec("second")])
def breaks() -> Iterator[Any]:
    yield dg.MaterializeResult("first")
    raise ValueError("in the middle")


@dg.asset(
    partitions_def=DAYS, output_required=False, backfill_policy=dg.BackfillPolicy.single_run(),
    tags={"mlcost/model": "fraud", "mlcost/stage": "training", "mlcost/purpose": "retrain"},
)  # fmt: skip
def in_vain() -> Iterator[Any]:
    yield from ()


def test_each_partition_has_a_record_and_together_they_hold_what_the_step_held(
    instance: dg.DagsterInstance, project: Any
) -> None:
    ends = {"dagster/asset_partition_range_start": "d0", "dagster/asset_partition_range_end": "d6"}
    result = dg.materialize([daily], instance=instance, tags=ends)
    assert len(copy_run(instance, project, result.run_id, owners_of([daily]))) == 7
    rows = project.warehouse.rows("run_records")
    assert sorted(row["partition"] for row in rows) == list(DAYS.get_partition_keys())
    holds = sorted(project.warehouse.rows("occupancy"), key=lambda hold: hold["start"])
    [step] = [s for s in instance.get_run_step_stats(result.run_id) if s.step_key == "daily"]
    held = sum(((hold["end"] - hold["start"]) * hold["share_milli"] for hold in holds), timedelta())
    assert step.start_time is not None and step.end_time is not None
    share = project.settings.worker.share_milli
    assert held == (holds[-1]["end"] - holds[0]["start"]) * share
    assert abs(held / share - timedelta(seconds=step.end_time - step.start_time)) < timedelta(milliseconds=5)
    assert copy_run(instance, project, result.run_id, owners_of([daily])) == []


def test_what_was_planned_and_left_out_was_not_made(instance: dg.DagsterInstance, project: Any) -> None:
    left = dg.materialize([chosen], instance=instance)
    broke = dg.materialize([breaks], instance=instance, raise_on_error=False)
    for result in (left, broke):
        copy_run(instance, project, result.run_id, {})
    found = {row["asset"]: (row["status"], row["cause"]) for row in project.warehouse.rows("run_records")}
    assert set(found) == {"made", "first", "second"}
    assert found["made"] == found["first"] == ("succeeded", None)  # it was there before the step broke
    assert found["second"][0] == "failed" and "in the middle" in str(found["second"][1])


def test_a_step_that_made_nothing_made_no_partition_and_is_no_retrain(
    instance: dg.DagsterInstance, project: Any
) -> None:
    """What it held is still its asset's; but it replaces nothing that an earlier run made of a partition."""
    ends = {"dagster/asset_partition_range_start": "d0", "dagster/asset_partition_range_end": "d6"}
    result = dg.materialize([in_vain], instance=instance, tags=ends)
    copy_run(instance, project, result.run_id, owners_of([in_vain]))
    [row] = project.warehouse.rows("run_records")
    assert (row["asset"], row["partition"], row["purpose"]) == ("in_vain", None, "trial")
    assert (row["status"], row["cause"]) == ("succeeded", "the step made nothing")
    [hold] = project.warehouse.rows("occupancy")
    assert hold["end"] > hold["start"]


DYING = """
import os
import dagster as dg

@dg.asset
def silent():
    os._exit(9)  # killed in mid-step: neither the step nor the run ever says that it ended

for _ in range(2):
    child = os.fork()
    if not child:
        dg.materialize([silent], instance=dg.DagsterInstance.get())
    os.waitpid(child, 0)
"""


def test_what_dies_in_mid_step_is_lost_and_what_is_stopped_cancelled(
    tmp_path: Path, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    subprocess.run([sys.executable, "-c", DYING], check=True, capture_output=True)
    with dg.DagsterInstance.get() as instance:
        died, stopped = (found.dagster_run for found in instance.get_run_records())
        assert copy_finished(instance, project, OWNERS, None).runs == 0  # nobody has noticed yet
        instance.report_run_failed(died)
        instance.report_run_canceled(stopped)
        assert copy_finished(instance, project, OWNERS, None).records == 2
    records = {row["orchestrator_run_id"]: row for row in project.warehouse.rows("run_records")}
    assert {name: row["status"] for name, row in records.items()} == {died.run_id: "lost", stopped.run_id: "cancelled"}
    assert {(row["asset"], row["model"]) for row in records.values()} == {("silent", "fraud")}
    ends = {row["run_id"]: row["end"] for row in project.warehouse.rows("occupancy")}
    assert ends == {row["run_id"]: row["ended_at"] for row in records.values()}
    monkeypatch.setattr("sensors.run_records._SILENT", timedelta())  # found dead so long after it had died
    with dg.DagsterInstance.get() as instance:
        again = SimpleNamespace(warehouse=Warehouse(tmp_path / "again"), settings=project.settings)
        copy_run(instance, again, died.run_id, OWNERS)
        logs = [entry for entry in instance.all_logs(died.run_id) if entry.step_key == "silent"]
    [began] = [e.timestamp for e in logs if e.dagster_event and e.dagster_event.event_type_value == "STEP_START"]
    lived = timedelta(seconds=max(entry.timestamp for entry in logs) - began)
    [held] = again.warehouse.rows("occupancy")
    lost = records[died.run_id]
    assert abs(held["end"] - held["start"] - lived) < timedelta(milliseconds=1)
    assert held["end"] - held["start"] < lost["ended_at"] - lost["started_at"]


def test_a_run_whose_end_was_committed_late_is_not_passed_over(instance: dg.DagsterInstance, project: Any) -> None:
    """Another process's commit may become visible after the cursor has passed its time."""
    dg.materialize([silent], instance=instance)
    [ended] = instance.get_run_records()
    after = (ended.update_timestamp + timedelta(seconds=2)).replace(tzinfo=UTC).isoformat()
    found = copy_finished(instance, project, OWNERS, after)
    assert (found.records, found.cursor) == (1, after)


def test_a_kill_between_hold_and_record_leaves_one_hold(
    instance: dg.DagsterInstance, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model's clock runs fast, so that each mapping of a time is another by a little."""
    set_clock(project.warehouse, "fraud", datetime(2026, 3, 1, tzinfo=UTC), 60.0)
    result = dg.materialize([silent], instance=instance)
    append = Warehouse.append

    def killed(self: Warehouse, table: str, rows: Any, **more: Any) -> Any:
        if table == "run_records":
            raise MemoryError
        return append(self, table, rows, **more)

    monkeypatch.setattr(Warehouse, "append", killed)
    with pytest.raises(MemoryError):
        copy_run(instance, project, result.run_id, OWNERS)
    monkeypatch.undo()
    assert copy_run(instance, project, result.run_id, OWNERS) == [f"dagster:{result.run_id}:silent"]
    [hold] = project.warehouse.rows("occupancy")
    [record] = project.warehouse.rows("run_records")
    assert (record["started_at"], record["ended_at"]) == (hold["start"], hold["end"])


def test_runs_are_read_once_and_a_lost_cursor_doubles_nothing(instance: dg.DagsterInstance, project: Any) -> None:
    for _ in range(2):
        dg.materialize([silent], instance=instance)
    first = copy_finished(instance, project, OWNERS, None)
    assert (first.runs, first.records) == (2, 2)
    assert first.cursor is not None
    assert copy_finished(instance, project, OWNERS, first.cursor).records == 0
    assert copy_finished(instance, project, OWNERS, None).records == 0
    assert len(project.warehouse.rows("run_records")) == 2
