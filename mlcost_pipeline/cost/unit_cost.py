"""What one outcome of a model cost in a month: total, by stage, by what became of the runs, and per outcome.

Spend is effective cost (commitments amortised, credits in). Runs that no bill has reached are priced by the price
book, kept apart under the method `estimate`, and make every figure provisional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.counted import Counted, counted, month_bounds
from mlcost_pipeline.cost.coverage import Covered, covered
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery
from mlcost_pipeline.cost.ledger import ledger_rows
from mlcost_pipeline.cost.prices import unbilled
from mlcost_pipeline.cost.ratio import Ratio, divided, per_count
from mlcost_pipeline.cost.run_outcomes import by_run_outcome, run_outcomes
from mlcost_pipeline.cost.slots import money_sum, slots_of
from mlcost_pipeline.cost.snapshot import take
from mlcost_pipeline.cost.utilisation import Utilisation, billed_time, utilisation
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

ESTIMATE = "estimate"


@dataclass(frozen=True)
class UnitCost:
    """One model's month. Money is in `currency`; `total` is billed (effective) plus estimated.

    `per_thousand_predictions` and `per_retrain` are None where there was none of them. `provisional` says that a
    bill is open, an outcome not settled, or an amount estimated.
    """

    model: str
    period: str
    currency: str
    total: Decimal
    billed_total: Decimal
    estimated: Decimal
    unpriced_runs: int
    by_stage: Mapping[str, Decimal]
    by_method: Mapping[str, Decimal]
    by_run_outcome: Mapping[str, Decimal]
    outcome: Counted | None
    per_outcome: Ratio
    predictions: int
    per_thousand_predictions: Decimal | None
    retrains: int
    per_retrain: Decimal | None
    utilisation: Mapping[str, Utilisation]
    deliveries: tuple[str, ...]
    provisional: bool
    covered: Covered | None = None

    @property
    def partial(self) -> bool:
        """Whether the outcomes cover only part of the days that the spend covers."""
        return self.covered is not None and not self.covered.whole

    @property
    def sentence(self) -> str:
        """One line for a person."""
        spend = f"{self.model}, {self.period}: {self.total:,.4f} {self.currency}"
        estimated = f" (of it {self.estimated:,.4f} estimated)" if self.estimated else ""
        what = "outcomes not measured" if self.outcome is None else self.outcome.sentence
        tail = ", provisional" if self.provisional else ""
        return f"{spend}{estimated}, {what}: {self.per_outcome.show(self.currency)} each{tail}"


def cost_per_outcome(warehouse: Warehouse, settings: Settings, model: str, period: str) -> UnitCost:
    """Cost per outcome of `model` in `period` ("YYYY-MM"), over all bills in the settings' currency."""
    settings.model(model)
    now = model_clock(warehouse, settings, model).now()
    spent = [row for row in ledger_rows(warehouse, period).to_pylist()
             if row["model"] == model and row["currency"] == settings.currency]  # fmt: skip
    open_runs = unbilled(warehouse, settings, now, model=model, period=period)
    priced = [(estimate, estimate.amount) for estimate in open_runs if estimate.amount is not None]
    parts = [_Part(row["run_id"], row["stage"], row["method"], row["effective"]) for row in spent]
    parts += [_Part(estimate.run_id, estimate.stage, ESTIMATE, amount) for estimate, amount in priced]
    runs = {run["run_id"]: run for run in warehouse.rows("run_records", where="model = ?", params=[model])}
    total = money_sum(part.amount for part in parts)
    outcome = counted(warehouse, settings, model, period)
    predictions = _predictions(warehouse, settings, model, period)
    retrains = {runs[p.run_id]["job_id"] for p in parts if p.run_id in runs and _retrain(runs, p.run_id)}
    retrain_cost = money_sum(part.amount for part in parts if part.run_id in runs and _retrain(runs, part.run_id))
    bills = _bills(warehouse, settings, period)
    days = covered(warehouse, settings.model(model), model, period, now)
    whole = outcome if days is None or days.whole else None
    return UnitCost(
        model=model,
        period=period,
        currency=settings.currency,
        total=total,
        billed_total=money_sum(row["billed"] for row in spent),
        estimated=money_sum(amount for _, amount in priced),
        unpriced_runs=len(open_runs) - len(priced),
        by_stage=_grouped((part.stage or "no stage", part.amount) for part in parts),
        by_method=_grouped((part.method, part.amount) for part in parts),
        by_run_outcome=by_run_outcome(
            [(part.run_id, part.amount) for part in parts], run_outcomes(warehouse, runs.values()), runs
        ),
        outcome=outcome,
        per_outcome=per_count(total, *(whole.bounds if whole else (None, None, None))),
        predictions=predictions,
        per_thousand_predictions=divided(total * 1000, predictions),
        retrains=len(retrains),
        per_retrain=divided(retrain_cost, len(retrains)),
        utilisation=_utilisation(warehouse, settings, runs, bills),
        deliveries=tuple(bill.delivery_id for bill in bills),
        provisional=bool(priced) or any(b.state != "final" for b in bills) or _unsettled(outcome),
        covered=days,
    )


