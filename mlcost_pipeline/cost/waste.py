"""Money that bought nothing: retrains that were of no use, serving capacity that stood idle, lists that nobody read.

Every amount is the ledger's, or the price book's where no bill has reached the work yet, and then it says so. Nothing
is called waste that was not seen to be: what cannot be told is told as unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import Ask, Book, asking, books, closed
from mlcost_pipeline.cost.prices import unbilled
from mlcost_pipeline.cost.slots import from_units, money_sum, to_units
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: Tiers of a lookup that read the user's own list.
READ = ("fresh", "filtered")


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
class IdleReplica:
    """A resource that served in a month: what it cost, and the part that nobody held of it; models by name."""

    period: str
    resource_id: str
    models: tuple[str, ...]
    spent: Decimal
    idle: Decimal
    provisional: bool


@dataclass(frozen=True)
class UnreadLists:
    """A version of the lists, from its publication to the next: how many users' lists a lookup on record read.

    `wasted` is the part of the batch's cost that went into the lists that nobody read, None where its cost is unknown;
    `over` tells whether another version has taken its place, so that no more will be read.
    """

    model: str
    version: str
    published_at: datetime
    lists: int
    read: int
    spent: Decimal | None
    wasted: Decimal | None
    over: bool
    estimated: bool
    provisional: bool


@dataclass(frozen=True)
class Waste:
    """Of all models, in the settings' currency."""

    retrains: tuple[UselessRetrain, ...]
    replicas: tuple[IdleReplica, ...]
    lists: tuple[UnreadLists, ...]

    @property
    def of_retrains(self) -> Decimal:
        """Spent on retrains that never shipped; those without a shown gain are not in it."""
        gone = (each for each in self.retrains if each.became == "never_shipped")
        return money_sum(each.spent for each in gone if each.spent is not None)

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
_PAID = """
SELECT run_id, sum(effective) AS effective, list_sort(list(DISTINCT period)) AS months FROM cost_ledger
WHERE run_id IS NOT NULL GROUP BY run_id
"""
_IDLE = """
WITH serving AS (SELECT DISTINCT lower(o.resource_id) AS resource, strftime(m.month, '%Y-%m') AS period, r.model
  FROM run_records r JOIN occupancy o USING (run_id),
    unnest(generate_series(date_trunc('month', o.start), coalesce(o."end", r.ended_at, o.start), INTERVAL 1 MONTH))
      AS m(month)
  WHERE r.stage = 'serving' AND r.purpose = 'online'),
spent AS (SELECT l.period, s.resource_id, sum(l.effective) AS spent,
    coalesce(sum(l.effective) FILTER (l.method = 'idle'), 0) AS idle
  FROM cost_ledger l JOIN billing_slots s USING (delivery_id, slot_id) WHERE s.resource_id IS NOT NULL GROUP BY ALL)
SELECT p.period, p.resource_id, list_sort(list(v.model)) AS models, any_value(p.spent) AS spent,
  any_value(p.idle) AS idle
FROM spent p JOIN serving v ON v.resource = lower(p.resource_id) AND v.period = p.period
GROUP BY p.period, p.resource_id ORDER BY p.period DESC, idle DESC, p.resource_id
"""
_LISTS = """
WITH live AS (SELECT model, version, published_at, users, run_id,
    lead(published_at) OVER (PARTITION BY model ORDER BY published_at) IS NOT NULL OR rolled_back_at IS NOT NULL AS over
  FROM publications WHERE published_at IS NOT NULL),
seen AS (SELECT version, count(DISTINCT user_id) AS readers FROM lookups
  WHERE list_contains(?, tier) AND version IS NOT NULL GROUP BY version)
SELECT live.*, coalesce(readers, 0) AS readers FROM live LEFT JOIN seen USING (version)
ORDER BY model, published_at DESC
"""


