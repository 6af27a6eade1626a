"""A model's money by month, added up in SQL from the ledgers in force and from estimates of what no bill has reached.

Spend is effective cost: commitments amortised, credits in, derived charges (tax, support, discounts) in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import Ask
from mlcost_pipeline.cost.device_ladder import NO_STAGE
from mlcost_pipeline.cost.prices import unbilled
from mlcost_pipeline.cost.run_months import run_months
from mlcost_pipeline.cost.run_outcomes import NO_RUN, REDONE, RUN_OUTCOMES, grouped, split_redone
from mlcost_pipeline.cost.run_outcomes import TABLES as RUN_TABLES
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

ESTIMATE = "estimate"


@dataclass(frozen=True)
class Retrains:
    """Whole jobs begun in a month: how many have a known cost, and what all their attempts cost, whenever billed.

    `rests_on` are the months whose bills say so, or will: those in which an attempt ran; `estimated` whether the price
    book says a part of it.
    """

    jobs: int
    cost: Decimal
    rests_on: frozenset[str] = frozenset()
    estimated: bool = False


@dataclass(frozen=True)
class MonthSpend:
    """One month of one model. `billed` is what invoices say, all else effective; each breakdown adds up to `total`."""

    total: Decimal
    billed: Decimal
    estimated: Decimal
    unpriced_runs: int
    by_stage: Mapping[str, Decimal]
    by_method: Mapping[str, Decimal]
    by_run_outcome: Mapping[str, Decimal]


NOTHING_SPENT = MonthSpend(Decimal(0), Decimal(0), Decimal(0), 0, {}, {}, {})


@dataclass(frozen=True)
class _Part:
    period: str
    stage: str
    method: str
    outcome: str
    effective: Decimal
    billed: Decimal | None = None  # None: an estimate
    steps_again: int | None = None
    steps_done: int | None = None


@dataclass(frozen=True)
class Estimates:
    """Runs of a model that no bill has reached, at the price book's prices: parts by month, and what has no price."""

    parts: tuple[_Part, ...]
    unpriced: Mapping[str, int]
    by_run: Mapping[str, Decimal | None]


# Runs that repeated steps are kept apart, for their money is split.
_SPENT = f"""
WITH {RUN_OUTCOMES}
SELECT l.period, coalesce(l.stage, '{NO_STAGE}') AS stage, l.method, coalesce(o.outcome, '{NO_RUN}') AS outcome,
  o.steps_again, o.steps_done, sum(l.effective) AS effective, sum(l.billed) AS billed,
  CASE WHEN o.steps_again IS NOT NULL THEN l.run_id END AS run_id
FROM cost_ledger l LEFT JOIN run_outcomes o USING (run_id)
WHERE l.model = ? GROUP BY ALL ORDER BY ALL
"""

_RUNS = f"""
WITH {RUN_OUTCOMES}
SELECT o.run_id, strftime(r.started_at, '%Y-%m') AS period, o.stage, o.outcome, o.steps_again, o.steps_done
FROM run_outcomes o JOIN run_records r USING (run_id) WHERE o.model = ?
"""

_JOBS = f"""
WITH {run_months()}, mine AS (SELECT run_id, job_id, status, started_at FROM run_records
  WHERE model = ? AND purpose = 'retrain' AND job_id IS NOT NULL),
jobs_of_month AS (SELECT job_id, strftime(min(started_at), '%Y-%m') AS period FROM mine GROUP BY job_id
  HAVING NOT bool_or(status = 'running')),
paid AS (SELECT run_id, sum(effective) AS effective FROM cost_ledger WHERE run_id IS NOT NULL GROUP BY run_id)
SELECT j.period, m.job_id, m.run_id, p.effective, r.months FROM jobs_of_month j JOIN mine m USING (job_id)
LEFT JOIN paid p USING (run_id) LEFT JOIN run_months r USING (run_id) ORDER BY j.period, m.job_id, m.run_id
"""


def estimates_of(warehouse: Warehouse, settings: Settings, model: str, now: datetime) -> Estimates:
    """What the runs of `model` that no bill has reached would cost by the price book, in the month they began."""
    found = unbilled(warehouse, settings, now, model=model)
    if not found:
        return Estimates((), {}, {})
    known = {row["run_id"]: row for row in warehouse.query(_RUNS, [model], tables=RUN_TABLES).to_pylist()}
    parts, unpriced = [], dict[str, int]()
    for estimate in found:
        run = known[estimate.run_id]
        if estimate.amount is None:
            unpriced[run["period"]] = unpriced.get(run["period"], 0) + 1
            continue
        parts.append(
            _Part(
                run["period"], run["stage"], ESTIMATE, run["outcome"], estimate.amount,
                steps_again=run["steps_again"], steps_done=run["steps_done"],
            )
        )  # fmt: skip
    return Estimates(tuple(parts), unpriced, {estimate.run_id: estimate.amount for estimate in found})


def spend_by_month(ask: Ask, model: str, estimates: Estimates) -> dict[str, MonthSpend]:
    """Spend of `model` in every month that a ledger or an estimate gives it any, by month."""
    rows = ask(_SPENT, [model], ["cost_ledger", *RUN_TABLES]).to_pylist()
    parts = [*map(_part, rows), *estimates.parts]
    return {
        period: _month([part for part in parts if part.period == period], estimates.unpriced.get(period, 0))
        for period in sorted({part.period for part in parts} | set(estimates.unpriced))
    }


def retrains_by_month(ask: Ask, model: str, estimates: Estimates) -> dict[str, Retrains]:
    """Retrains of `model` by the month they began in, each with all its attempts, failed and interrupted ones too.

    A job with an attempt that still runs, or whose cost neither a bill nor the price book tells, is left out.
    """
    jobs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in ask(_JOBS, [model], ["cost_ledger", "run_records"]).to_pylist():
        row["paid"] = estimates.by_run.get(row["run_id"]) if row["effective"] is None else row["effective"]
        jobs.setdefault((row["period"], row["job_id"]), []).append(row)
    whole: dict[str, list[list[dict[str, Any]]]] = {}
    for (period, _), runs in jobs.items():
        if all(run["paid"] is not None for run in runs):
            whole.setdefault(period, []).append(runs)
    return {period: _retrains(found) for period, found in whole.items()}


def _retrains(jobs: Sequence[Sequence[Mapping[str, Any]]]) -> Retrains:
    runs = [run for job in jobs for run in job]
    months = frozenset(month for run in runs for month in run["months"] or ())
    estimated = any(run["effective"] is None for run in runs)
    return Retrains(len(jobs), money_sum(run["paid"] for run in runs), months, estimated)


def _part(row: Mapping[str, Any]) -> _Part:
    return _Part(**{name: value for name, value in row.items() if name != "run_id"})


def _month(parts: Sequence[_Part], unpriced: int) -> MonthSpend:
    return MonthSpend(
        total=money_sum(part.effective for part in parts),
        billed=money_sum(part.billed for part in parts if part.billed is not None),
        estimated=money_sum(part.effective for part in parts if part.billed is None),
        unpriced_runs=unpriced,
        by_stage=grouped((part.stage, part.effective) for part in parts),
        by_method=grouped((part.method, part.effective) for part in parts),
        by_run_outcome=grouped(pair for part in parts for pair in _by_outcome(part)),
    )


def _by_outcome(part: _Part) -> Iterator[tuple[str, Decimal]]:
    kept, redone = split_redone(part.effective, part.steps_again, part.steps_done)
    yield part.outcome, kept
    if redone:
        yield REDONE, redone
