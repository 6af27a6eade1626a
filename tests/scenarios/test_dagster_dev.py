"""A real `dagster dev`: its daemon sees evidence that warrants a retrain fire once, and evidence that does not, not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcost_pipeline.demo.shop import make_shop
from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.warehouse import Warehouse
from tests.scenarios.conftest import DagsterDev

RUNS = """
query Runs($job: String!) {
  runsOrError(filter: {pipelineName: $job}) { ... on Runs { results { runId status tags { key value } } } }
}
"""
TICKS = """
query Ticks($selector: SensorSelector!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { ticks(limit: 50) { status skipReason runIds } } }
  }
}
"""


DELETE = "mutation Delete($run: String!) { deletePipelineRun(runId: $run) { __typename } }"
LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) { __typename ... on LaunchRunSuccess { run { runId } } }
}
"""
LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "mlcost_pipeline"}


def launch_by_hand(dev: DagsterDev, job: str) -> str:
    """What the launchpad's button does."""
    params = {"selector": {**LOCATION, "pipelineName": job}, "runConfigData": {}, "mode": "default"}
    launched = dev.ask(LAUNCH, params=params)["launchRun"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    return launched["run"]["runId"]


def runs_of(dev: DagsterDev, job: str) -> list[dict]:
    return dev.ask(RUNS, job=job)["runsOrError"]["results"]


def ticks_of(dev: DagsterDev, sensor: str) -> list[dict]:
    return dev.ask(TICKS, selector={**LOCATION, "sensorName": sensor})["sensorOrError"]["sensorState"]["ticks"]


@pytest.mark.timeout(1500)
def test_the_sensor_fires_once_where_evidence_warrants_it_and_says_why_not_where_it_does_not(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    make_shop(shop, days=16, users=60, items=40, payments_per_day=120)
    config = shop / "mlcost.yaml"
    before, after = "min_new_rows: 50", "min_new_rows: 50000000"
    head, model, tail = config.read_text().partition("  fraud:\n")
    assert before in head
    config.write_text(head.replace(before, after) + model + tail)
    warehouse = Warehouse(shop / "warehouse")
    with DagsterDev(config, tmp_path) as dev:
        dev.until(lambda: incumbent(warehouse, "fraud"), 480, "the retrain of fraud was promoted")
        dev.until(lambda: warehouse.rows("decisions", where="model = 'recommendations'"), 240, "the other was decided")
        dev.until(lambda: [run["status"] for run in runs_of(dev, "fraud_retrain")] == ["SUCCESS"], 240, "its run ended")
        (fired,) = runs_of(dev, "fraud_retrain")
        dev.ask(DELETE, run=fired["runId"])  # with the run its key is forgotten: Dagster alone would fire again
        settled = len(ticks_of(dev, "fraud_retrain_sensor"))
        dev.until(lambda: len(ticks_of(dev, "fraud_retrain_sensor")) >= settled + 3, 300, "three more ticks")
        assert runs_of(dev, "fraud_retrain") == []
        again = launch_by_hand(dev, "fraud_retrain")
        dev.until(lambda: runs_of(dev, "fraud_retrain")[0]["status"] == "SUCCESS", 360, "the run by hand ended quietly")
        assert [run["runId"] for run in runs_of(dev, "fraud_retrain")] == [again]
        skipped = ticks_of(dev, "recommendations_retrain_sensor")
    (job,) = warehouse.rows("jobs")
    assert len(warehouse.rows("model_versions")) == 1
    trained = warehouse.rows("run_records", where="job_id = ? AND status = 'succeeded'", params=[job["job_id"]])
    assert len(trained) == 1
    assert all(tick["status"] == "SKIPPED" and not tick["runIds"] for tick in skipped)
    reasons = [tick["skipReason"] for tick in skipped if "too_little_data" in (tick["skipReason"] or "")]
    assert reasons and "50000000" in reasons[-1], skipped[:3]
