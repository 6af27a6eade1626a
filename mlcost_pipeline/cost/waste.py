"""Money that bought nothing: retrains and runs of no use, capacity that stood idle, lists that nobody read.

Every amount is the ledger's, or the price book's where no bill has reached the work yet, and then it says so. Nothing
is called waste that was not seen to be: what cannot be told is told as unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import asking, books, closed, left_out
from mlcost_pipeline.cost.fruitless_runs import FruitlessRuns, IdlePool, fruitless_runs, idle_pools, unpriced_of
from mlcost_pipeline.cost.idle_replicas import IdleReplica, idle_replicas
from mlcost_pipeline.cost.run_costs import RunCosts, run_costs
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.cost.unread_lists import UnreadLists, unknown_of, unread_lists
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class UselessRetrain:
    """A retraining job that is over, and what became of it: ``never_shipped`` or ``no_gain_shown``.

    `spent` is all its attempts cost, None where neither a bill nor a price says.
    """

    model: str
    job_id: str
    began: datetime
    became: str
    reason: str
    spent: Decimal | None
    estimated: bool
    provisional: bool


@dataclass(frozen=True)
class Waste:
    """Of all models, in the settings' currency; `unknown` says in sentences what could not be told."""

    retrains: tuple[UselessRetrain, ...]
    runs: tuple[FruitlessRuns, ...]
    replicas: tuple[IdleReplica, ...]
    pools: tuple[IdlePool, ...]
    lists: tuple[UnreadLists, ...]
    unknown: tuple[str, ...]

    @property
    def of_retrains(self) -> Decimal:
        """Spent on retrains that never shipped; those without a shown gain are not in it."""
        gone = (each for each in self.retrains if each.became == "never_shipped")
        return money_sum(each.spent for each in gone if each.spent is not None)

    @property
    def of_runs(self) -> Decimal:
        """Spent on runs that came to nothing, other than those of retrains that never shipped."""
        return money_sum(each.spent for each in self.runs)

    @property
    def of_pools(self) -> Decimal:
        return money_sum(each.idle for each in self.pools)

    @property
    def of_replicas(self) -> Decimal:
        return money_sum(each.idle for each in self.replicas)

    @property
    def of_lists(self) -> Decimal:
        """Of versions that are over; the one in force may still be read."""
        return money_sum(each.wasted for each in self.lists if each.over and each.wasted is not None)


_JOBS = """
WITH attempts AS (SELECT model, job_id, min(started_at) AS began, bool_or(status = 'running') AS under_way,
    list(run_id) AS runs FROM run_records WHERE purpose = 'retrain' AND job_id IS NOT NULL GROUP BY ALL),
made AS (SELECT job_id, max(promoted_at) AS promoted_at, arg_max(gate, promoted_at) AS gate,
    arg_max(version, promoted_at) AS version FROM model_versions WHERE promoted_at IS NOT NULL GROUP BY job_id)
SELECT a.model, a.job_id, a.began, a.runs, j.state, j.reason, m.promoted_at, m.version,
  CAST(m.gate->>'$.low' AS DOUBLE) AS low, m.gate->>'$.compared_with' AS compared_with
FROM attempts a LEFT JOIN jobs j USING (job_id) LEFT JOIN made m USING (job_id)
WHERE NOT a.under_way AND j.state IS DISTINCT FROM 'open' ORDER BY a.model, a.began, a.job_id
"""


def waste(warehouse: Warehouse, settings: Settings, now: datetime) -> Waste:
    """All that is known to have been spent for nothing, on what, and what is not known.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill.
    """
    found = books(warehouse, settings.currency)
    closed(warehouse, found)
    ask = asking(warehouse, found)
    costs = run_costs(warehouse, settings, ask, found, now)
    jobs = ask(_JOBS, [], ["run_records", "model_versions", "jobs"]).to_pylist()
    retrains = tuple(_retrain(row, costs) for row in jobs if _became(row) is not None)
    replicas, unknown = idle_replicas(ask, now, costs.may_change)
    pools = idle_pools(ask, costs.may_change, {(each.period, each.resource_id) for each in replicas})
    runs = fruitless_runs(ask, costs, {each.job_id for each in retrains if each.became == "never_shipped"})
    lists = unread_lists(ask, costs)
    missing = (f"{said}." for said in left_out(found, settings))
    untold = (*missing, *_unknown_jobs(jobs, retrains), *unpriced_of(runs), *unknown, *unknown_of(lists))
    return Waste(retrains, tuple(runs), tuple(replicas), tuple(pools), lists, untold)


def _became(row: Mapping[str, Any]) -> str | None:
    """What became of a job, None where it was of use or nobody knows: a job from elsewhere has no gate here."""
    if row["state"] is None:
        return None
    if row["promoted_at"] is None:
        return "never_shipped"
    return "no_gain_shown" if row["low"] is not None and row["low"] <= 0 else None


def _retrain(row: Mapping[str, Any], costs: RunCosts) -> UselessRetrain:
    became = _became(row)
    assert became is not None
    reason = {
        "never_shipped": str(row["reason"] or "its job ended without a promotion"),
        "no_gain_shown": f"{row['version']} was promoted, and not shown to be better than {row['compared_with']}",
    }[became]
    paid = costs.of_runs(row["runs"])
    return UselessRetrain(
        row["model"], row["job_id"], row["began"], became, reason, paid.amount, paid.estimated, paid.provisional
    )


def _unknown_jobs(jobs: Sequence[Mapping[str, Any]], retrains: Sequence[UselessRetrain]) -> Iterator[str]:
    elsewhere = sum(row["state"] is None for row in jobs)
    if elsewhere:
        yield f"Whether it shipped is not on record for {elsewhere} of {len(jobs)} retrains, which are in no sum."
    untold = sum(row["state"] is not None and row["promoted_at"] is not None and row["low"] is None for row in jobs)
    if untold:
        yield (
            f"Whether it brought a gain is not known of {untold} of {len(jobs)} retrains: they shipped, and nothing "
            "was compared."
        )
    unpriced = sum(each.spent is None for each in retrains)
    if unpriced:
        yield (
            f"What it cost is in no bill and has no price for {unpriced} of {len(retrains)} retrains of no use; they "
            "are in no sum."
        )
