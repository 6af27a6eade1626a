"""Hits: purchases of a day that stood in the list in force that morning. A proxy, where nobody logged what was shown.

A purchase that would have happened anyway is a hit too, so hits are never compared with added clicks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.warehouse import Warehouse

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Hits:
    """Hits of one day by one model version, over how many purchases of users with a list."""

    model_version: str
    hits: int
    purchases: int


def kept_lists(warehouse: Warehouse, model: str) -> list[dict[str, Any]]:
    """Rows of ``publications`` whose lists went live, were not rolled back and are still kept."""
    rows = warehouse.rows("publications", where="model = ? AND published_at IS NOT NULL", params=[model])
    kept = set(warehouse.versions("recommendations", model))
    return [row for row in rows if row["rolled_back_at"] is None and row["version"] in kept]


def day_hits(
    warehouse: Warehouse, block: ModelSettings, model: str, day: datetime, lists: list[dict[str, Any]]
) -> Hits | None:
    """Hits on the day beginning at `day`, 0 where nobody who had a list bought anything; None if none was in force."""
    listed = _list_in_force(lists, day)
    if listed is None:
        return None
    version, model_version = listed
    top = warehouse.read_version("recommendations", model, version)
    top = top.filter(pc.less_equal(top["rank"], block.outcome.hits_at + _first_rank(top) - 1))
    bought = _bought(warehouse, block, day).join(_users_of(top), "user_id", join_type="inner")
    hit = bought.join(top.select(["user_id", "item_id"]), ["user_id", "item_id"], join_type="left semi")
    return Hits(model_version, hit.num_rows, bought.num_rows)


def _list_in_force(lists: list[dict[str, Any]], day: datetime) -> tuple[str, str] | None:
    """(version, model version) of the newest list that was made of data before `day`."""
    good = [row for row in lists if row["data_cut"] <= day]
    if not good:
        return None
    newest = max(good, key=lambda row: (row["data_cut"], row["published_at"], row["version"]))
    return newest["version"], newest["model_version"]


def _bought(warehouse: Warehouse, block: ModelSettings, day: datetime) -> pa.Table:
    kinds = ", ".join("?" for _ in block.positive_kinds)
    return warehouse.query(
        f"SELECT DISTINCT user_id, item_id FROM interactions WHERE kind IN ({kinds}) AND user_id IS NOT NULL "
        "AND happened_at >= ? AND happened_at < ?",
        [*block.positive_kinds, day, day + DAY],
        tables=["interactions"],
    )


def _users_of(top: pa.Table) -> pa.Table:
    return top.group_by(["user_id"]).aggregate([])


def _first_rank(top: pa.Table) -> int:
    return int(pc.min(top["rank"]).as_py() or 0) if top.num_rows else 0
