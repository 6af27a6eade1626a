"""What a trigger found, in Dagster's words."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.names import BILL_PERIODS
from mlcost_pipeline.resources import Project
from mlcost_pipeline.triggers import Found, Request, Trigger

INTERVAL_SECONDS = 15


def sensor(name: str, trigger: Trigger, jobs: Sequence[Any], about: str) -> dg.SensorDefinition:
    """A sensor that asks `trigger` and nothing else."""

    @dg.sensor(
        name=name,
        jobs=list(jobs),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=about,
    )
    def evaluate(context: dg.SensorEvaluationContext, project: Project) -> dg.SensorResult | dg.SkipReason:
        return answer(trigger(project.warehouse, project.settings))

    return evaluate


def answer(found: Found) -> dg.SensorResult | dg.SkipReason:
    """Run requests, or the reason why not; partitions of bills are announced with the request."""
    if not found.requests:
        return dg.SkipReason(found.reason)
    scopes = [request.partition for request in found.requests if request.job == "ledger" and request.partition]
    announced = [BILL_PERIODS.build_add_request(scopes)] if scopes else []
    return dg.SensorResult(
        run_requests=[run_request(request) for request in found.requests], dynamic_partitions_requests=announced
    )


def run_request(request: Request) -> dg.RunRequest:
    """One request as Dagster's; its tags carry the reason into the run."""
    return dg.RunRequest(
        run_key=request.key,
        job_name=request.job,
        partition_key=request.partition,
        tags={**request.tags, "mlcost/reason": request.reason[:500]},
    )
