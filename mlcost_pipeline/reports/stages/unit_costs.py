"""Report of what one outcome cost: spend ÷ outcomes of the same model and month, with the outcome's interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from mlcost_pipeline.cost.ratio import NOT_MEASURED, UNBOUNDED, UNKNOWN_BOUNDS
from mlcost_pipeline.cost.reading import readings
from mlcost_pipeline.reports.document import ESTIMATE, PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import stage_report
from mlcost_pipeline.reports.pictures import bars, stacked_bars
from mlcost_pipeline.reports.stages.outcomes import UNITS, unit_words
from mlcost_pipeline.reports.values import Cell, Quantity, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.cost.device_ladder import Ladder
    from mlcost_pipeline.cost.ratio import Ratio
    from mlcost_pipeline.cost.reading import Reading
    from mlcost_pipeline.cost.trend import Trend
    from mlcost_pipeline.cost.unit_cost import UnitCost
    from mlcost_pipeline.settings import Settings

_INFINITE = Decimal("Infinity")


def unit_cost_report(
    model: str, costs: Sequence[UnitCost], settings: Settings, *, period: str | None = None
) -> Document:
    """One month in the sentence and the numbers, every month up to it in the table and the picture.

    The month is `period`, or by default the newest whose outcome was measured.
    """
    if period is not None:
        costs = [cost for cost in costs if cost.period <= period]
    shown = newest_measured(costs) if period is None else next((c for c in costs if c.period == period), None)
    unit = unit_words(settings, model)
    currency = shown.currency if shown else settings.currency
    ratio = shown.per_outcome if shown else None
    training = shown.utilisation.get("training") if shown else None
    thousand = shown.per_thousand_predictions if shown else None
    between = _between(ratio, currency)
    doc = Document(
        title=f"Cost per outcome of {model}",
        summary=_summary(model, costs, shown, settings, period),
        numbers=[
            Number("cost_per_outcome", f"cost per one of {unit}", ratio_value(ratio), currency, bound=between),
            Number("spend", "spend of that month", shown.total if shown else None, currency),
            Number("outcomes", unit, shown.outcome.count if shown and shown.outcome else None),
            Number("cost_per_thousand", "cost per 1 000 predictions or lookups on record", thousand, currency),
            Number("cost_per_retrain", "cost per retrain", shown.per_retrain if shown else None, currency),
            Number("training_utilisation", "training hardware busy", training.share if training else None, "share"),
        ],
        tables=[months_table({model: costs}), readings_table({model: costs}), by_stage_table({model: costs}),
                run_outcomes_table({model: costs}), ladder_table({model: costs})],
        pictures=spend_pictures({model: costs}),
        ids={"deliveries": (", ".join(shown.deliveries) if shown else "") or None},
    )  # fmt: skip
    return stage_report(doc.marked(*marks_of(costs)), settings, model=model)


def _summary(
    model: str, costs: Sequence[UnitCost], shown: UnitCost | None, settings: Settings, period: str | None
) -> str:
    """What one outcome cost, then what the month says beside the one before."""
    if shown is None and period is not None:
        return f"{model}: cost per outcome of {period} unknown, because nothing was spent, run or earned in it."
    said = unit_cost_sentence(model, [shown] if shown is not None else [], settings)
    read = next((each for each in readings(costs) if shown is not None and each.period == shown.period), None)
    return f"{said}." if read is None else f"{said}; {reading_words(read)}."


def reading_words(read: Reading) -> str:
    """The reading without the model and the month that stand before it already."""
    return f"reading: {read.sentence.partition(': ')[2]}"


def readings_table(plans: Mapping[str, Sequence[UnitCost]]) -> Table:
    """What spend and cost per outcome say together, newest month first."""
    rows: list[list[Cell]] = [
        [model, read.period, read.name.replace("_", " "), _change(read.spend), _change(read.each),
         read.sentence.partition(": ")[2]]
        for model, costs in plans.items()
        for read in reversed(readings(costs))
    ]  # fmt: skip
    columns = ["model", "month", "reading", "spend a day", "cost each", "in words"]
    return Table("What each month says beside the one before", columns, rows, empty="no month to read")


def _change(trend: Trend | None) -> Cell:
    if trend is None:
        return "not compared"
    return trend.direction if trend.change is None else f"{trend.direction}, {show_signed(trend.change)}"


def show_signed(share: float) -> str:
    """A change as per cent with its sign."""
    return f"{'+' if share > 0 else ''}{show_number(share, 'share')}"


def ladder_table(plans: Mapping[str, Sequence[UnitCost]]) -> Table:
    """Device time per model and stage, rung by rung; what was not measured is unknown below its lower bound."""
    rows: list[list[Cell]] = [
        [model, cost.period, ladder.stage, _hours(ladder.billed), _hours(ladder.allocated),
         *_measured(ladder), Quantity(ladder.coverage, "share"), ", ".join(ladder.metrics) or "not measured",
         Quantity(ladder.waiting, "s"), "provisional" if ladder.provisional else "final"]
        for model, costs in plans.items()
        for cost in reversed(costs)
        for ladder in cost.ladders
    ]  # fmt: skip
    columns = ["model", "month", "stage", "billed", "allocated", "active", "kept", "measured", "by", "waited for data",
               "state"]  # fmt: skip
    return Table("Device time, from billed to kept", columns, rows, empty="no device time was billed")


def _hours(seconds: float) -> Quantity:
    return Quantity(seconds, "s")


def _measured(ladder: Ladder) -> list[Cell]:
    if ladder.measured <= 0:
        return ["unknown", "unknown"]
    least = "" if ladder.complete else "at least "
    return [f"{least}{_hours(rung)}" if least else _hours(rung) for rung in (ladder.active, ladder.kept)]


def ladder_pictures(plans: Mapping[str, Sequence[UnitCost]]) -> list[Picture]:
    """The rungs of the newest whole month with device time (else of the newest), a picture a model."""
    made = []
    for model, costs in plans.items():
        found = sorted((cost for cost in costs if cost.ladders), key=lambda c: (c.known_days >= c.days > 0, c.period))
        if not found:
            continue
        cost = found[-1]
        entries = [
            (f"{ladder.stage} {rung}", getattr(ladder, rung) / 3600)
            for ladder in cost.ladders
            for rung in ("billed", "allocated", *(("active", "kept") if ladder.measured > 0 else ()))
        ]
        title = f"Device hours of {model}, {cost.period}"
        made.append(bars(title, entries, columns=("rung", "device hours")))
    return made


def newest_measured(costs: Sequence[UnitCost]) -> UnitCost | None:
    """The newest month whose outcomes were counted on all its days, else the newest month."""
    measured = [cost for cost in costs if cost.outcome is not None and not cost.partial]
    return measured[-1] if measured else costs[-1] if costs else None


def marks_of(costs: Sequence[UnitCost]) -> list[str]:
    """ESTIMATE where money was estimated, PROVISIONAL where anything may still change."""
    marks = [ESTIMATE] if any(cost.estimated for cost in costs) else []
    return [*marks, PROVISIONAL] if any(cost.provisional for cost in costs) else marks


def unit_cost_sentence(model: str, costs: Sequence[UnitCost], settings: Settings) -> str:
    """What one outcome cost in the newest measured month, with its interval."""
    shown = newest_measured(costs)
    unit = unit_words(settings, model)
    if shown is None:
        return f"{model}: cost per outcome unknown, because nothing was spent, run or earned in any month"
    spend = show_number(shown.total, shown.currency)
    if shown.outcome is None:
        return f"{model}: {spend} in {shown.period}, cost per outcome ({unit}) unknown, because no outcome was measured"
    if shown.covered is not None and shown.partial:
        days = f"{shown.covered.counted} of {shown.covered.wanted} days"
        return f"{model}: {spend} in {shown.period}, cost per {unit} unknown, because only {days} were scored"
    ratio = shown.per_outcome
    each = show_number(ratio_value(ratio), shown.currency)
    state = ", provisional" if shown.provisional else ""
    count = show_number(shown.outcome.count)
    if ratio.reason == "no_outcome":
        floor = f", so at least {show_number(ratio.low, shown.currency)} each" if ratio.low is not None else ""
        return f"{model}: {spend} in {shown.period} for 0 {unit} so far{floor}{state}"
    between = _between(ratio, shown.currency)
    return (
        f"{model}: {each} each{f' ({between})' if between else ''} in {shown.period}, {spend} for {count} {unit}{state}"
    )


def ratio_value(ratio: Ratio | None) -> Decimal | None:
    """∞ where there was no outcome, unknown where none was measured."""
    if ratio is None or ratio.reason == NOT_MEASURED:
        return None
    return _INFINITE if ratio.value is None else ratio.value


def _ends(ratio: Ratio) -> tuple[Decimal | None, Decimal | None]:
    """The interval; an end that nobody knows is None, one that is not finite is ∞, or −∞ of a net credit."""
    if ratio.reason in (NOT_MEASURED, UNKNOWN_BOUNDS):
        return ratio.low, ratio.high
    below = -_INFINITE if ratio.reason == UNBOUNDED else None
    return below if ratio.low is None else ratio.low, _INFINITE if ratio.high is None else ratio.high


def _between(ratio: Ratio | None, currency: str) -> str | None:
    if ratio is None or ratio.reason == NOT_MEASURED:
        return None
    if ratio.low == ratio.value == ratio.high:
        return None
    low, high = _ends(ratio)
    return f"{show_number(low, currency)} to {show_number(high, currency)}"


def months_table(plans: Mapping[str, Sequence[UnitCost]]) -> Table:
    """A row a model and month, newest month first."""
    rows: list[list[Cell]] = [
        [model, cost.period, Quantity(cost.total, cost.currency),
         cost.outcome.count if cost.outcome else "not measured",
         UNITS.get(cost.outcome.unit, cost.outcome.unit) if cost.outcome else "",
         Quantity(ratio_value(cost.per_outcome), cost.currency),
         *(Quantity(end, cost.currency) for end in _ends(cost.per_outcome)),
         "provisional" if cost.provisional else "final",
         Quantity(cost.estimated, cost.currency), cost.predictions,
         Quantity(cost.per_thousand_predictions, cost.currency), cost.retrains,
         "no retrain" if cost.per_retrain is None else Quantity(cost.per_retrain, cost.currency)]
        for model, costs in plans.items()
        for cost in reversed(costs)
    ]  # fmt: skip
    columns = ["model", "month", "spend", "outcomes", "unit", "cost each", "low", "high", "state", "of it estimated",
               "predictions", "per 1 000 on record", "retrains", "per retrain"]  # fmt: skip
    return Table("Cost per outcome by month", columns, rows, empty="nothing was spent, run or earned in any month")


def by_stage_table(plans: Mapping[str, Sequence[UnitCost]]) -> Table:
    """Where the money of each month went."""
    rows: list[list[Cell]] = [
        [model, cost.period, stage, Quantity(amount, cost.currency),
         Quantity(float(amount / cost.total) if cost.total else None, "share")]
        for model, costs in plans.items()
        for cost in reversed(costs)
        for stage, amount in sorted(cost.by_stage.items(), key=lambda entry: -entry[1])
    ]  # fmt: skip
    return Table(
        "Spend by stage and month",
        ["model", "month", "stage", "spend", "of the month"],
        rows,
        empty="nothing was spent",
    )


def run_outcomes_table(plans: Mapping[str, Sequence[UnitCost]]) -> Table:
    """What became of the money: kept, done twice, failed, interrupted, lost, never shipped."""
    rows: list[list[Cell]] = [
        [model, cost.period, name.replace("_", " "), Quantity(amount, cost.currency)]
        for model, costs in plans.items()
        for cost in reversed(costs)
        for name, amount in sorted(cost.by_run_outcome.items(), key=lambda entry: -entry[1])
    ]
    return Table(
        "What became of the runs paid for", ["model", "month", "runs", "spend"], rows, empty="nothing was spent"
    )


def spend_pictures(plans: Mapping[str, Sequence[UnitCost]]) -> list[Picture]:
    """Spend by month and stage, a picture a model."""
    made = []
    for model, costs in plans.items():
        if not costs:
            continue
        stages = sorted({stage for cost in costs for stage in cost.by_stage})
        stacks = {stage: [cost.by_stage.get(stage, Decimal(0)) for cost in costs] for stage in stages}
        made.append(
            stacked_bars(f"Spend of {model} by stage", [cost.period for cost in costs], stacks, unit=costs[-1].currency)
        )
    return made
