"""Runs of another Dagster instance that have ended, page by page, as plain facts of their steps.

A run that nobody ended there (its process was killed, and that instance does not monitor its runs) is lost when it has
said nothing for as long as the settings allow; if it ends after all, it is told again as it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.cost.orchestrators.client import GraphQL
from mlcost_pipeline.cost.orchestrators.ranges import RANGE_TAGS, tell_ranges
from mlcost_pipeline.cost.runs_copied import RESOURCE_TAG, StepFacts, how_ended
from mlcost_pipeline.cost.steps import Ended, Owner, StepLog, facts_of, owner_by_tags
from mlcost_pipeline.settings import Orchestrator

RUNS_A_PAGE = 50
PARTITION_TAG, RETRY_TAG, ROOT_TAG = "dagster/partition", "dagster/retry_number", "dagster/root_run_id"
#: Events that others write about a run: the daemon, a person who stops it. They are no sign of its life.
_OF_OTHERS = ("EngineEvent", "RunFailureEvent", "RunCancelingEvent", "RunCanceledEvent")
_ENDED, _UNDER_WAY = ("SUCCESS", "FAILURE", "CANCELED"), ("STARTED", "CANCELING")
_RUNS = """
query Runs($cursor: String, $filter: RunsFilter!, $limit: Int!) {
  runsOrError(cursor: $cursor, limit: $limit, filter: $filter) {
    __typename
    ... on Runs { results {
      runId status startTime endTime updateTime tags { key value }
      stepStats { stepKey status startTime endTime }
    } }
    ... on Error { message }
  }
}"""
_EVENTS = """
query Events($run: ID!, $after: String) {
  logsForRun(runId: $run, afterCursor: $after, limit: 500) {
    __typename
    ... on EventConnection { cursor hasMore events {
      __typename
      ... on MessageEvent { timestamp }
      ... on AssetMaterializationPlannedEvent { stepKey assetKey { path } }
      ... on MaterializationEvent { stepKey assetKey { path } partition tags { key value } }
      ... on ExecutionStepFailureEvent { stepKey error { message cause { message } } }
    } }
    ... on Error { message }
  }
}"""
_OWNERS = (
    "query Owners($keys: [AssetKeyInput!]) { assetNodes(assetKeys: $keys) { assetKey { path } tags { key value } } }"
)


@dataclass(frozen=True)
class RunPage:
    """Facts of one page of runs, and the newest time at which one of them changed (seconds since 1970)."""

    facts: Sequence[StepFacts]
    runs: int
    updated: float


@dataclass(frozen=True)
class _RunLog:
    """By step what it was to make and made; and the last sign of life, in seconds since 1970."""

    steps: Mapping[str, StepLog]
    last: float


def source_of(orchestrator: Orchestrator) -> str:
    """What names an orchestrator in its run records."""
    return f"dagster:{orchestrator.name}"


def pages(orchestrator: Orchestrator, updated_after: float | None) -> Iterator[RunPage]:
    """Runs that changed after a time, newest first, in pages.

    Raises:
        SourceError: the orchestrator cannot be read; pages that were given before stay good.
    """
    yield from _pages(orchestrator, {"updatedAfter": updated_after, "statuses": _ENDED}, None)


def silent(orchestrator: Orchestrator, now: datetime) -> Iterator[RunPage]:
    """Runs that are under way by that instance's account and have said nothing for so long that they are lost.

    Raises:
        SourceError: the orchestrator cannot be read.
    """
    before = (now - timedelta(hours=orchestrator.lost_after_hours)).timestamp()
    yield from _pages(orchestrator, {"updatedBefore": before, "statuses": _UNDER_WAY}, before)


def _is_told(orchestrator: Orchestrator, log: _RunLog, silent_since: float | None) -> bool:
    """Whether a run is told: one under way only if it is silent, and was not before all that is to be read."""
    since = 0.0 if orchestrator.since is None else orchestrator.since.timestamp()
    return silent_since is None or since <= log.last <= silent_since


def _pages(orchestrator: Orchestrator, wanted: Mapping[str, Any], silent_since: float | None) -> Iterator[RunPage]:
    graph, cursor = GraphQL(orchestrator), None
    while True:
        try:
            page, cursor = _page(graph, orchestrator, cursor, wanted, silent_since)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise graph.unlike(error) from None
        if page.runs:
            yield page
        if cursor is None:
            return


def _page(
    graph: GraphQL, orchestrator: Orchestrator, cursor: str | None, wanted: Mapping[str, Any],
    silent_since: float | None,
) -> tuple[RunPage, str | None]:  # fmt: skip
    """One page of runs, and where the next one begins if there is one."""
    asked = {"cursor": cursor, "filter": wanted, "limit": RUNS_A_PAGE}
    found = graph.expect(graph.ask(_RUNS, asked)["runsOrError"], "Runs")["results"]
    logs = {run["runId"]: _log(graph, run["runId"]) for run in found}
    told = [run for run in found if _is_told(orchestrator, logs[run["runId"]], silent_since)]
    tell_ranges(graph, [(_tags(run), _not_made(run, logs[run["runId"]])) for run in told])
    steps = [step for run in told for step in logs[run["runId"]].steps.values()]
    owners = _owners(graph, sorted({key for step in steps for key in step.assets}))
    facts = [fact for run in told for fact in _facts(orchestrator, run, logs[run["runId"]], owners)]
    newest = max((float(run["updateTime"] or 0) for run in found), default=0.0)
    return RunPage(facts, len(found), newest), found[-1]["runId"] if len(found) >= RUNS_A_PAGE else None


def _log(graph: GraphQL, run_id: str) -> _RunLog:
    """By step what it was to make, what it made, and why it failed."""
    steps: dict[str, StepLog] = {}
    after, last = None, 0.0
    while True:
        log = graph.expect(graph.ask(_EVENTS, {"run": run_id, "after": after})["logsForRun"], "EventConnection")
        for event in log["events"]:
            if event["__typename"] not in _OF_OTHERS:
                last = max(last, float(event.get("timestamp") or 0) / 1000)
            if event.get("stepKey"):
                _note(steps.setdefault(event["stepKey"], StepLog()), event)
        if not log["hasMore"]:
            return _RunLog(steps, last)
        after = log["cursor"]


def _note(step: StepLog, event: Mapping[str, Any]) -> None:
    if event["__typename"] == "ExecutionStepFailureEvent":
        error = event["error"] or {}
        step.cause = str(((error.get("cause") or error).get("message")) or "the step failed").strip()
    elif event.get("assetKey"):
        key = "/".join(event["assetKey"]["path"])
        if event["__typename"] == "AssetMaterializationPlannedEvent":
            step.planned.append((key, None))
        else:
            step.made[key, event.get("partition")] = {tag["key"]: tag["value"] for tag in event.get("tags") or ()}


def _owners(graph: GraphQL, keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Tags of assets by key; an asset that is gone has none."""
    if not keys:
        return {}
    nodes = graph.ask(_OWNERS, {"keys": [{"path": key.split("/")} for key in keys]})["assetNodes"]
    return {"/".join(node["assetKey"]["path"]): {tag["key"]: tag["value"] for tag in node["tags"]} for node in nodes}


