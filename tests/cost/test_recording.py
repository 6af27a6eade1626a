"""A job that records itself, and tables of runs from elsewhere: read once, corrected late, refused by row."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.cloud_tags import tags_for_run
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledgers
from mlcost_pipeline.cost.prices import billed_runs
from mlcost_pipeline.cost.unit_cost import unit_cost
from mlcost_pipeline.errors import JobError, SourceError
from mlcost_pipeline.recording import Recording, close_silent, record
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import line, two_models, write_bill

DOCS = Path(__file__).parents[2] / "docs" / "run-records.md"


@pytest.fixture
def recorded(tmp_path: Path) -> Settings:
    """Settings that read the folder ``runs`` beside them."""
    sources = {name: [{"path": str(tmp_path / "runs" / name / "*.csv")}] for name in ("run_records", "occupancy")}
    return two_models(sources=sources, base=tmp_path)


def read(warehouse: Warehouse, settings: Settings) -> dict[str, dict[str, Any]]:
    """The run records that the sources give, each with its hold."""
    for table in ("occupancy", "run_records"):
        ingest(warehouse, settings, table)
    holds = {row["run_id"]: row for row in warehouse.rows("occupancy")}
    return {row["run_id"]: row | {"hold": holds[row["run_id"]]} for row in warehouse.rows("run_records")}


def test_a_job_is_on_record_while_it_runs_and_when_it_has_ended(
    warehouse: Warehouse, recorded: Settings, tmp_path: Path
) -> None:
    with record(
        tmp_path / "runs", model="fraud", stage="features", purpose="build", resource_id="i-0abc", share_milli=500,
        asset="risk/features", orchestrator_run_id="dagster-run-1",
    ) as run:  # fmt: skip
        [under_way] = read(warehouse, recorded).values()
        assert (under_way["status"], under_way["ended_at"], under_way["hold"]["end"]) == ("running", None, None)
        run.steps(done=7)
        run.waited_for_data(1.5)
    [ended] = read(warehouse, recorded).values()
    assert (ended["status"], ended["steps_done"], ended["data_wait_seconds"]) == ("succeeded", 7, 1.5)
    assert (ended["asset"], ended["orchestrator_run_id"]) == ("risk/features", "dagster-run-1")
    assert (ended["hold"]["resource_id"], ended["hold"]["share_milli"]) == ("i-0abc", 500)
    assert ended["hold"]["end"] == ended["ended_at"] > ended["started_at"]
    assert ended["busy_metric"] == "process_cpu" and 0 <= ended["busy_seconds"] < 5
    assert list((tmp_path / "runs").rglob("*.alive")) == []


def test_failures_and_interrupts_are_told_apart(warehouse: Warehouse, recorded: Settings, tmp_path: Path) -> None:
    common: Any = {"model": "fraud", "stage": "training", "purpose": "trial", "resource_id": "i-1"}
    with pytest.raises(ValueError), record(tmp_path / "runs", run_id="broken", **common):
        raise ValueError("no such column")
    with pytest.raises(KeyboardInterrupt), record(tmp_path / "runs", run_id="stopped", **common):
        raise KeyboardInterrupt
    found = read(warehouse, recorded)
    assert (found["broken"]["status"], found["broken"]["cause"]) == ("failed", "ValueError: no such column")
    assert found["stopped"]["status"] == "cancelled"
    with pytest.raises(JobError, match="was recorded in"), record(tmp_path / "runs", run_id="broken", **common):
        raise AssertionError("never begun")


def test_a_job_that_is_killed_is_lost_at_its_last_sign_of_life(
    warehouse: Warehouse, recorded: Settings, tmp_path: Path
) -> None:
    program = (
        "import time\nfrom mlcost_pipeline.recording import record\n"
        f"with record({str(tmp_path / 'runs')!r}, model='recs', stage='serving', purpose='batch', run_id='r/1'):\n"
        "    print('working', flush=True)\n    time.sleep(60)\n"
    )
    arn = "arn:aws:sagemaker:eu-west-1:100000000001:training-job/recs-1"
    environment = {**os.environ, "TRAINING_JOB_ARN": arn}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdout.readline() == b"working\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert close_silent(tmp_path / "runs") == []  # silent, but not for long
    assert close_silent(tmp_path / "runs", silent_seconds=0) == ["r%2F1"]
    assert close_silent(tmp_path / "runs", silent_seconds=0) == []
    [lost] = read(warehouse, recorded).values()
    assert (lost["run_id"], lost["status"], lost["hold"]["resource_id"]) == ("r/1", "lost", arn)
    assert lost["ended_at"] >= lost["started_at"]


def test_recording_needs_no_library(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom mlcost_pipeline.recording import record\n"
        "heavy = {'duckdb', 'pyarrow', 'dagster', 'pydantic', 'numpy'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_tables_of_the_documentation_are_read_and_corrected_late(
    warehouse: Warehouse, recorded: Settings, tmp_path: Path
) -> None:
    runs, holds = re.findall(r"```csv\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    for table, text in (("run_records", runs), ("occupancy", holds)):
        (tmp_path / "runs" / table).mkdir(parents=True)
        (tmp_path / "runs" / table / "2025-06-01.csv").write_text(text)
    [row] = read(warehouse, recorded).values()
    assert (row["run_id"], row["status"]) == ("fraud-features-2025-06-01", "succeeded")
    assert read(warehouse, recorded) == {row["run_id"]: row}
    late = runs.replace("succeeded", "failed")
    (tmp_path / "runs" / "run_records" / "2025-06-02.csv").write_text(late)
    assert read(warehouse, recorded)[row["run_id"]]["status"] == "failed"
    broken = runs.replace("2025-06-01T02:41:10Z", "yesterday")
    (tmp_path / "runs" / "run_records" / "2025-06-03.csv").write_text(broken)
    with pytest.raises(SourceError, match=r"2025-06-03\.csv, row 1, column 'ended_at'"):
        read(warehouse, recorded)
    assert warehouse.rows("run_records")[0]["status"] == "failed"


def test_tags_that_the_cloud_would_refuse_are_refused_before_the_launch() -> None:
    assert tags_for_run("r1", "fraud", "training", others={"team": "risk"})["mlcost_run"] == "r1"
    with pytest.raises(JobError, match="51 tags"):
        tags_for_run("r1", "fraud", "training", others={f"t{n}": "x" for n in range(48)})
    with pytest.raises(JobError, match="'mlcost_run' has a key of 10 and a value of 300"):
        tags_for_run("r" * 300, "fraud", "training")
    with pytest.raises(JobError, match="begin with aws:"):
        tags_for_run("r1", "fraud", "training", others={"aws:team": "x"})


def test_a_retrain_that_runs_elsewhere_is_one_job_with_all_its_attempts(
    warehouse: Warehouse, recorded: Settings, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="out of memory"), _retrain(tmp_path, 1):
        raise ValueError("out of memory")
    with _retrain(tmp_path, 2):
        pass
    rows = read(warehouse, recorded).values()
    assert {(r["purpose"], r["job_id"], r["attempt"], r["status"]) for r in rows} == {
        ("retrain", "week-23", 1, "failed"), ("retrain", "week-23", 2, "succeeded"),
    }  # fmt: skip
    found = unit_cost(warehouse, recorded, "fraud", f"{datetime.now(UTC):%Y-%m}")
    assert found.retrains == 0 and found.unpriced_runs == 2  # nobody knows yet what it cost
    began = min(row["started_at"] for row in rows)
    hour = began.replace(minute=0, second=0, microsecond=0)
    bill = line("7200000", resource="i-9", start=hour, hours=2, BillingPeriodStart=hour.strftime("%Y-%m-01T00:00:00Z"))
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [bill]))
    build_ledgers(warehouse, recorded)
    spent = billed_runs(warehouse)
    assert set(spent) == {row["run_id"] for row in rows}
    found = unit_cost(warehouse, recorded, "fraud", f"{began:%Y-%m}")
    assert (found.retrains, found.per_retrain, found.unpriced_runs) == (1, sum(spent.values()), 0)
    with pytest.raises(JobError, match="only a retrain has a job_id"):
        record(tmp_path, model="fraud", stage="features", purpose="build", job_id="week-23").__enter__()


def _retrain(folder: Path, attempt: int) -> AbstractContextManager[Recording]:
    return record(folder / "runs", model="fraud", stage="training", purpose="retrain", job_id="week-23",
                  attempt=attempt, resource_id="i-9")  # fmt: skip
