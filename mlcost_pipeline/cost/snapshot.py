"""What attribution knows besides the bill: runs, who held which resource when, what resources hold, models and rules.

A snapshot holds only what can touch one bill, and its digest is part of the ledger version's identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.settings import Rule, Settings, digest
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.tables import INTEGER, TEXT, TIME
from mlcost_pipeline.warehouse import Warehouse

RUNS = pa.schema([("run_id", TEXT), ("model", TEXT), ("stage", TEXT)])
HOLDS = pa.schema([("run_id", TEXT), ("resource_id", TEXT), ("start", TIME), ("end", TIME), ("share_milli", INTEGER)])
RESOURCES = pa.schema(
    [("resource_id", TEXT), ("valid_from", TIME), ("valid_to", TIME), ("kind", TEXT), ("capacity_milli", INTEGER),
     ("capacity_unit", TEXT)]
)  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """Runs, holds and resources in the schemas above; resource ids are canonical, one row is there once."""

    runs: pa.Table
    holds: pa.Table
    resources: pa.Table
    models: frozenset[str]
    rules: tuple[Rule, ...] = ()


#: What of the warehouse a delivery can touch. Ids are compared by their canonical form, made in Python below.
_NAMED = "SELECT DISTINCT resource_id AS id FROM billing_slots WHERE resource_id IS NOT NULL"
_TAGGED = "SELECT DISTINCT tag_run AS id FROM billing_slots WHERE tag_run IS NOT NULL"


def take(warehouse: Warehouse, settings: Settings, scope: str, delivery_id: str) -> Snapshot:
    """The snapshot that concerns one delivery."""
    versions = {"billing_slots": [(scope, delivery_id)]}
    spelled = warehouse.query(
        "SELECT resource_id FROM occupancy UNION SELECT resource_id FROM resources",
        tables=["occupancy", "resources"],
    )["resource_id"].to_pylist()
    named = set(warehouse.query(_NAMED, tables=["billing_slots"], versions=versions)["id"].to_pylist())
    ours = {text: found for text in spelled if (found := canonical(text)) in named}
    spellings = list(ours)
    holds = warehouse.read("occupancy", where="list_contains(?, resource_id)", params=[spellings])
    resources = warehouse.read("resources", where="list_contains(?, resource_id)", params=[spellings])
    tagged = warehouse.query(_TAGGED, tables=["billing_slots"], versions=versions)["id"].to_pylist()
    wanted = sorted({*tagged, *holds["run_id"].to_pylist()})
    runs = warehouse.read("run_records", columns=list(RUNS.names), where="list_contains(?, run_id)", params=[wanted])
    return Snapshot(
        runs=runs.cast(RUNS),
        holds=_renamed(holds, ours).select(HOLDS.names).cast(HOLDS),
        resources=_renamed(resources, ours).select(RESOURCES.names).cast(RESOURCES),
        models=frozenset({*settings.owners, PLATFORM}),
        rules=tuple(settings.rules),
    )


def build(
    runs: Iterable[Mapping[str, Any]],
    holds: Iterable[Mapping[str, Any]],
    resources: Iterable[Mapping[str, Any]],
    models: Iterable[str],
    rules: Sequence[Rule] = (),
) -> Snapshot:
    """A snapshot from plain rows (those of the tables ``run_records``, ``occupancy`` and ``resources``)."""
    return Snapshot(
        runs=pa.Table.from_pylist([_row(row, RUNS) for row in runs], schema=RUNS),
        holds=pa.Table.from_pylist([_row(row, HOLDS) for row in holds], schema=HOLDS),
        resources=pa.Table.from_pylist([_row(row, RESOURCES) for row in resources], schema=RESOURCES),
        models=frozenset(models),
        rules=tuple(rules),
    )


def digest_of(snapshot: Snapshot) -> str:
    """The identity of what a ledger was built from, besides the bill; in any order the same."""
    parts = [
        hashlib.sha256(_text(table).encode()).hexdigest()
        for table in (snapshot.runs, snapshot.holds, snapshot.resources)
    ]
    return digest(parts, sorted(snapshot.models), [rule.model_dump() for rule in snapshot.rules])


def _row(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    found = {name: row.get(name) for name in schema.names}
    if found.get("resource_id") is not None:
        found["resource_id"] = canonical(str(found["resource_id"]))
    return found


def _renamed(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    ids = pa.array([names[text] for text in table["resource_id"].to_pylist()], TEXT)
    return table.set_column(table.schema.get_field_index("resource_id"), "resource_id", ids)


def _text(table: pa.Table) -> str:
    columns = [[str(value) for value in column.cast(_plain(column.type)).to_pylist()] for column in table.columns]
    return "\n".join(sorted("\x1f".join(row) for row in zip(*columns, strict=True)))


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind
