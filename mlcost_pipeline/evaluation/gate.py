"""May the candidate take the incumbent's place? Yes, unless it is shown to do harm.

Harm is shown where even the one-sided 80 % upper bound of the paired difference lies below the quality budget, or
where a declared slice is shown harmed. To ask for proof of harmlessness instead would keep a stale model for ever
on few held-out cases; what was not shown is said in the sentence. Without an incumbent the candidate is held
against what needs no model, without a budget. A gate that compared nothing fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation.evaluate import BASELINES, HeldOut, Measured, hold_out
from mlcost_pipeline.evaluation.intervals import PairedDifference
from mlcost_pipeline.evaluation.slices import SliceResult, compare_slices
from mlcost_pipeline.evaluation.trained import ModelVersion, get_version, incumbent, load_predictor
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.settings import ModelSettings, Settings, digest
from mlcost_pipeline.warehouse import Warehouse

CONFIDENCE = 0.8
GATE_VERSION = "1"


@dataclass(frozen=True)
class GateResult:
    """A verdict on a candidate, with all it rests on; levels and bounds are shares of the compared units.

    `low` and `high` are one-sided bounds of `difference` at 80 % each; `margin` is what may be lost. `reason` is one of
    ``harmless`` (shown to stay within the budget), ``not_shown_harmful``, ``harmful``, ``slice_harmed``,
    ``worse_than_baseline``, ``nothing_compared``.
    """

    passed: bool
    reason: str
    sentence: str
    model: str
    version: str
    incumbent: str | None
    compared_with: str
    data_version: str
    judged_by: str
    metric: str | None = None
    unit: str | None = None
    candidate_level: float | None = None
    reference_level: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    slices: list[dict[str, Any]] = field(default_factory=list)
    harmed: list[str] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as stored with the version."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GateResult:
        """The verdict that was stored."""
        return cls(**values)


def judge(warehouse: Warehouse, settings: Settings, model: str, version: str, features: FeatureSet) -> GateResult:
    """Hold a candidate against the incumbent on the held-out days of `features`.

    A verdict recorded for the same incumbent, data and budgets is given again unchanged, also after the candidate has
    itself come into force, so that a promotion killed half-way can be finished.

    Raises:
        ModelError: an artefact is damaged, or the version is in force without a verdict.
    """
    config = settings.model(model)
    candidate, reference = get_version(warehouse, model, version), incumbent(warehouse, model)
    judged_by = _judged_by(config)
    recorded = _recorded(candidate, reference, features, judged_by)
    if recorded is not None:
        return recorded
    if reference is not None and reference.version == version:
        raise ModelError(f"model {model}: {version} is in force already, there is nothing to hold it against")
    frame: dict[str, Any] = {
        "model": model,
        "version": version,
        "incumbent": None if reference is None else reference.version,
        "compared_with": BASELINES[config.task] if reference is None else reference.version,
        "data_version": features.data_version,
        "judged_by": judged_by,
    }
    try:
        cuts = [v.training_cut for v in (candidate, reference) if v is not None]
        held_out = hold_out(warehouse, config, features, not_before=cuts)
        mine = held_out.measure(load_predictor(warehouse, model, version))
        baseline = held_out.measure(held_out.baseline())
        if reference is None:
            return _against_baseline(frame, held_out, mine, baseline, config)
        theirs = held_out.measure(load_predictor(warehouse, model, reference.version))
        return _against_incumbent(frame, held_out, mine, theirs, baseline, config)
    except NothingCompared as nothing:
        return GateResult(False, "nothing_compared", f"Keep: {version} was compared with nothing: {nothing}", **frame)


def _against_incumbent(
    frame: dict[str, Any], held_out: HeldOut, mine: Measured, theirs: Measured, baseline: Measured,
    config: ModelSettings,
) -> GateResult:  # fmt: skip
    comparison = held_out.compare(mine, theirs)
    overall = comparison.difference()
    slices = compare_slices(comparison, config.budget.slice, config.important_slices)
    margin = config.budget.overall * overall.reference
    harmed = [f"{s.dimension}={s.value}" for s in slices if s.status == "harmed"]
    if overall.high(CONFIDENCE) < -margin:
        reason = "harmful"
    elif harmed:
        reason = "slice_harmed"
    else:
        reason = "harmless" if overall.low(CONFIDENCE) >= -margin else "not_shown_harmful"
    return _result(frame, held_out, overall, margin, reason, slices, mine, theirs, baseline)


def _against_baseline(
    frame: dict[str, Any], held_out: HeldOut, mine: Measured, baseline: Measured, config: ModelSettings
) -> GateResult:
    comparison = held_out.compare(mine, baseline)
    overall = comparison.difference()
    slices = compare_slices(comparison, config.budget.slice, config.important_slices)
    if overall.high(CONFIDENCE) < 0:
        reason = "worse_than_baseline"
    else:
        reason = "harmless" if overall.low(CONFIDENCE) >= 0 else "not_shown_harmful"
    return _result(frame, held_out, overall, 0.0, reason, slices, mine, None, baseline)


def _result(
    frame: dict[str, Any], held_out: HeldOut, overall: PairedDifference, margin: float, reason: str,
    slices: list[SliceResult], mine: Measured, theirs: Measured | None, baseline: Measured,
) -> GateResult:  # fmt: skip
    passed = reason in ("harmless", "not_shown_harmful")
    harmed = [f"{s.dimension}={s.value}" for s in slices if s.status == "harmed"]
    not_shown = [f"{s.dimension}={s.value}" for s in slices if s.status == "not_shown"]
    important = [f"{s.dimension}={s.value}" for s in slices if s.status == "not_shown" and s.important]
    metrics = {f"candidate_{name}": value for name, value in mine.metrics.items()}
    metrics |= {} if theirs is None else {f"incumbent_{name}": value for name, value in theirs.metrics.items()}
    metrics |= {f"baseline_{name}": value for name, value in baseline.metrics.items()}
    metrics |= {name: float(count) for name, count in held_out.counts.items()}
    low, high = overall.low(CONFIDENCE), overall.high(CONFIDENCE)
    return GateResult(
        passed=passed,
        reason=reason,
        sentence=_sentence(frame, held_out, overall, low, high, margin, reason, harmed, important),
        metric=held_out.metric,
        unit=held_out.unit,
        candidate_level=overall.candidate,
        reference_level=overall.reference,
        difference=overall.difference,
        low=low,
        high=high,
        margin=margin,
        metrics=metrics,
        slices=[s.as_dict() for s in slices],
        harmed=harmed,
        not_shown=not_shown,
        **frame,
    )


def _sentence(
    frame: dict[str, Any], held_out: HeldOut, overall: PairedDifference, low: float, high: float, margin: float,
    reason: str, harmed: list[str], important: list[str],
) -> str:  # fmt: skip
    verdict = "Promote" if reason in ("harmless", "not_shown_harmful") else "Keep"
    budget = f"the budget of {100 * margin:.2f} points"
    first = frame["incumbent"] is None  # held against what needs no model, without a budget
    said = {
        "harmless": "shown to be no worse" if first else f"shown to lose no more than {budget}",
        "not_shown_harmful": f"not shown to {'be worse' if first else f'lose more than {budget}'}, nor shown not to",
        "slice_harmed": f"not shown to lose more than {budget} overall",
        "worse_than_baseline": "shown to be worse",
        "harmful": f"shown to lose more than {budget}",
    }[reason]
    text = (
        f"{verdict}: {frame['version']} has {held_out.metric} {overall.candidate:.2%} on {overall.units} "
        f"{held_out.unit}, {frame['compared_with']} {overall.reference:.2%}; the difference of "
        f"{100 * overall.difference:+.2f} points (80 % bounds {100 * low:+.2f} and {100 * high:+.2f}): {said}"
    )
    if harmed:
        text += f"; slices shown harmed: {', '.join(harmed)}"
    if important:
        text += f"; important slices too small to tell: {', '.join(important)}"
    return text + "."


def _judged_by(config: ModelSettings) -> str:
    """Everything but data and models that a verdict depends on."""
    return digest(
        GATE_VERSION, config.budget.model_dump(), config.slices, config.important_slices, config.alerts_per_day,
        config.outcome.hits_at, config.serving.recommend_seen, config.serving.popular_days,
    )  # fmt: skip


def _recorded(
    candidate: ModelVersion, reference: ModelVersion | None, features: FeatureSet, judged_by: str
) -> GateResult | None:
    """The verdict on record, if it still answers the question: same incumbent, data and rules, or in force by it."""
    if candidate.gate is None:
        return None
    gate = GateResult.from_dict(candidate.gate)
    now = None if reference is None else reference.version
    same = gate.data_version == features.data_version and gate.judged_by == judged_by
    return gate if now == candidate.version or (same and gate.incumbent == now) else None
