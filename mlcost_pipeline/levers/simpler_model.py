"""Question 1: does a simpler model earn the same? The baseline is trained on the same features and asked the same.

One trial a month for each production model and baseline, on the newest features; asked again, it is found and not
repeated. Its own work is on the bill as a run of purpose ``trial``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.ratio import divided
from mlcost_pipeline.cost.runs import record_run
from mlcost_pipeline.cost.unit_cost import UnitCost
from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation.evaluate import HeldOut, Measured, hold_out
from mlcost_pipeline.evaluation.intervals import PairedDifference
from mlcost_pipeline.evaluation.slices import CONFIDENCE, SliceResult, compare_slices
from mlcost_pipeline.evaluation.versions import ModelVersion, incumbent, load_predictor
from mlcost_pipeline.levers.baseline import Spread, Timed, repeated, train_baseline
from mlcost_pipeline.levers.question import Answer, Context, Effect, Verdict
from mlcost_pipeline.levers.runs import TrainingRun, cost_of, training_runs
from mlcost_pipeline.levers.spending import as_money, stage_cost
from mlcost_pipeline.levers.trials import find_trial, write_trial
from mlcost_pipeline.models.features import FeatureSet, load_features
from mlcost_pipeline.settings import digest

NAME = "simpler_model"
QUESTION = "Does a simpler model give the same outcome?"
TRIAL_VERSION = "1"


@dataclass(frozen=True)
class Costs:
    """Money of both sides; None where it could not be measured. Per month: what the ledger would say."""

    per_training: Decimal | None
    baseline_per_training: Decimal | None
    per_1000: Decimal | None
    baseline_per_1000: Decimal | None
    saving_low: Decimal | None
    saving_high: Decimal | None


def ask(context: Context) -> Answer:
    """Train the baseline, hold it against production on the held-out days, and price both."""
    held = incumbent(context.warehouse, context.model)
    if held is None:
        return _plain("not_yet", "No model is in production yet, so there is nothing to compare the baseline with.")
    if held.family == context.config.baseline.family:
        return _plain("leave", f"Production ({held.version}) already is the simple family {held.family}.")
    baseline = context.config.baseline
    trial_id = digest(
        NAME, TRIAL_VERSION, held.version, baseline.family, baseline.params, baseline.seed,
        context.config.budget.model_dump(), context.config.slices,
        None if context.month is None else context.month.period,
    )  # fmt: skip
    found = find_trial(context.warehouse, NAME, context.model, trial_id)
    if found is not None:
        return _answer(context, found)
    if not context.may_try:
        return _plain("not_shown", f"{baseline.family} has not been held against {held.version} this month.")
    features = newest_features(context, held)
    if features is None:
        return _plain("not_yet", "No features of this model are on record; build them first.")
    try:
        return _answer(context, _trial(context, held, features, trial_id))
    except NothingCompared as nothing:
        return _plain("not_shown", f"The held-out days compare nothing: {nothing}")


def newest_features(context: Context, held: ModelVersion) -> FeatureSet | None:
    """The features evidence was last taken on, else those the production model was trained on."""
    warehouse, model = context.warehouse, context.model
    rows = warehouse.rows("evidence", where="model = ?", params=[model], columns=["as_of", "data_version"])
    versions = [row["data_version"] for row in sorted(rows, key=lambda row: row["as_of"], reverse=True)[:1]]
    job = warehouse.state.get(f"jobs/{held.job_id}/job")
    if job is not None and job.value.get("data_version"):
        versions.append(job.value["data_version"])
    for version in versions:
        try:
            return load_features(warehouse, model, version)
        except ModelError:
            continue  # removed since; the next one may still be there
    return None


def _trial(context: Context, held: ModelVersion, features: FeatureSet, trial_id: str) -> dict[str, Any]:
    worker = context.settings.worker
    held_out = hold_out(context.warehouse, context.config, features, not_before=[held.training_cut])
    with record_run(
        context.warehouse, context.clock, model=context.model, stage="evaluation", purpose="trial", asset="levers",
        resource_id=worker.resource_id, share_milli=worker.share_milli, price=worker.price_per_hour,
        model_version=held.version,
    ):  # fmt: skip
        folder = context.warehouse.folder(context.model, "trials", trial_id)
        simple = train_baseline(context.config.baseline, features, folder)
        production = load_predictor(context.warehouse, context.model, held.version)
        mine, my_seconds = repeated(lambda: held_out.measure(simple.value))
        theirs, their_seconds = repeated(lambda: held_out.measure(production))
    thousands = _units_scored(held_out) / 1000
    costs = _costs(context, held, simple, my_seconds, their_seconds, thousands)
    row = _row(context, trial_id, held_out, mine, theirs, costs)
    row["slices"] |= {
        "features": features.data_version, "production": held.version, "baseline": context.config.baseline.family,
        "cpu_seconds": {"training": simple.seconds, "scoring": vars(my_seconds), "production": vars(their_seconds)},
    }  # fmt: skip
    write_trial(context.warehouse, row)
    return row


def _row(
    context: Context, trial_id: str, held_out: HeldOut, mine: Measured, theirs: Measured, costs: Costs
) -> dict[str, Any]:
    comparison = held_out.compare(mine, theirs)
    paired = comparison.difference()
    budget = context.config.budget
    slices = compare_slices(comparison, budget.slice, context.config.important_slices)
    low, high = paired.low(CONFIDENCE), paired.high(CONFIDENCE)
    verdict, reason = _judge(low, high, budget.overall * paired.reference, slices, costs)
    month = context.month
    total = None if month is None else month.total
    after = None if total is None or costs.saving_low is None else total - costs.saving_low
    each_before = None if month is None else month.per_outcome.value
    each_after = None if after is None else _per_outcome(month, after, paired)
    return {
        "lever": NAME, "model": context.model, "trial_id": trial_id, "cost_before": total, "cost_after": after,
        "cost_per_outcome_before": each_before, "cost_per_outcome_after": each_after,
        "outcome_before": paired.reference, "outcome_after": paired.candidate,
        "difference_low": low, "difference_high": high, "verdict": verdict, "reason": reason,
        "slices": {
            "slices": [each.as_dict() for each in slices], "metric": held_out.metric, "unit": held_out.unit,
            "units": paired.units, "margin": budget.overall * paired.reference,
            "costs": {name: None if value is None else str(value) for name, value in asdict(costs).items()},
        },
    }  # fmt: skip


def _per_outcome(month: UnitCost | None, total: Decimal, paired: PairedDifference) -> Decimal | None:
    """Money per outcome if outcomes change as the metric does; added clicks do not, so they stay unknown."""
    if month is None or month.outcome is None or month.outcome.unit == "added_clicks" or paired.reference == 0:
        return None
    return divided(total, month.outcome.count * paired.candidate / paired.reference)


def _judge(low: float, high: float, margin: float, slices: list[SliceResult], costs: Costs) -> tuple[Verdict, str]:
    harmed = [f"{each.dimension}={each.value}" for each in slices if each.status == "harmed"]
    if high < -margin:
        return "leave", "production earns more than the budget allows to lose"
    if harmed:
        return "leave", f"the baseline is shown to harm {', '.join(harmed)}"
    if low < -margin:
        return "not_shown", "too few held-out cases to tell the two apart within the budget"
    if costs.saving_low is None:
        return "not_shown", "the outcome holds, but no bill or training run says what it would save"
    if costs.saving_high is not None and costs.saving_high <= 0:
        return "leave", "the outcome holds, but nothing would be saved"
    if costs.saving_low <= 0:
        return "not_shown", "the outcome holds, but the saving is within the spread of its measurement"
    return "pull", "the outcome holds within the budget and the baseline costs less"


def _costs(
    context: Context, held: ModelVersion, simple: Timed, mine: Spread, theirs: Spread, thousands: float
) -> Costs:
    """Price both sides: training at the price production's runs had, predictions at the worker's."""
    worker, rate = context.settings.worker, context.clock.rate
    core_hour = worker.price_per_hour * 1000 / worker.capacity_milli
    per_1000, baseline_per_1000 = (core_hour * _hours(s.least * rate / thousands) for s in (theirs, mine))
    runs = [run for run in training_runs(context.warehouse, context.model) if run.job_id == held.job_id]
    per_training = cost_of(runs)
    share = _training_share(runs, simple.seconds * rate / 3600)
    baseline_per_training = None if per_training is None or share is None else per_training * share
    low = high = None
    if context.month is not None and share is not None:
        by_stage = context.month.by_stage
        training = stage_cost(by_stage, "training") * (1 - share)
        worst, best = (Decimal(repr(1 - a / b)) for a, b in ((mine.most, theirs.least), (mine.least, theirs.most)))
        serving, none = stage_cost(by_stage, "serving"), Decimal(0)
        # Serving that is billed by the replica falls by less than its work, or not at all.
        low, high = training + min(none, serving * worst), training + max(none, serving * best)
    amounts = (per_training, baseline_per_training, per_1000, baseline_per_1000, low, high)
    rounded = [None if amount is None else as_money(amount) for amount in amounts]
    return Costs(*rounded)


def _training_share(runs: list[TrainingRun], baseline_hours: float) -> Decimal | None:
    """What a training of the baseline takes of production's billed hours; start-up and loading stay as they are."""
    if not runs or any(run.busy_hours is None for run in runs):
        return None
    billed = sum(run.hours for run in runs)
    busy = sum(run.busy_hours or 0.0 for run in runs)
    if billed <= 0:
        return None
    return Decimal(repr(min((max(billed - busy, 0.0) + baseline_hours) / billed, 1e9)))