def waste(warehouse: Warehouse, settings: Settings, now: datetime) -> Waste:
    """All that is known to have been spent for nothing, and on what.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill.
    """
    found = books(warehouse, settings.currency)
    closed(warehouse, found)
    ask, may_change = asking(warehouse, found), _open_months(found)
    costs = _Costs.of(warehouse, settings, ask, now, may_change)
    return Waste(
        tuple(_retrain(row, costs) for row in _rows(ask, _JOBS, "run_records", "model_versions", "jobs")
              if _became(row) is not None),
        tuple(
            IdleReplica(row["period"], row["resource_id"], tuple(row["models"]), row["spent"], row["idle"],
                        row["period"] in may_change)
            for row in _rows(ask, _IDLE, "cost_ledger", "billing_slots", "run_records", "occupancy")
        ),
        tuple(_lists(row, costs) for row in ask(_LISTS, [list(READ)], ["publications", "lookups"]).to_pylist()),
    )  # fmt: skip


@dataclass(frozen=True)
class _Costs:
    paid: Mapping[str, tuple[Decimal, Sequence[str]]]
    estimates: Mapping[str, Decimal | None]
    may_change: frozenset[str]

    @classmethod
    def of(
        cls, warehouse: Warehouse, settings: Settings, ask: Ask, now: datetime, may_change: frozenset[str]
    ) -> _Costs:
        paid = {row["run_id"]: (row["effective"], row["months"]) for row in _rows(ask, _PAID, "cost_ledger")}
        priced = {each.run_id: each.amount for each in unbilled(warehouse, settings, now)}
        return cls(paid, priced, may_change)

    def of_runs(self, runs: Sequence[str]) -> tuple[Decimal | None, bool, bool]:
        """(cost, whether the price book says a part of it, whether a bill of it may change); cost None is unknown."""
        amounts = [self.paid[run][0] if run in self.paid else self.estimates.get(run) for run in runs]
        estimated = any(run not in self.paid for run in runs)
        months = {month for run in runs if run in self.paid for month in self.paid[run][1]}
        known = None if None in amounts else money_sum(amount for amount in amounts if amount is not None)
        return known, estimated, estimated or not months.isdisjoint(self.may_change)


def _open_months(found: Sequence[Book]) -> frozenset[str]:
    return frozenset(book.bill.period for book in found if book.version is None or book.bill.state != "final")


def _rows(ask: Ask, sql: str, *tables: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask(sql, [], tables).to_pylist()
    return rows


def _became(row: Mapping[str, Any]) -> str | None:
    """What became of a job, None where it was of use or nobody knows: a job from elsewhere has no gate here."""
    if row["state"] is None:
        return None
    if row["promoted_at"] is None:
        return "never_shipped"
    return "no_gain_shown" if row["low"] is not None and row["low"] <= 0 else None


def _retrain(row: Mapping[str, Any], costs: _Costs) -> UselessRetrain:
    became = _became(row)
    assert became is not None
    reason = {
        "never_shipped": str(row["reason"] or "its job ended without a promotion"),
        "no_gain_shown": f"{row['version']} was promoted, and not shown to be better than {row['compared_with']}",
    }[became]
    spent, estimated, provisional = costs.of_runs(row["runs"])
    return UselessRetrain(row["model"], row["job_id"], row["began"], became, reason, spent, estimated, provisional)


def _lists(row: Mapping[str, Any], costs: _Costs) -> UnreadLists:
    spent, estimated, provisional = costs.of_runs([row["run_id"]]) if row["run_id"] else (None, False, True)
    read = min(int(row["readers"]), int(row["users"]))
    wasted = None
    if spent is not None and row["users"]:
        wasted = from_units(to_units(spent) * (row["users"] - read) // row["users"])
    return UnreadLists(
        row["model"], row["version"], row["published_at"], row["users"], read, spent, wasted, bool(row["over"]),
        estimated, provisional,
    )  # fmt: skip
