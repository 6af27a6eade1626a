"""What the next retrain of a model will cost: from what the last ones cost, or from the price book until there are any.

A retrain is a whole job: attempts that failed or were interrupted are part of its price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.books import closed_books
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.cost.prices import Price, billed_runs, price_runs
from mlcost_pipeline.cost.run_months import unsettled_runs
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

LAST_JOBS = 5

__all__ = ["LAST_JOBS", "Price", "retrain_price"]


def retrain_price(warehouse: Warehouse, settings: Settings, model: str) -> Price:
    """Money that one more retrain of `model` is expected to cost, and where the figure comes from.

    In order: the mean effective cost of the last attributed jobs, tax, support and discounts included; the price
    book's estimate of the last jobs that no bill has reached; the price of on-demand capacity for the work estimate of
    the newest job; the same for the whole deploy window, an upper bound.
    """
    jobs = _ended_jobs(warehouse, model)
    billed = billed_runs(warehouse, settings.currency)
    attributed = [runs for runs in jobs if all(run["run_id"] in billed for run in runs)][-LAST_JOBS:]
    if attributed:
        costs = [money_sum(billed[run["run_id"]] for run in runs) for runs in attributed]
        named = {str(run["run_id"]) for runs in attributed for run in runs}
        may_change = named & unsettled_runs(warehouse, closed_books(warehouse, settings.currency))
        mark = ", provisional: a bill of them is open or to come" if may_change else ""
        return Price(_mean(costs), f"mean of the last {len(costs)} billed retrains, all attempts included{mark}")
    estimated = _estimated(warehouse, settings, jobs[-LAST_JOBS:], model_clock(warehouse, settings, model).now())
    if estimated:
        count = len(estimated)
        return Price(_mean(estimated), f"estimate: price book × hours of the last {count} retrains, none billed yet")
    return _of_capacity(warehouse, settings, model)


def _ended_jobs(warehouse: Warehouse, model: str) -> list[list[dict[str, Any]]]:
    """Retrain runs by job, jobs by their first start; jobs with a run still open are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in warehouse.rows("run_records", where="model = ? AND purpose = 'retrain'", params=[model]):
        found.setdefault(str(run["job_id"]), []).append(run)
    ended = [runs for runs in found.values() if all(run["status"] != "running" for run in runs)]
    return sorted(ended, key=lambda runs: (min(run["started_at"] for run in runs), runs[0]["job_id"]))


def _estimated(
    warehouse: Warehouse, settings: Settings, jobs: Sequence[Sequence[Mapping[str, Any]]], now: datetime
) -> list[Decimal]:
    """Price book estimates of jobs; a job with a run of unknown price is left out."""
    every = {e.run_id: e for e in price_runs(warehouse, settings, [dict(run) for runs in jobs for run in runs], now)}
    found = []
    for runs in jobs:
        amounts = [every[str(run["run_id"])].amount for run in runs]
        if amounts and all(amount is not None for amount in amounts):
            found.append(money_sum(amount for amount in amounts if amount is not None))
    return found


def _of_capacity(warehouse: Warehouse, settings: Settings, model: str) -> Price:
    pool = min((p for p in settings.capacity.pools if p.market == "on_demand"), key=lambda p: p.price_per_hour)
    jobs = warehouse.rows("jobs", where="model = ? AND work_estimate_seconds IS NOT NULL", params=[model])
    if jobs:
        newest = max(jobs, key=lambda job: (job["deadline"], job["job_id"]))
        hours = Decimal(str(newest["work_estimate_seconds"])) / 3600
        source = f"estimate: work estimate of job {newest['job_id']} × on-demand price of pool {pool.name}"
    else:
        hours = Decimal(str(settings.model(model).deploy_window_hours))
        source = f"upper bound: whole deploy window × on-demand price of pool {pool.name}, for no retrain has run yet"
    return Price((hours * pool.price_per_hour).quantize(UNIT), source)


def _mean(amounts: Sequence[Decimal]) -> Decimal:
    return (money_sum(amounts) / len(amounts)).quantize(UNIT)
