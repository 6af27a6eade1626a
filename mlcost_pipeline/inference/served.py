"""From which tier users were served in a stretch of time, and how old what they saw was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.inference import pointer
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_OURS = """
    looked_up_at >= $1 AND looked_up_at < $2 AND (model IS NULL OR model = $3)
    AND (version IS NULL OR version IN (SELECT version FROM publications WHERE model = $3))
"""

_TIERS = f"""
    SELECT tier, arm, reason, count(*) AS lookups, count(DISTINCT user_id) AS users FROM lookups
    WHERE {_OURS} GROUP BY ALL ORDER BY tier, arm, reason
"""

_TOTALS = f"""
    SELECT
        count(*) AS lookups,
        count(DISTINCT user_id) AS users,
        count(DISTINCT user_id) FILTER (tier = 'fresh') AS fresh_users,
        count(*) FILTER (arm = 'treated') AS treated,
        count(*) FILTER (arm = 'treated' AND user_id IS NOT NULL AND tier NOT IN ('fresh', 'filtered')) AS fallback,
        count(*) FILTER (arm = 'treated' AND user_id IS NOT NULL) AS treated_known,
        quantile_disc(age_seconds, 0.5) FILTER (tier IN ('fresh', 'filtered')) AS age_p50,
        quantile_disc(age_seconds, 0.95) FILTER (tier IN ('fresh', 'filtered')) AS age_p95,
        quantile_disc(latency_seconds, 0.5) AS latency_p50,
        quantile_disc(latency_seconds, 0.99) AS latency_p99
    FROM lookups WHERE {_OURS}
"""


@dataclass(frozen=True)
class TierCount:
    """Lookups of one tier, arm and reason."""

    tier: str
    arm: str
    reason: str
    lookups: int
    users: int


@dataclass(frozen=True)
class Served:
    """Lookups of a model on the days [start, end).

    Attributes:
        data_cut: of the version in force now, with `published_users` known to it; None before the first.
        fresh_users: distinct users that were served a fresh list at least once.
        fallback: lookups of named users in the treated arm that were answered below ``fresh`` and ``filtered``.
        fallback_share: these over all lookups of named users in the treated arm; None if there were none.
        age_p50_seconds, age_p95_seconds: age of personal lists when they were shown; None if none was.
    """

    model: str
    start: date
    end: date
    data_cut: datetime | None
    published_users: int | None
    lookups: int
    users: int
    fresh_users: int
    tiers: dict[str, int]
    counts: tuple[TierCount, ...]
    treated: int
    fallback: int
    fallback_share: float | None
    age_p50_seconds: float | None
    age_p95_seconds: float | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None


def served(warehouse: Warehouse, settings: Settings, model: str, start: date, end: date) -> Served:
    """Count the lookups of the days [start, end), UTC, by tier; the tiers sum to the lookups.

    Lookups that no version answered (nothing was published, or it could not be read) count for every model.
    """
    settings.model(model)
    window = [_midnight(start), _midnight(end), model]
    tables = ["lookups", "publications"]
    counts = tuple(TierCount(**row) for row in warehouse.query(_TIERS, window, tables=tables).to_pylist())
    row = warehouse.query(_TOTALS, window, tables=tables).to_pylist()[0]
    now = pointer.live(warehouse, model)
    published = [] if now is None else warehouse.rows("publications", where="version = ?", params=[now.version])
    tiers: dict[str, int] = {}
    for count in counts:
        tiers[count.tier] = tiers.get(count.tier, 0) + count.lookups
    known = row["treated_known"]
    return Served(
        model=model,
        start=start,
        end=end,
        data_cut=None if now is None else now.data_cut,
        published_users=published[0]["users"] if published else None,
        lookups=row["lookups"],
        users=row["users"],
        fresh_users=row["fresh_users"],
        tiers=tiers,
        counts=counts,
        treated=row["treated"],
        fallback=row["fallback"],
        fallback_share=row["fallback"] / known if known else None,
        age_p50_seconds=row["age_p50"],
        age_p95_seconds=row["age_p95"],
        latency_p50_seconds=row["latency_p50"],
        latency_p99_seconds=row["latency_p99"],
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


def measured_fallback(found: Served, bound: float) -> float:
    """The fallback share, if it was measured.

    Raises:
        NothingCompared: nobody of the treated arm looked anything up, so a bound cannot be said to hold.
    """
    if found.fallback_share is None:
        raise NothingCompared(f"no treated lookups from {found.start} to {found.end}: the bound {bound} is untested")
    return found.fallback_share
