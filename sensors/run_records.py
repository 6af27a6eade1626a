"""Run records of this code location: every materialisation of every asset, however its run ended, read once."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import dagster as dg

from mlcost_pipeline.cost.runs_copied import RESOURCE_TAG, StepFacts, copy_steps, how_ended
from mlcost_pipeline.cost.steps import Ended, Owner, StepLog, facts_of, owner_by_tags
from mlcost_pipeline.resources import Project
from sensors.request import INTERVAL_SECONDS

SOURCE = "dagster"
SHARE_TAG = "mlcost/share_milli"
PARTITION_TAG = "dagster/partition"
_RUNS_A_TICK = 25
#: A run's end may be committed after one that ended later: so far back before the cursor each tick looks again.
_OVERLAP = timedelta(seconds=30)
#: A run whose process died is ended by the daemon, a day later at worst: one that had told nothing for so long by then
#: held what it held to its last sign of life.
_SILENT = timedelta(hours=1)
_OF_OTHERS = {
    dg.DagsterEventType.ENGINE_EVENT,
    dg.DagsterEventType.RUN_FAILURE,
    dg.DagsterEventType.RUN_CANCELING,
    dg.DagsterEventType.RUN_CANCELED,
}
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "succeeded",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "cancelled",
}
_TYPES = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.STEP_START,
    dg.DagsterEventType.STEP_SUCCESS,
    dg.DagsterEventType.STEP_FAILURE,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
}
#: Asset key as text → whose it is, by the assets' tags.
Owners = Mapping[str, Owner]


def owners_of(assets: Sequence[dg.AssetsDefinition]) -> Owners:
    """Whose each asset is, by its tags."""
    return {spec.key.to_user_string(): owner_by_tags(spec.tags) for asset in assets for spec in asset.specs}


def build(owners: Owners) -> list[dg.SensorDefinition]:
    """One sensor that copies what only Dagster knows: runs that have ended, oldest first."""

    @dg.sensor(
        name="run_records_sensor",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives every materialisation its run record, failed, cancelled and lost runs too.",
    )
    def run_records(context: dg.SensorEvaluationContext, project: Project) -> dg.SkipReason:
        found = copy_finished(context.instance, project, owners, context.cursor)
        if found.cursor is not None:
            context.update_cursor(found.cursor)
        since = context.cursor or "ever"
        return dg.SkipReason(f"{found.runs} runs have ended since {since}, {found.records} records were missing")

    return [run_records]


class Finished(NamedTuple):
    """Runs that were looked at, records that were missing or open, and where to go on."""

    runs: int
    records: int
    cursor: str | None


def copy_finished(instance: dg.DagsterInstance, project: Any, owners: Owners, cursor: str | None) -> Finished:
    """Copy the next runs that have ended; `project` has the warehouse and the settings."""
    since = datetime.fromisoformat(cursor) if cursor else None
    seen = _ended_runs(instance, since, None, ascending=True)
    late = [] if since is None else _ended_runs(instance, since - _OVERLAP, since, ascending=False)
    touched = [name for each in [*late, *seen] for name in _copied(instance, project, each.dagster_run, owners)]
    last = seen[-1].update_timestamp.astimezone(UTC).isoformat() if seen else cursor
    return Finished(len(seen), len(touched), last)


def _ended_runs(
    instance: dg.DagsterInstance, after: datetime | None, before: datetime | None, *, ascending: bool
) -> Sequence[Any]:
    within = dg.RunsFilter(statuses=list(_ENDED), updated_after=after, updated_before=before)
    return instance.get_run_records(
        filters=within, order_by="update_timestamp", ascending=ascending, limit=_RUNS_A_TICK
    )


def copy_run(instance: dg.DagsterInstance, project: Any, run_id: str, owners: Owners) -> list[str]:
    """Copy one run that has ended; `project` has the warehouse and the settings."""
    run = instance.get_run_by_id(run_id)
    return [] if run is None or run.status not in _ENDED else _copied(instance, project, run, owners)


def _copied(instance: dg.DagsterInstance, project: Any, run: dg.DagsterRun, owners: Owners) -> list[str]:
    worker = project.settings.worker
    facts = list(steps_of(instance, run, owners, resource_id=worker.resource_id, share_milli=worker.share_milli))
    return copy_steps(project.warehouse, project.settings, facts)


def steps_of(
    instance: dg.DagsterInstance, run: dg.DagsterRun, owners: Owners, *, resource_id: str, share_milli: int
) -> Iterator[StepFacts]:
    """The steps of a run that has ended, as its event log tells them."""
    entries = sorted(instance.all_logs(run.run_id, of_type=_TYPES), key=lambda entry: entry.timestamp)
    logs: dict[str, StepLog] = {}
    spans: dict[str, dict[str, Any]] = {}
    for entry in entries:
        step, event = entry.step_key, entry.dagster_event
        if step is None or event is None:
            continue
        kind = event.event_type
        span, log = spans.setdefault(step, {}), logs.setdefault(step, StepLog())
        if kind == dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            log.planned.append((_asset(event), event.partition or None))
        elif kind == dg.DagsterEventType.STEP_START:
            span.setdefault("start", entry.timestamp)  # a step that is tried again began when it was first tried
        elif kind == dg.DagsterEventType.ASSET_MATERIALIZATION:
            tags = dict(event.step_materialization_data.materialization.tags or {})
            log.made[_asset(event), event.partition or None] = tags
        else:
            span["end"], span["ok"] = entry.timestamp, kind == dg.DagsterEventType.STEP_SUCCESS
            log.cause = None if span["ok"] else _cause(event)
    for step, span in spans.items():
        if "start" in span:
            yield from _facts(instance, run, step, span, logs[step], owners, resource_id, share_milli)


def _facts(
    instance: dg.DagsterInstance, run: dg.DagsterRun, step: str, span: Mapping[str, Any], log: StepLog,
    owners: Owners, resource_id: str, share_milli: int,
) -> Iterator[StepFacts]:  # fmt: skip
    status, cause = how_ended(
        succeeded=bool(span.get("ok")), over="end" in span, cancelled=run.status == dg.DagsterRunStatus.CANCELED,
        cause=log.cause,
    )  # fmt: skip
    ended = Ended(_at(span["start"]), _at(span.get("end") or _run_end(instance, run)), status, cause)
    yield from facts_of(
        log, ended, source=SOURCE, run_id=run.run_id, step=step,
        owner=lambda asset: owners.get(asset or "", (None, None, None)),
        resource_id=run.tags.get(RESOURCE_TAG, resource_id),
        share_milli=int(run.tags.get(SHARE_TAG, share_milli)), partition=run.tags.get(PARTITION_TAG),
    )  # fmt: skip


def _run_end(instance: dg.DagsterInstance, run: dg.DagsterRun) -> float:
    """When the steps of a run ended that never said so, in seconds since 1970."""
    found = instance.get_run_records(filters=dg.RunsFilter(run_ids=[run.run_id]), limit=1)
    ended = float(found[0].end_time or found[0].update_timestamp.timestamp())
    signs = [entry.timestamp for entry in instance.all_logs(run.run_id) if _is_sign_of_life(entry)]
    alive = max(signs, default=ended)
    return alive if ended - alive > _SILENT.total_seconds() else ended


def _is_sign_of_life(entry: dg.EventLogEntry) -> bool:
    return entry.dagster_event is None or entry.dagster_event.event_type not in _OF_OTHERS


def _asset(event: Any) -> str:
    return str(event.asset_key.to_user_string())


def _cause(event: Any) -> str:
    """The words of the innermost error."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return str(error.message).strip() if error is not None else "the step failed"


def _at(timestamp: float) -> datetime:
    return datetime.fromtimestamp(timestamp, UTC)