def unit_costs(warehouse: Warehouse, settings: Settings, model: str) -> list[UnitCost]:
    """:func:`cost_per_outcome` for every month in which the model spent, ran or earned anything, in order."""
    periods = {period for _, period in bills_in_force(warehouse)}
    spent = {row["period"] for row in ledger_rows(warehouse).select(["model", "period"]).to_pylist()
             if row["model"] == model}  # fmt: skip
    runs = warehouse.rows("run_records", columns=["run_id", "started_at"], where="model = ?", params=[model])
    earned = warehouse.rows("outcomes", columns=["model", "start"], where="model = ?", params=[model])
    months = {row["started_at"].strftime("%Y-%m") for row in runs} | {row["start"].strftime("%Y-%m") for row in earned}
    return [cost_per_outcome(warehouse, settings, model, period) for period in sorted((periods & spent) | months)]


@dataclass(frozen=True)
class _Part:
    run_id: str | None
    stage: str | None
    method: str
    amount: Decimal


def _unsettled(outcome: Counted | None) -> bool:
    return outcome is not None and outcome.state == "provisional"


def _retrain(runs: Mapping[str, Mapping[str, Any]], run_id: str | None) -> bool:
    return run_id is not None and runs[run_id]["purpose"] == "retrain"


def _grouped(pairs: Any) -> dict[str, Decimal]:
    groups: dict[str, list[Decimal]] = {}
    for name, amount in pairs:
        groups.setdefault(name, []).append(amount)
    return {name: money_sum(amounts) for name, amounts in sorted(groups.items())}


def _bills(warehouse: Warehouse, settings: Settings, period: str) -> list[Any]:
    found = [delivery(warehouse, *pair) for pair in bills_in_force(warehouse, period)]
    return [bill for bill in found if bill is not None and bill.currency == settings.currency]


def _predictions(warehouse: Warehouse, settings: Settings, model: str, period: str) -> int:
    """Payments scored (scoring models) or lookups answered (recommendations) in the period."""
    start, end = month_bounds(period)
    scoring = settings.model(model).task == "scoring"
    table, at, ours = (
        ("predictions", "predicted_at", "model = ?")
        if scoring
        else ("lookups", "looked_up_at", "(model IS NULL OR model = ?)")
    )
    sql = f"SELECT count(*) AS n FROM {table} WHERE {ours} AND {at} >= ? AND {at} < ?"
    params: list[str | datetime] = [model, start, end]
    found = warehouse.query(sql, params, tables=[table])
    return int(found.column("n")[0].as_py())


def _utilisation(
    warehouse: Warehouse, settings: Settings, runs: Mapping[str, Mapping[str, Any]], bills: Sequence[Any]
) -> dict[str, Utilisation]:
    billed: dict[str, int] = {}
    for bill in bills:
        slots = slots_of(warehouse, bill.delivery_id)
        for run_id, units in billed_time(slots, take(warehouse, settings, slots)).items():
            billed[run_id] = billed.get(run_id, 0) + units
    holds: dict[str, list[Mapping[str, Any]]] = {}
    for hold in warehouse.rows("occupancy"):
        holds.setdefault(hold["run_id"], []).append(hold)
    return {
        stage: utilisation([run for run in runs.values() if run["stage"] == stage], billed, holds)
        for stage in ("training", "serving")
    }