def _answer(context: Context, row: dict[str, Any]) -> Answer:
    told = row["slices"]
    costs = {name: None if value is None else Decimal(value) for name, value in told["costs"].items()}
    effect = Effect(
        told["metric"], row["outcome_after"] - row["outcome_before"], row["difference_low"], row["difference_high"],
        told["margin"],
    )  # fmt: skip
    currency = context.settings.currency
    sentence = (
        f"{told['baseline']} has {effect.metric} {row['outcome_after']:.2%}, production {row['outcome_before']:.2%} on "
        f"{told['units']} {told['unit']} (difference {100 * effect.difference:+.2f} points, 95 % bounds "
        f"{100 * effect.low:+.2f} and {100 * effect.high:+.2f}, budget {100 * effect.margin:.2f}); 1,000 predictions "
        f"cost {costs['baseline_per_1000']:.6f} against {costs['per_1000']:.6f} {currency}, a training "
        f"{_money(costs['baseline_per_training'])} against {_money(costs['per_training'])}: {row['reason']}."
    )
    return Answer(
        NAME, QUESTION, row["verdict"], sentence, costs["saving_low"], costs["saving_high"], currency, effect,
        row["trial_id"], told,
    )  # fmt: skip


def _units_scored(held_out: HeldOut) -> int:
    return held_out.counts["users"] if held_out.unit == "users" else held_out.counts["rows"]


def _hours(seconds: float) -> Decimal:
    return Decimal(repr(seconds)) / 3600


def _money(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:.4f}"


def _plain(verdict: Verdict, sentence: str) -> Answer:
    return Answer(NAME, QUESTION, verdict, sentence)