def _tags(run: Mapping[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def _not_made(run: Mapping[str, Any], log: _RunLog) -> list[StepLog]:
    """Logs of the steps that began and did not end well."""
    steps = [stats["stepKey"] for stats in run["stepStats"] if stats["startTime"] and stats["status"] != "SUCCESS"]
    return [log.steps[step] for step in steps if step in log.steps]


def _facts(
    orchestrator: Orchestrator, run: Mapping[str, Any], log: _RunLog, owners: Mapping[str, dict[str, str]]
) -> Iterator[StepFacts]:
    tags, source = _tags(run), source_of(orchestrator)

    def owner(asset: str | None) -> Owner:
        model, stage, purpose = owner_by_tags(owners.get(asset or "", {}))
        # What trains in somebody else's orchestrator is what that team ships, unless its tags say otherwise.
        return model or _by_prefix(orchestrator, asset), stage, purpose or ("retrain" if stage == "training" else None)

    for stats in run["stepStats"]:
        if stats["startTime"] is None:
            continue
        step = log.steps.get(stats["stepKey"], StepLog())
        yield from facts_of(
            step, _ended(orchestrator, run, log, stats, step.cause), source=source, run_id=run["runId"],
            step=stats["stepKey"], owner=owner, resource_id=tags.get(RESOURCE_TAG, orchestrator.resource_id),
            share_milli=orchestrator.share_milli, partition=_partition(tags),
            job_id=f"{source}:{tags.get(ROOT_TAG, run['runId'])}", attempt=_attempt(tags),
        )  # fmt: skip


def _ended(
    orchestrator: Orchestrator, run: Mapping[str, Any], log: _RunLog, stats: Mapping[str, Any], cause: str | None
) -> Ended:
    """How a step ended. One that never said so ended with its run, unless that had been silent for too long by then."""
    start, over = stats["startTime"], stats["endTime"] is not None
    alive, ended_run = max(log.last, start), run["endTime"] or run["updateTime"]
    if not over and (run["status"] in _UNDER_WAY or ended_run - alive > orchestrator.lost_after_hours * 3600):
        return Ended(_at(start), _at(alive), "lost", "gave no sign of life any more")
    status, cause = how_ended(
        succeeded=stats["status"] == "SUCCESS", over=stats["status"] == "FAILURE",
        cancelled=run["status"] == "CANCELED", cause=cause,
    )  # fmt: skip
    return Ended(_at(start), _at(stats["endTime"] or ended_run), status, cause)


def _partition(tags: Mapping[str, str]) -> str | None:
    """What a run is about: one partition, or a range of them by its first and last."""
    ends = [tags[name] for name in RANGE_TAGS if name in tags]
    return tags.get(PARTITION_TAG) or ("…".join(dict.fromkeys(ends)) if len(ends) == len(RANGE_TAGS) else None)


def _attempt(tags: Mapping[str, str]) -> int:
    number = tags.get(RETRY_TAG, "")
    return int(number) + 1 if number.isdigit() else 1 if ROOT_TAG not in tags else 2


def _by_prefix(orchestrator: Orchestrator, asset: str | None) -> str | None:
    """The model of the longest prefix that fits."""
    fitting = [prefix for prefix in orchestrator.models if asset is not None and asset.startswith(prefix)]
    return orchestrator.models[max(fitting, key=len)] if fitting else None


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
