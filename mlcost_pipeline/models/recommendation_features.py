"""Events and items of a recommendation model as of a moment, by DuckDB over the warehouse."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import Cuts
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.tables import FLAG, TEXT, TIME

if TYPE_CHECKING:
    from mlcost_pipeline.warehouse import Warehouse

EVENTS = pa.schema([("user_id", TEXT), ("item_id", TEXT), ("happened_at", TIME), ("event_id", TEXT)])
ITEMS = pa.schema([("item_id", TEXT), ("withdrawn", FLAG)])

_EVENTS_SQL = """
WITH forgotten AS (
    SELECT DISTINCT user_id FROM users WHERE forgotten_at <= $1
), held AS (
    SELECT row_key FROM quarantine
    WHERE table_name = 'interactions' AND "from" <= $1 AND ("until" IS NULL OR "until" > $1)
)
SELECT user_id, item_id, happened_at, event_id,
       CASE WHEN user_id IS NULL OR user_id = '' THEN 'anonymous'
            WHEN user_id IN (SELECT user_id FROM forgotten) THEN 'forgotten'
            WHEN event_id IN (SELECT row_key FROM held) THEN 'quarantined' END AS dropped
FROM interactions
WHERE happened_at >= $2 AND happened_at < $1 AND kind IN (SELECT unnest($3))
ORDER BY user_id, happened_at, event_id
"""

_ITEMS_SQL = """
SELECT item_id, max(valid_to IS NULL OR valid_to > $1) AS offered
FROM items WHERE valid_from < $1 GROUP BY item_id ORDER BY item_id
"""


def recommendation_tables(
    warehouse: Warehouse, model: ModelSettings, moments: Cuts
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """``events`` (positive kinds, known users, newest windows) and ``items`` (withdrawn or not at the data cut).

    Events of nobody (no user id), of forgotten users and those in quarantine are left out and counted. An item
    that had events but is not in the catalogue counts as withdrawn; without any catalogue, no item does.

    Raises:
        ModelError: no events remain.
    """
    days = model.windows.training_days + model.windows.holdout_days
    begin = moments.data_cut - timedelta(days=days)
    found = warehouse.query(
        _EVENTS_SQL,
        [moments.data_cut, begin, list(model.positive_kinds)],
        tables=["interactions", "users", "quarantine"],
    )
    reasons = found["dropped"].to_pylist()
    dropped = {name: reasons.count(name) for name in ("anonymous", "forgotten", "quarantined")}
    events = found.filter(found["dropped"].is_null()).select(EVENTS.names).cast(EVENTS)
    if events.num_rows == 0:
        raise ModelError(
            f"no events of kind {', '.join(model.positive_kinds)} by known users from {begin.isoformat()} "
            f"to {moments.data_cut.isoformat()} ({sum(dropped.values())} left out); import events first"
        )
    catalogue = warehouse.query(_ITEMS_SQL, [moments.data_cut], tables=["items"])
    return {"events": events, "items": _items(catalogue, events)}, dropped


def _items(catalogue: pa.Table, events: pa.Table) -> pa.Table:
    offered = dict(zip(catalogue["item_id"].to_pylist(), catalogue["offered"].to_pylist(), strict=True))
    without_catalogue = not offered
    names = sorted(set(offered) | set(events["item_id"].unique().to_pylist()))
    withdrawn = [not offered.get(name, without_catalogue) for name in names]
    return pa.table({"item_id": pa.array(names, TEXT), "withdrawn": pa.array(withdrawn, FLAG)}, schema=ITEMS)
