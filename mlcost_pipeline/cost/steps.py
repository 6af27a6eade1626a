"""What one step of an orchestrator's run was to make and made, divided into facts: one for each asset and partition.

A step's hold is shared by what it made so that nothing of it is lost: in equal shares where they come out even, else
one after the other in equal stretches of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from mlcost_pipeline.cost.runs_copied import StepFacts, versions_told

#: Whose an asset is: model, stage and purpose, each None where nobody says.
Owner = tuple[str | None, str | None, str | None]
_Unit = tuple[str | None, str | None]


@dataclass
class StepLog:
    """The events of one step: what it was to make, and the tags of what it made, by asset and partition."""

    planned: list[tuple[str, str | None]] = field(default_factory=list)
    made: dict[tuple[str, str | None], dict[str, str]] = field(default_factory=dict)
    cause: str | None = None

    @property
    def assets(self) -> list[str]:
        return list(dict.fromkeys(asset for asset, _ in (*self.planned, *self.made)))


@dataclass(frozen=True)
class Ended:
    """How a step ended, in wall time: `status` and `cause` as :func:`runs_copied.how_ended` tells them."""

    started_at: datetime
    ended_at: datetime
    status: str
    cause: str | None


def facts_of(
    log: StepLog, ended: Ended, *, source: str, run_id: str, step: str, owner: Callable[[str | None], Owner],
    resource_id: str | None, share_milli: int, partition: str | None = None, job_id: str | None = None,
    attempt: int = 1,
) -> Iterator[StepFacts]:  # fmt: skip
    """A fact for each asset and partition that the step made, and if it ended badly for each that it did not.

    What was planned and left out by a step that succeeded (an optional output) has none. If the step made nothing at
    all, what it held is its assets' without a partition or purpose, for none was made and nothing trained. `partition`
    names what the run is about where neither the plan nor a materialisation does.
    """
    units = list(_units(log, ended))
    several = len({asset for asset, _ in units} | set(log.assets)) > 1
    of_asset = [asset for asset, _ in units]
    for number, ((asset, own), (start, end, share)) in enumerate(
        zip(units, divided(ended.started_at, ended.ended_at, share_milli, len(units)), strict=True)
    ):
        made = log.made.get((asset or "", own))
        status, cause = (ended.status, ended.cause) if made is None else ("succeeded", None)
        nothing = made is None and status == "succeeded" and asset is not None
        model, stage, purpose = owner(asset)
        part = f":{asset}" if several and asset else ""
        part += f"[{own or number}]" if of_asset.count(asset) > 1 else ""
        yield StepFacts(
            source=source, run_id=run_id, step=step, part=part, asset=asset,
            partition=None if nothing else own or partition, model=model, stage=stage,
            purpose=None if nothing else purpose, started_at=start, ended_at=end, status=status,
            cause="the step made nothing" if nothing else cause, resource_id=resource_id,
            share_milli=share, job_id=job_id, attempt=attempt, **versions_told(made or {}, run_id),
        )  # fmt: skip


def _units(log: StepLog, ended: Ended) -> Iterator[_Unit]:
    yield from log.made
    whole = {asset for asset, _ in log.made}
    missing = [
        (asset, partition)
        for asset, partition in dict.fromkeys(log.planned)
        if (asset, partition) not in log.made and not (partition is None and asset in whole)
    ]
    if ended.status != "succeeded":
        yield from missing
    elif not log.made:
        yield from dict.fromkeys((asset, None) for asset, _ in missing)
    if not missing and not log.made:
        yield None, None


def divided(start: datetime, end: datetime, share_milli: int, parts: int) -> list[tuple[datetime, datetime, int]]:
    """A hold in equal parts (start, end, milli-share) that together are exactly it.

    >>> from datetime import UTC
    >>> noon = datetime(2025, 6, 1, 12, tzinfo=UTC)
    >>> [share for _, _, share in divided(noon, noon + timedelta(hours=1), 1000, 4)]
    [250, 250, 250, 250]
    >>> [(str(end - begin), share) for begin, end, share in divided(noon, noon + timedelta(hours=1), 1000, 3)]
    [('0:20:00', 1000), ('0:20:00', 1000), ('0:20:00', 1000)]
    """
    if share_milli % parts == 0:
        return [(start, end, share_milli // parts)] * parts
    whole = (end - start) // timedelta(microseconds=1)
    cuts = [start + timedelta(microseconds=whole * number // parts) for number in range(parts + 1)]
    return [(begin, until, share_milli) for begin, until in pairwise(cuts)]


def owner_by_tags(tags: Mapping[str, Any]) -> Owner:
    """Whose an asset is by its tags ``mlcost/model``, ``mlcost/stage`` and ``mlcost/purpose``."""
    return tags.get("mlcost/model"), tags.get("mlcost/stage"), tags.get("mlcost/purpose")
