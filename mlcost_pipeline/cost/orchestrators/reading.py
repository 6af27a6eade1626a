"""Runs of another Dagster instance that have ended, page by page, as plain facts of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mlcost_pipeline.cost.orchestrators.client import GraphQL
from mlcost_pipeline.cost.runs_copied import (
    RESOURCE_TAG,
    StepFacts,
    how_ended,
    partitions_named,
    share_of_each,
    versions_told,
)
from mlcost_pipeline.settings import Orchestrator

RUNS_A_PAGE = 50
PARTITION_TAG = "dagster/partition"
_RUNS = """
query Runs($cursor: String, $after: Float, $limit: Int!) {
  runsOrError(cursor: $cursor, limit: $limit,
      filter: {updatedAfter: $after, statuses: [SUCCESS, FAILURE, CANCELED]}) {
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


@dataclass
class _Step:
    assets: dict[str, list[str]] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    cause: str | None = None


def pages(orchestrator: Orchestrator, updated_after: float | None) -> Iterator[RunPage]:
    """Runs that changed after a time, newest first, in pages.

    Raises:
        SourceError: the orchestrator cannot be read; pages that were given before stay good.
    """
    graph, cursor = GraphQL(orchestrator), None
    while True:
        try:
            page, cursor = _page(graph, orchestrator, cursor, updated_after)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise graph.unlike(error) from None
        if page.runs:
            yield page
        if cursor is None:
            return


def _page(
    graph: GraphQL, orchestrator: Orchestrator, cursor: str | None, updated_after: float | None
) -> tuple[RunPage, str | None]:
    """One page of runs, and where the next one begins if there is one."""
    asked = {"cursor": cursor, "after": updated_after, "limit": RUNS_A_PAGE}
    found = graph.expect(graph.ask(_RUNS, asked)["runsOrError"], "Runs")["results"]
    steps = {run["runId"]: _steps(graph, run["runId"]) for run in found}
    owners = _owners(graph, sorted({key for each in steps.values() for step in each.values() for key in step.assets}))
    facts = [fact for run in found for fact in _facts(orchestrator, run, steps[run["runId"]], owners)]
    newest = max((float(run["updateTime"] or 0) for run in found), default=0.0)
    return RunPage(facts, len(found), newest), found[-1]["runId"] if len(found) >= RUNS_A_PAGE else None


def _steps(graph: GraphQL, run_id: str) -> dict[str, _Step]:
    """By step what it was to make, what it made, and why it failed."""
    steps: dict[str, _Step] = {}
    after = None
    while True:
        log = graph.expect(graph.ask(_EVENTS, {"run": run_id, "after": after})["logsForRun"], "EventConnection")
        for event in log["events"]:
            if event.get("stepKey"):
                _note(steps.setdefault(event["stepKey"], _Step()), event)
        if not log["hasMore"]:
            return steps
        after = log["cursor"]


def _note(step: _Step, event: Mapping[str, Any]) -> None:
    if event["__typename"] == "ExecutionStepFailureEvent":
        error = event["error"] or {}
        step.cause = str(((error.get("cause") or error).get("message")) or "the step failed").strip()
    elif event.get("assetKey"):
        key = "/".join(event["assetKey"]["path"])
        partitions = step.assets.setdefault(key, [])
        if event.get("partition"):
            partitions.append(event["partition"])
        if event.get("tags"):
            step.tags[key] = {tag["key"]: tag["value"] for tag in event["tags"]}


def _owners(graph: GraphQL, keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Tags of assets by key; an asset that is gone has none."""
    if not keys:
        return {}
    nodes = graph.ask(_OWNERS, {"keys": [{"path": key.split("/")} for key in keys]})["assetNodes"]
    return {"/".join(node["assetKey"]["path"]): {tag["key"]: tag["value"] for tag in node["tags"]} for node in nodes}


def _facts(
    orchestrator: Orchestrator, run: Mapping[str, Any], steps: Mapping[str, _Step], owners: Mapping[str, dict[str, str]]
) -> Iterator[StepFacts]:
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    ended_run = run["endTime"] or run["updateTime"]
    of_run = [tags[PARTITION_TAG]] if PARTITION_TAG in tags else []
    for stats in run["stepStats"]:
        if stats["startTime"] is None:
            continue
        step = steps.get(stats["stepKey"], _Step())
        status, cause = how_ended(
            succeeded=stats["status"] == "SUCCESS", over=stats["status"] == "FAILURE",
            cancelled=run["status"] == "CANCELED", cause=step.cause,
        )  # fmt: skip
        for asset, partitions in step.assets.items() or [(None, [])]:
            own = owners.get(asset or "", {})
            made = step.tags.get(asset or "", {})
            model = own.get("mlcost/model") or _by_prefix(orchestrator, asset)
            yield StepFacts(
                source=f"dagster:{orchestrator.name}", run_id=run["runId"], step=stats["stepKey"], asset=asset,
                partition=partitions_named(partitions or of_run), model=model,
                stage=own.get("mlcost/stage"), started_at=_at(stats["startTime"]),
                ended_at=_at(stats["endTime"] or ended_run), status=status, cause=cause,
                resource_id=tags.get(RESOURCE_TAG, orchestrator.resource_id),
                share_milli=share_of_each(orchestrator.share_milli, len(step.assets)),
                assets_of_step=len(step.assets), **versions_told(made, run["runId"]),
            )  # fmt: skip


def _by_prefix(orchestrator: Orchestrator, asset: str | None) -> str | None:
    """The model of the longest prefix that fits."""
    fitting = [prefix for prefix in orchestrator.models if asset is not None and asset.startswith(prefix)]
    return orchestrator.models[max(fitting, key=len)] if fitting else None


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
