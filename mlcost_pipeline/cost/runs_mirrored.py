"""Run records of another orchestrator, kept as it tells its runs now: told anew they are corrected, never doubled.

A run that was taken for lost may go on, make more and end after all. Its parts then hold other times: what was written
before is held against what is told, and only what differs is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.runs_copied import UNASSIGNED, StepFacts, record_of
from mlcost_pipeline.warehouse import Warehouse

TOLD_OTHERWISE = "its run has told since what it made"
OWN_RECORD = "its work recorded itself"
_LET_GO = (TOLD_OTHERWISE, OWN_RECORD)
_FIELDS = ("status", "started_at", "ended_at", "cause")
_NOTHING = {
    "status": "lost", "purpose": "measure", "job_id": None, "attempt": None, "asset": None, "partition": None,
    "code_version": None, "inputs_version": None, "model": UNASSIGNED, "price": Decimal(0),
}  # fmt: skip
#: Records of an orchestrator next to one that the work itself wrote, in the same run, of the same asset and partition.
_DOUBLES = """
SELECT m.* FROM run_records m WHERE m.source = ? AND m.asset IS NOT NULL AND EXISTS (
  SELECT 1 FROM run_records o WHERE o.orchestrator_run_id = m.orchestrator_run_id AND o.asset = m.asset
    AND coalesce(o.source, 'mlcost') NOT LIKE 'dagster:%'
    AND (o.partition IS NULL OR m.partition IS NULL OR o.partition = m.partition))
"""


def mirror_steps(warehouse: Warehouse, facts: Iterable[StepFacts]) -> list[str]:
    """Make the records of these runs what the facts say; returns the ids of the records that were written.

    The facts of a run come together: a record of it that is in none of them holds nothing any more. Times are taken as
    they are. What its own work recorded (:func:`take_back_doubles`) is left to that record.
    """
    told = {fact.record_id: fact for fact in facts}
    runs = {(fact.source, fact.run_id) for fact in told.values()}
    for name in _recorded_themselves(warehouse, list(told.values())):
        del told[name]
    records = {name: _record(fact) for name, fact in told.items()}
    holds = [
        {"run_id": name, "resource_id": fact.resource_id, "start": records[name]["started_at"],
         "end": records[name]["ended_at"], "share_milli": fact.share_milli}
        for name, fact in told.items() if fact.resource_id is not None
    ]  # fmt: skip
    stored = _stored(warehouse, runs)
    gone = [row for name, row in stored.items() if name not in records and row["cause"] not in _LET_GO]
    changed = [row for name, row in records.items() if name not in stored or _differs(stored[name], row)]
    _hold(warehouse, [*records, *stored], holds)
    warehouse.append("run_records", [*changed, *(_nothing(row, TOLD_OTHERWISE) for row in gone)], holds_now=True)
    return [str(row["run_id"]) for row in (*changed, *gone)]


def take_back_doubles(warehouse: Warehouse, source: str) -> list[str]:
    """Let go of what steps of `source` hold whose own work has its record here, however late that was read."""
    found = warehouse.query(_DOUBLES, [source], tables=["run_records"]).to_pylist()
    _hold(warehouse, [row["run_id"] for row in found], [])
    warehouse.append("run_records", [_nothing(row, OWN_RECORD) for row in found], holds_now=True)
    return [str(row["run_id"]) for row in found]


def _record(fact: StepFacts) -> Mapping[str, Any]:
    start, end = fact.started_at.astimezone(UTC), fact.ended_at.astimezone(UTC)
    return record_of(fact, fact.model or UNASSIGNED, start, max(start, end))


def _stored(warehouse: Warehouse, runs: Set[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    ids = sorted({run for _, run in runs})
    rows = warehouse.rows("run_records", where="orchestrator_run_id = ANY(?)", params=[ids])
    return {row["run_id"]: row for row in rows if (row["source"], row["orchestrator_run_id"]) in runs}


def _hold(warehouse: Warehouse, ids: Sequence[str], holds: Sequence[Mapping[str, Any]]) -> None:
    """Make `holds` all that these runs hold; written before the records, so that a kill between is made good."""
    rows = {_key(row): row for row in warehouse.rows("occupancy", where="run_id = ANY(?)", params=[list(ids)])}
    wanted = {_key(hold): hold for hold in holds}
    changed = [hold for key, hold in wanted.items() if key not in rows or _rest(rows[key]) != _rest(hold)]
    over = [row for key, row in rows.items() if key not in wanted and row["end"] != row["start"]]
    names = ("run_id", "resource_id", "start", "end", "share_milli")
    let_go = [{**{name: row[name] for name in names}, "end": row["start"]} for row in over]
    warehouse.append("occupancy", [*changed, *let_go], holds_now=True)


def _key(hold: Mapping[str, Any]) -> tuple[str, str, datetime]:
    return hold["run_id"], hold["resource_id"], hold["start"]


def _rest(hold: Mapping[str, Any]) -> tuple[datetime | None, int]:
    return hold["end"], hold["share_milli"]


def _differs(stored: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    return any(stored[name] != told[name] for name in _FIELDS)


def _nothing(row: Mapping[str, Any], cause: str) -> dict[str, Any]:
    """A record that holds nothing, made nothing and is no retrain: what is stored is never deleted."""
    return {**row, **_NOTHING, "ended_at": row["started_at"], "cause": cause}


def _recorded_themselves(warehouse: Warehouse, facts: Sequence[StepFacts]) -> list[str]:
    """Ids of the facts whose own work wrote a record, by orchestrator's run id, asset and partition."""
    rows = warehouse.rows(
        "run_records",
        where="orchestrator_run_id = ANY(?) AND asset IS NOT NULL AND coalesce(source, 'mlcost') NOT LIKE 'dagster:%'",
        params=[sorted({fact.run_id for fact in facts})],
    )
    own = {(row["orchestrator_run_id"], row["asset"], row["partition"]) for row in rows}
    return [fact.record_id for fact in facts if _covered(fact, own)]


def _covered(fact: StepFacts, own: set[tuple[str, str, str | None]]) -> bool:
    return any(
        (run, asset) == (fact.run_id, fact.asset) and (partition is None or fact.partition in (None, partition))
        for run, asset, partition in own
    )
