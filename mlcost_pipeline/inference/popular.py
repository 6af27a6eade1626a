"""Popular lists: what many users chose in the days before a data cut, and of all time as a last resort.

A user counts once an item however often they came back, an anonymous event counts by itself, so one bulk buyer
makes nothing popular. Ties are broken by item id.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pyarrow as pa

from mlcost_pipeline.warehouse import Warehouse

_KEPT = """
    NOT EXISTS (
        FROM quarantine AS q
        WHERE q.table_name = 'interactions' AND q.row_key = i.event_id AND (q.until IS NULL OR q.until > ?)
    )
"""

_POPULAR = f"""
    SELECT i.item_id FROM interactions AS i
    WHERE i.happened_at >= ? AND i.happened_at < ? AND list_contains(?, i.kind) AND {_KEPT}
    GROUP BY i.item_id
    ORDER BY count(DISTINCT coalesce('u' || i.user_id, 'e' || i.event_id)) DESC, i.item_id
"""

_WITHDRAWN = """
    WITH catalogue AS (SELECT * FROM items WHERE valid_from < $1),
    named AS (SELECT item_id FROM items UNION SELECT item_id FROM interactions)
    SELECT item_id FROM named
    WHERE EXISTS (FROM catalogue)
      AND item_id NOT IN (SELECT item_id FROM catalogue WHERE valid_to IS NULL OR valid_to > $1)
"""

_SEEN = """
    SELECT DISTINCT i.user_id, i.item_id FROM interactions AS i
    WHERE i.user_id IS NOT NULL AND i.happened_at < ? AND list_contains(?, i.kind)
    ORDER BY i.user_id, i.item_id
"""

_FIRST_TIME = datetime.fromisoformat("0001-01-02T00:00:00+00:00")


def withdrawn_items(warehouse: Warehouse, at: datetime) -> frozenset[str]:
    """Items that no validity offers at `at`; without any catalogue before `at`, no item is withdrawn."""
    found = warehouse.query(_WITHDRAWN, [at], tables=["items", "interactions"])
    return frozenset(found.column("item_id").to_pylist())


def popular_items(
    warehouse: Warehouse, kinds: Sequence[str], *, before: datetime, days: int | None, withdrawn: frozenset[str]
) -> list[str]:
    """Item ids by the number of distinct users in the `days` before `before` (None: of all time), most first."""
    start = _FIRST_TIME if days is None else before - timedelta(days=days)
    found = warehouse.query(_POPULAR, [start, before, list(kinds), before], tables=["interactions", "quarantine"])
    return [item for item in found.column("item_id").to_pylist() if item not in withdrawn]


def seen_items(warehouse: Warehouse, kinds: Sequence[str], *, before: datetime) -> pa.Table:
    """Distinct (user_id, item_id) of all time before a cut, ordered; anonymous events belong to nobody."""
    return warehouse.query(_SEEN, [before, list(kinds)], tables=["interactions"])
