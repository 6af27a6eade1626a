"""Question 2: can training happen less often? Retrains that ran against retrains that the evidence asked for.

Decisions are counted by day, so the asked-for rate has an exact Poisson interval (Garwood, 1936). Whether rarer
training costs outcome is what decay is measured for; this answer prices the cadence only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from mlcost_pipeline.levers.question import Answer, Context, Verdict
from mlcost_pipeline.levers.runs import TrainingRun, training_runs
from mlcost_pipeline.levers.spending import as_money, days_known

NAME = "less_often"
QUESTION = "Can training happen less often?"
MONTH_DAYS = 30
CONFIDENCE = 0.95
MIN_DECISION_DAYS = 14


@dataclass(frozen=True)
class Cadence:
    """Retrains per 30 days: as they ran, and as the evidence asked (one-sided 95 % bounds)."""

    ran: float
    ran_days: float
    asked: float
    asked_low: float
    asked_high: float
    decision_days: int


def ask(context: Context) -> Answer:
    """Compare the two rates and price the difference from the ledger."""
    runs = training_runs(context.warehouse, context.model)
    if context.month is not None:
        runs = [run for run in runs if run.started_at.strftime("%Y-%m") == context.month.period]
    decisions = context.warehouse.rows(
        "decisions", where="model = ?", params=[context.model], columns=["as_of", "verdict"]
    )
    days = {row["as_of"] for row in decisions}
    if not runs:
        return Answer(NAME, QUESTION, "not_shown", "No retraining run is on record: there is no cadence to question.")
    if len(days) < MIN_DECISION_DAYS:
        return Answer(
            NAME, QUESTION, "not_shown",
            f"Retrains on record: {_jobs(runs)}; days with a decision: {len(days)}, and {MIN_DECISION_DAYS} are needed "
            "to say how many the evidence asks for.",
            facts={"retrains": _jobs(runs), "decision_days": len(days)},
        )  # fmt: skip
    asked = len({row["as_of"] for row in decisions if row["verdict"] == "retrain"})
    cadence = _cadence(runs, asked, len(days), context)
    return _answer(context, runs, cadence)


def poisson_bounds(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact one-sided bounds of a Poisson mean after `count` events."""
    from scipy.special import gammaincinv

    low = float(gammaincinv(count, 1 - confidence)) if count else 0.0
    return low, float(gammaincinv(count + 1, confidence))


def _cadence(runs: list[TrainingRun], asked: int, days: int, context: Context) -> Cadence:
    if context.month is not None:
        span = days_known(context.month.period, context.config.first_day, context.clock.now())
    else:
        span = (runs[-1].started_at - runs[0].started_at) / timedelta(days=1)
    span = max(1.0, span)
    low, high = poisson_bounds(asked)
    scale = MONTH_DAYS / days
    return Cadence(_jobs(runs) * MONTH_DAYS / span, span, asked * scale, low * scale, high * scale, days)


def _answer(context: Context, runs: list[TrainingRun], cadence: Cadence) -> Answer:
    month = context.month
    low = high = None
    if month is not None and month.per_retrain is not None:
        money = month.per_retrain * _jobs(runs)
        low, high = (as_money(money * _saved(cadence.ran, r)) for r in (cadence.asked_high, cadence.asked_low))
    verdict: Verdict
    if cadence.asked_high < cadence.ran:
        verdict = "pull" if low else "not_shown"
    else:
        verdict = "leave" if cadence.asked >= cadence.ran else "not_shown"
    sentence = (
        f"{cadence.ran:.1f} retrains ran in 30 days (over {cadence.ran_days:.0f} days); the evidence of "
        f"{cadence.decision_days} days asked for {cadence.asked:.1f} (95 % bounds {cadence.asked_low:.1f} and "
        f"{cadence.asked_high:.1f})"
    )
    if low is not None and high is not None and month is not None:
        sentence += f"; the difference cost {low:.2f} to {high:.2f} {month.currency} in {month.period}."
    else:
        sentence += "; no bill in force prices these runs."
    currency = None if month is None else month.currency
    return Answer(NAME, QUESTION, verdict, sentence, low, high, currency, facts=vars(cadence))


def _saved(ran: float, asked: float) -> Decimal:
    return Decimal(repr(max(0.0, 1 - asked / ran)))


def _jobs(runs: list[TrainingRun]) -> int:
    return len({run.job_id for run in runs})
