"""Make a version of the lists and put it live: score, write, validate, derive the store, move one pointer.

A version is named by what it is made of, so the same work done twice, or killed anywhere and done again, is one
version; until the pointer moves the old one is live and whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import PublicationError
from mlcost_pipeline.evaluation.versions import incumbent, load_predictor
from mlcost_pipeline.inference import pointer
from mlcost_pipeline.inference.batch import score_users
from mlcost_pipeline.inference.histories import build_histories
from mlcost_pipeline.inference.popular import popular_items, seen_items, withdrawn_items
from mlcost_pipeline.inference.store import store_folder, verify_store, write_store
from mlcost_pipeline.inference.validation import validate
from mlcost_pipeline.models.base import Recommender
from mlcost_pipeline.models.features import FeatureSet, build_features
from mlcost_pipeline.settings import ModelSettings, Settings, digest
from mlcost_pipeline.warehouse import Warehouse

TABLE = pointer.TABLE


@dataclass(frozen=True)
class Publication:
    """A version and what became of it. `reason` is a code: published, already_live, earlier_data_cut, …"""

    model: str
    version: str
    model_version: str
    data_cut: datetime
    live: bool
    reason: str
    users: int
    places: int
    no_history: int
    owns_all: int
    validation: dict[str, Any]
    published_at: datetime | None


@dataclass(frozen=True)
class _World:
    """All that a version is made from, as of its data cut."""

    events: pa.Table
    seen: pa.Table
    withdrawn: frozenset[str]
    popular: list[str]
    static: list[str]


@dataclass(frozen=True)
class _Plan:
    """Which version is to be made."""

    model: str
    version: str
    model_version: str
    data_cut: datetime
    folder: Path
    run_id: str | None


def make_version(
    warehouse: Warehouse,
    settings: Settings,
    clock: Clock,
    model: str,
    *,
    as_of: date,
    run_id: str | None = None,
    shards: int = 1,
) -> Publication:
    """Score every known user with the incumbent as of the end of `as_of`, and publish the lists if they are sound.

    Raises:
        PublicationError: no model is in production, the day is not over, or the version failed its validation.
        NothingCompared: there was nothing to validate.
    """
    ours = settings.model(model)
    chosen = incumbent(warehouse, model)
    if chosen is None:
        raise PublicationError(f"model {model}: no version is in production, so there is nothing to score with")
    features = build_features(warehouse, settings, model, as_of)
    cut = features.cuts.data_cut
    if cut > clock.now():
        raise PublicationError(
            f"model {model}: {as_of} ends at {cut:%Y-%m-%d %H:%M} and its clock reads {clock.now():%Y-%m-%d %H:%M}; "
            "a day is scored when it is over"
        )
    world = _look(warehouse, ours, features)
    name = _name(model, chosen.version, features, ours, world)
    plan = _Plan(model, name, chosen.version, cut, store_folder(warehouse, model, name), run_id)
    counts = _write_lists(warehouse, ours, plan, world, shards)
    verdict = _validate(warehouse, ours, plan, world, counts)
    _write_store(warehouse, plan, world, counts)
    moved = _publish(warehouse, clock, plan, verdict, counts)
    if moved.live:
        prune(warehouse, model, keep=ours.serving.keep_versions)
    return Publication(
        model, name, chosen.version, cut, moved.live, moved.reason, counts["users"], counts["places"],
        len(counts["no_history"]), len(counts["owns_all"]), verdict, moved.published_at,
    )  # fmt: skip


def rollback(
    warehouse: Warehouse, clock: Clock, model: str, reason: str, *, version: str | None = None, who: str = "operator"
) -> str:
    """Leave the live version (or `version`, so that a repeat is harmless) for the one before; returns what is live now.

    Raises:
        PublicationError: there is no earlier version that is kept and whole; the live one stays.
    """
    usable = [entry.version for entry in pointer.history(warehouse, model) if _whole(warehouse, model, entry.version)]
    left, now = pointer.step_back(warehouse, model, version, usable)
    act = digest("rollback", model, left)
    known = warehouse.rows("acts", where="act_id = ?", params=[act])
    at = known[0]["at"] if known else clock.now()
    warehouse.append(
        "acts", [{"act_id": act, "verb": "rollback", "subject": model, "who": who, "reason": reason, "at": at}]
    )
    rows = warehouse.rows("publications", where="version = ? AND rolled_back_at IS NULL", params=[left])
    warehouse.append("publications", [{**row, "rolled_back_at": at} for row in rows])
    return now.version


def prune(warehouse: Warehouse, model: str, *, keep: int) -> list[str]:
    """Delete the files of all but the last `keep` versions; never of the live one. Returns what was deleted."""
    gone = pointer.retire(warehouse, model, keep)
    for version in gone:
        warehouse.drop_version(TABLE, model, version)
        shutil.rmtree(store_folder(warehouse, model, version), ignore_errors=True)
    pointer.deleted(warehouse, model, gone)
    return gone


def _look(warehouse: Warehouse, ours: ModelSettings, features: FeatureSet) -> _World:
    cut, kinds = features.cuts.data_cut, ours.positive_kinds
    withdrawn = withdrawn_items(warehouse, cut) | _withdrawn_in(features)
    days = ours.serving.popular_days
    return _World(
        events=pq.read_table(features.folder / "events.parquet", columns=["user_id", "item_id"]),
        seen=seen_items(warehouse, kinds, before=cut),
        withdrawn=withdrawn,
        popular=popular_items(warehouse, kinds, before=cut, days=days, withdrawn=withdrawn),
        static=popular_items(warehouse, kinds, before=cut, days=None, withdrawn=withdrawn),
    )


def _withdrawn_in(features: FeatureSet) -> frozenset[str]:
    items = pq.read_table(features.folder / "items.parquet")
    return frozenset(items.filter(items.column("withdrawn")).column("item_id").to_pylist())


def _name(model: str, model_version: str, features: FeatureSet, ours: ModelSettings, world: _World) -> str:
    serving = {"stored_length": ours.serving.stored_length, "recommend_seen": ours.serving.recommend_seen}
    seen = _table_hash(world.seen)
    orders = digest(sorted(world.withdrawn), world.popular, world.static)
    return digest(
        model, model_version, features.cuts.data_cut.isoformat(), features.data_version, serving, seen, orders
    )


def _table_hash(table: pa.Table) -> str:
    with pa.BufferOutputStream() as buffer:
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return hashlib.sha256(buffer.getvalue()).hexdigest()


def _write_lists(warehouse: Warehouse, ours: ModelSettings, plan: _Plan, world: _World, shards: int) -> dict[str, Any]:
    """Score and write the lists, unless that was done; returns the counts that go with them."""
    note = plan.folder / "scored.json"
    if plan.version in warehouse.versions(TABLE, plan.model) and note.exists():
        return cast(dict[str, Any], json.loads(note.read_bytes()))
    predictor = cast(Recommender, load_predictor(warehouse, plan.model, plan.model_version))
    seen = world.seen.slice(0, 0) if ours.serving.recommend_seen else world.seen
    histories = build_histories(world.events, seen, predictor.items)
    scored = score_users(
        predictor,
        histories,
        k=ours.serving.stored_length,
        withdrawn=world.withdrawn,
        recommend_seen=ours.serving.recommend_seen,
        shards=shards,
    )
    counts = {
        "users": len(histories.users),
        "places": scored.lists.num_rows,
        "eligible_items": sum(item not in world.withdrawn for item in predictor.items),
        "no_history": scored.no_history,
        "owns_all": scored.owns_all,
    }
    warehouse.write_file(note, json.dumps(counts, sort_keys=True).encode())
    version = pa.array([plan.version] * scored.lists.num_rows, type=pa.string())
    warehouse.write_version(TABLE, plan.model, plan.version, scored.lists.append_column("version", version))
    return counts


def _validate(
    warehouse: Warehouse, ours: ModelSettings, plan: _Plan, world: _World, counts: dict[str, Any]
) -> dict[str, Any]:
    """Validate once; the verdict is on record and a repeat reads it there."""
    known = warehouse.rows("publications", where="version = ?", params=[plan.version])
    if not known:
        validation = validate(
            warehouse.read_version(TABLE, plan.model, plan.version),
            known_users=world.events.column("user_id").unique().to_pylist(),
            without_list=[*counts["no_history"], *counts["owns_all"]],
            withdrawn=world.withdrawn,
            eligible_items=counts["eligible_items"],
            popular=world.popular,
            stored_length=ours.serving.stored_length,
            last=_last(warehouse, plan.model),
        )
        row = {
            "version": plan.version,
            "model": plan.model,
            "model_version": plan.model_version,
            "data_cut": plan.data_cut,
            "validation": validation.as_json(),
            "users": counts["users"],
            "run_id": plan.run_id,
        }
        warehouse.append("publications", [row])
        known = [row]
    verdict = cast(dict[str, Any], json.loads(known[0]["validation"]))
    failed = [check["sentence"] for check in verdict["checks"] if check["state"] == "failed"]
    if failed:
        raise PublicationError(
            f"model {plan.model}: version {plan.version} is not published, what was live stays: {'; '.join(failed)}"
        )
    return verdict


def _last(warehouse: Warehouse, model: str) -> dict[str, Any] | None:
    now = pointer.live(warehouse, model)
    if now is None:
        return None
    rows = warehouse.rows("publications", where="version = ?", params=[now.version])
    return cast(dict[str, Any], json.loads(rows[0]["validation"])) if rows else None


def _write_store(warehouse: Warehouse, plan: _Plan, world: _World, counts: dict[str, Any]) -> None:
    if _whole(warehouse, plan.model, plan.version):
        return
    meta = {"version": plan.version, "model": plan.model, "model_version": plan.model_version}
    write_store(
        plan.folder,
        meta={**meta, "data_cut": plan.data_cut.isoformat(), "users": counts["users"]},
        lists=warehouse.read_version(TABLE, plan.model, plan.version),
        empty=counts["owns_all"],
        seen=world.seen,
        orders={"popular": world.popular, "static": world.static},
    )
    verify_store(plan.folder)


def _whole(warehouse: Warehouse, model: str, version: str) -> bool:
    try:
        verify_store(store_folder(warehouse, model, version))
    except PublicationError:
        return False
    return True


def _publish(
    warehouse: Warehouse, clock: Clock, plan: _Plan, verdict: dict[str, Any], counts: dict[str, Any]
) -> pointer.Moved:
    if pointer.in_production(warehouse, plan.model) != plan.model_version:
        return pointer.Moved(False, "model_superseded", None)
    new = pointer.Entry(plan.version, plan.model_version, plan.data_cut, clock.now())
    moved = pointer.move(warehouse, plan.model, new)
    if moved.published_at is not None:
        rows = warehouse.rows("publications", where="version = ? AND published_at IS NULL", params=[plan.version])
        warehouse.append("publications", [{**row, "published_at": moved.published_at} for row in rows])
    return moved
