"""What a trigger found, in Dagster's words."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.names import BILL_PERIODS
from mlcost_pipeline.resources import Project
from mlcost_pipeline.triggers import MAX_FAILURES, Found, Request, Trigger, failures_of
from mlcost_pipeline.warehouse import Warehouse

INTERVAL_SECONDS = 15
REQUEST_TAG = "mlcost/request"


def sensor(
    name: str, trigger: Trigger, jobs: Sequence[Any], about: str, seconds: int = INTERVAL_SECONDS
) -> dg.SensorDefinition:
    """A sensor that asks `trigger` every so many seconds, and nothing else."""

    @dg.sensor(
        name=name,
        jobs=list(jobs),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=about,
    )
    def evaluate(context: dg.SensorEvaluationContext, project: Project) -> dg.SensorResult | dg.SkipReason:
        return answer(trigger(project.warehouse, project.settings), project.warehouse)

    return evaluate


def answer(found: Found, warehouse: Warehouse) -> dg.SensorResult | dg.SkipReason:
    """Run requests, or the reason why not; partitions of bills are announced with the request.

    Dagster never runs a key twice, not even after a failure: so a failed request comes back under a key of its own,
    until it has failed too often.
    """
    if not found.requests:
        return dg.SkipReason(found.reason)
    failed = {request.key: failures_of(warehouse, request.key) for request in found.requests}
    due = [request for request in found.requests if failed[request.key] < MAX_FAILURES]
    if not due:
        first = found.requests[0]
        return dg.SkipReason(
            f"{first.job} failed {failed[first.key]} times and is not requested again ({first.reason}); "
            "look at its runs, then: mlcost tick"
        )
    scopes = [request.partition for request in due if request.job == "ledger" and request.partition]
    announced = [BILL_PERIODS.build_add_request(scopes)] if scopes else []
    return dg.SensorResult(
        run_requests=[run_request(request, failed[request.key]) for request in due],
        dynamic_partitions_requests=announced,
    )


def run_request(request: Request, failed: int = 0) -> dg.RunRequest:
    """One request as Dagster's; its tags carry the key and the reason into the run."""
    return dg.RunRequest(
        run_key=f"{request.key}:again-{failed}" if failed else request.key,
        job_name=request.job,
        partition_key=request.partition,
        tags={**request.tags, REQUEST_TAG: request.key, "mlcost/reason": request.reason[:500]},
    )
