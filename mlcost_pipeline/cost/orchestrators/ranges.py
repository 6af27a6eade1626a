"""Which partitions a run over a range of them was to make: told partition by partition, also if it failed before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from mlcost_pipeline.cost.orchestrators.client import GraphQL
from mlcost_pipeline.cost.steps import StepLog

RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
_KEYS = """
query Keys($keys: [AssetKeyInput!]) {
  assetNodes(assetKeys: $keys) { assetKey { path } partitionKeysByDimension { name partitionKeys } }
}"""


def tell_ranges(graph: GraphQL, told: Iterable[tuple[Mapping[str, str], Sequence[StepLog]]]) -> None:
    """Plan each partition of the range that a run's tags name, in the logs of its steps that did not end well.

    Such an instance tells of a plan only the asset, and of what was made its partition: what was not made is known by
    the asset's partitions as they are now. Where these lack the ends of the range, the plan stays as it was.
    """
    ranges = [((tags[RANGE_TAGS[0]], tags[RANGE_TAGS[1]]), logs) for tags, logs in told if set(RANGE_TAGS) <= set(tags)]
    wanted = sorted({asset for _, logs in ranges for log in logs for asset, partition in log.planned if not partition})
    if not wanted:
        return
    nodes = graph.ask(_KEYS, {"keys": [{"path": asset.split("/")} for asset in wanted]})["assetNodes"]
    dimensions = {"/".join(node["assetKey"]["path"]): node["partitionKeysByDimension"] for node in nodes}
    for ends, logs in ranges:
        for log in logs:
            log.planned = [unit for each in log.planned for unit in _each(each, ends, dimensions)]


def _each(
    planned: tuple[str, str | None], ends: tuple[str, str], dimensions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[tuple[str, str | None]]:
    asset, partition = planned
    by_name = sorted(dimensions.get(asset, ()), key=lambda dimension: str(dimension["name"]))
    found = [] if partition else in_range([dimension["partitionKeys"] for dimension in by_name], *ends)
    return [(asset, key) for key in found] or [planned]


def in_range(dimensions: Sequence[Sequence[str]], first: str, last: str) -> list[str]:
    """The partitions from the first to the last; of several dimensions every combination. None if an end is unknown.

    >>> in_range([["mon", "tue", "wed"]], "mon", "tue")
    ['mon', 'tue']
    >>> in_range([["mon", "tue"], ["eu", "uk", "us"]], "mon|eu", "tue|uk")
    ['mon|eu', 'mon|uk', 'tue|eu', 'tue|uk']
    """
    starts, ends = ([first], [last]) if len(dimensions) == 1 else (first.split("|"), last.split("|"))
    if not dimensions or not len(dimensions) == len(starts) == len(ends):
        return []
    slices = []
    for keys, start, end in zip(dimensions, starts, ends, strict=True):
        if start not in keys or end not in keys:
            return []
        slices.append(keys[keys.index(start) : keys.index(end) + 1])
    return ["|".join(combination) for combination in product(*slices)]
