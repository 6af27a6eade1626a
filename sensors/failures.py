"""A run that failed or died: counted, so that its work is requested again a few times, and then a person is asked."""

import dagster as dg

from mlcost_pipeline.notify import notify
from mlcost_pipeline.resources import Project
from mlcost_pipeline.triggers import MAX_FAILURES, note_failure
from sensors.request import INTERVAL_SECONDS, REQUEST_TAG


def build() -> list[dg.SensorDefinition]:
    """One sensor for all jobs; runs that no trigger requested are not its business."""

    @dg.run_failure_sensor(
        name="failures_sensor",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Counts failed runs of a request: after a few, nothing is requested again and a person is told.",
    )
    def failures(context: dg.RunFailureSensorContext, project: Project) -> None:
        run = context.dagster_run
        key = run.tags.get(REQUEST_TAG)
        if key is None:
            return
        count = note_failure(project.warehouse, key, run.run_id)
        if count >= MAX_FAILURES:
            text = f"job {run.job_name} failed {count} times for {key}; look at its runs, then: mlcost tick"
            notify(project.warehouse, project.settings, key=f"failed:{key}", text=text)

    return [failures]
