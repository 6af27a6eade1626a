"""Question 7, last because it multiplies whatever is left: spot runs beside what on-demand would have cost."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.levers.question import Answer, Context
from mlcost_pipeline.levers.runs import TrainingRun, cost_of, training_runs

NAME = "cheaper_capacity"
QUESTION = "Can the capacity that is left be cheaper?"


def ask(context: Context) -> Answer:
    """Compare ended training runs with the on-demand price; before any spot run, ask for a passed drill."""
    runs = training_runs(context.warehouse, context.model)
    spot = [run for run in runs if run.market == "spot"]
    if not runs:
        return Answer(NAME, QUESTION, "not_shown", "No training run is on record, so no price has been paid yet.")
    if spot:
        return _spot_so_far(context, runs, spot)
    drills = context.warehouse.rows("drills", where="model = ?", params=[context.model])
    passed = [drill for drill in sorted(drills, key=lambda drill: drill["run_at"])[-1:] if drill["passed"]]
    if not passed:
        return Answer(
            NAME, QUESTION, "not_yet",
            f"All {len(runs)} training runs were on demand; resuming from a checkpoint has to pass a drill before spot "
            "is worth asking about, and none is on record as passed.",
        )  # fmt: skip
    return Answer(
        NAME, QUESTION, "not_shown",
        f"All {len(runs)} training runs were on demand and the last drill passed; no spot run has been made to compare "
        "with.",
    )  # fmt: skip


def _spot_so_far(context: Context, runs: list[TrainingRun], spot: list[TrainingRun]) -> Answer:
    price = min(pool.price_per_hour for pool in context.settings.capacity.pools if pool.market == "on_demand")
    jobs = {run.job_id for run in spot}
    attempts = [run for run in runs if run.job_id in jobs]
    paid = cost_of(attempts)
    if paid is None:
        return Answer(
            NAME, QUESTION, "not_shown", f"{len(spot)} runs were on spot, but not all of their prices are on record."
        )
    # On demand nothing is interrupted, so work done again is not charged to it.
    hours = sum(run.hours * (1 - run.redone_share) for run in attempts)
    on_demand = price * Decimal(repr(hours))
    sentence = (
        f"Training is on spot already: {len(attempts)} attempts of {len(jobs)} jobs cost {paid:.4f} against "
        f"{on_demand:.4f} {context.settings.currency} on demand at {price} an hour, work done again included"
    )
    share = float(paid / on_demand) if on_demand else None
    sentence += "." if share is None else f" ({share:.0%})."
    facts = {"paid": str(paid), "on_demand": str(on_demand), "attempts": len(attempts), "jobs": len(jobs)}
    return Answer(NAME, QUESTION, "leave", sentence, currency=context.settings.currency, facts=facts)
