"""Clicks added: what the treated users clicked beyond what they would have, had they seen the popular list.

added = C_t − N_t · C_h / N_h, with C clicks and N lookups of the treated and the holdout arm. Users are the units of
the bootstrap: a user's lookups and clicks stay together, for one eager user is not many independent ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.settings import ModelSettings, digest
from mlcost_pipeline.warehouse import Warehouse

RESAMPLES = 1000
LEVEL = 0.95

# A click counts for one lookup only: the one it names by request id, else the latest before it that showed the item.
_USERS = """
WITH shown AS (
  SELECT request_id, user_id, arm, version, looked_up_at, unnest(items) AS item_id FROM lookups
  WHERE user_id IS NOT NULL AND looked_up_at >= $start - $reach AND looked_up_at < $end + $reach
    AND (model IS NULL OR model = $model)
), clicks AS (
  SELECT event_id, user_id, item_id, happened_at, request_id FROM interactions
  WHERE kind = 'click' AND user_id IS NOT NULL AND happened_at >= $start AND happened_at < $end + $reach
), counted AS (
  SELECT c.event_id, s.request_id FROM clicks c JOIN shown s ON s.user_id = c.user_id AND s.item_id = c.item_id
    AND c.happened_at >= s.looked_up_at AND c.happened_at < s.looked_up_at + $reach
  QUALIFY row_number() OVER (PARTITION BY c.event_id ORDER BY coalesce(s.request_id = c.request_id, false) DESC,
    s.looked_up_at DESC, s.request_id DESC) = 1
), per_lookup AS (SELECT request_id, count(*) AS clicks FROM counted GROUP BY request_id),
segments AS (SELECT user_id, segment FROM users WHERE valid_from < $end
  QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY valid_from DESC) = 1)
SELECT l.user_id, l.arm, any_value(g.segment) AS segment, count(*) AS lookups,
  coalesce(sum(p.clicks), 0)::BIGINT AS clicks
FROM lookups l LEFT JOIN per_lookup p USING (request_id) LEFT JOIN segments g ON g.user_id = l.user_id
WHERE l.user_id IS NOT NULL AND l.looked_up_at >= $start AND l.looked_up_at < $end
  AND (l.model IS NULL OR l.model = $model)
GROUP BY l.user_id, l.arm ORDER BY l.user_id, l.arm
"""


@dataclass(frozen=True)
class Added:
    """Clicks added by the treated arm, with the bounds of a percentile interval; lookups of both arms."""

    count: float
    low: float
    high: float
    treated_lookups: int
    holdout_lookups: int


def added_clicks(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime
) -> list[tuple[str, Added]]:
    """Added clicks of lookups in [start, end), for all users and by segment; nothing where an arm has no lookups."""
    users = _users(warehouse, block, model, start, end)
    slices = {"all": users}
    for segment in sorted({row["segment"] for row in users if row["segment"] is not None}):
        slices[f"segment={segment}"] = [row for row in users if row["segment"] == segment]
    found = []
    for name, rows in slices.items():
        measured = estimate(rows, seed=int(digest("added_clicks", model, start, end, name, length=12), 16))
        if measured is not None:
            found.append((name, measured))
    return found


def served_versions(warehouse: Warehouse, model: str, start: datetime, end: datetime) -> list[str]:
    """Model versions behind the lists that the treated users were served; a list of elsewhere is ``unknown``."""
    found = warehouse.query(
        "SELECT DISTINCT p.model_version FROM lookups l LEFT JOIN publications p ON p.version = l.version "
        "WHERE l.arm = 'treated' AND l.looked_up_at >= ? AND l.looked_up_at < ? "
        "AND (l.model IS NULL OR l.model = ?) ORDER BY 1",
        [start, end, model],
        tables=["lookups", "publications"],
    )
    return [str(row["model_version"] or "unknown") for row in found.to_pylist()]


def estimate(users: Sequence[Mapping[str, Any]], *, seed: int, resamples: int = RESAMPLES) -> Added | None:
    """Added clicks from one row a user and arm (`arm`, `lookups`, `clicks`); None if an arm has no lookups.

    The same rows and seed give the same bounds, in whatever order the rows come.
    """
    arms = {arm: _pairs(users, arm) for arm in ("treated", "holdout")}
    totals = {arm: (counts @ pairs) for arm, (pairs, counts) in arms.items()}
    if totals["treated"][0] == 0 or totals["holdout"][0] == 0:
        return None
    rng = np.random.default_rng(seed)
    draws = {arm: _resampled(rng, pairs, counts, resamples) for arm, (pairs, counts) in arms.items()}
    (lookups, clicks), (held, held_clicks) = draws["treated"].T, draws["holdout"].T
    added = clicks - lookups * held_clicks / held
    tail = (1 - LEVEL) / 2
    low, high = (float(bound) for bound in np.quantile(added, [tail, 1 - tail]))
    whole = totals["treated"][1] - totals["treated"][0] * totals["holdout"][1] / totals["holdout"][0]
    return Added(float(whole), low, high, int(totals["treated"][0]), int(totals["holdout"][0]))


def _users(
    warehouse: Warehouse, block: ModelSettings, model: str, start: datetime, end: datetime
) -> list[dict[str, Any]]:
    reach = timedelta(hours=block.outcome.attribution_hours)
    values = {"start": start, "end": end, "reach": reach, "model": model}
    sql, params = _positional(_USERS, values)
    found: list[dict[str, Any]] = warehouse.query(sql, params, tables=["lookups", "interactions", "users"]).to_pylist()
    return found


def _positional(sql: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Named parameters as the positional ones that a query of the warehouse takes."""
    words = sql.split("$")
    text, params = words[0], []
    for word in words[1:]:
        name = next(name for name in values if word.startswith(name))
        text += "?" + word[len(name) :]
        params.append(values[name])
    return text, params


def _pairs(users: Sequence[Mapping[str, Any]], arm: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct (lookups, clicks) of an arm's users, and how many users have each; sorted."""
    chosen = [(row["lookups"], row["clicks"]) for row in users if row["arm"] == arm]
    if not chosen:
        return np.zeros((1, 2), np.int64), np.ones(1, np.int64)
    pairs, counts = np.unique(np.array(chosen, dtype=np.int64), axis=0, return_counts=True)
    return pairs, counts.astype(np.int64)


def _resampled(
    rng: np.random.Generator, pairs: NDArray[np.int64], counts: NDArray[np.int64], resamples: int
) -> NDArray[np.float64]:
    """(resamples, 2) sums of lookups and clicks over users drawn with replacement.

    Users with equal counts are exchangeable, so drawing how many of each kind is drawing the users themselves.
    """
    users = int(counts.sum())
    drawn = rng.multinomial(users, counts / users, size=resamples)
    return (drawn @ pairs).astype(np.float64)
