"""The decision: ordered rules over one record, a pure function; the first rule that matches wins.

Every outcome has a reason code, a sentence with its numbers, the distance to every threshold, and what either choice
is expected to cost. docs/deciding.md explains the rules and every constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcost_pipeline.evidence.look import POLICY_VERSION
from mlcost_pipeline.evidence.measures import Held, held_against, money_of
from mlcost_pipeline.evidence.state import PolicyState
from mlcost_pipeline.evidence.values import EvidenceRecord
from mlcost_pipeline.settings import Policy

__all__ = ["POLICY_VERSION", "PolicyState", "Verdict", "decide"]

BREAK_THROUGH = 3
MATURED_DAYS = 7
RETRAIN, HOLD, ASK = "retrain", "hold", "ask"


@dataclass(frozen=True)
class Verdict:
    """``retrain``, ``hold`` or ``ask``, and all that a person needs to agree or object."""

    verdict: str
    reason: str
    sentence: str
    distances: dict[str, dict[str, float | None]]
    money: dict[str, str | None]


@dataclass(frozen=True)
class _Case:
    record: EvidenceRecord
    state: PolicyState
    policy: Policy
    held: Held


Found = tuple[str, str, str] | None
Rule = Callable[[_Case], Found]


def decide(record: EvidenceRecord, state: PolicyState, policy: Policy) -> Verdict:
    """Hold a record against the policy. Nothing is read and nothing is written."""
    case = _Case(record, state, policy, held_against(record, state, policy))
    for rule in RULES:
        found = rule(case)
        if found is not None:
            verdict, reason, sentence = found
            sentence += _still_asked(state, verdict)
            return Verdict(verdict, reason, sentence, case.held.distances(), money_of(case.held, state, policy))
    raise AssertionError("the last rule always matches")


def _still_asked(state: PolicyState, verdict: str) -> str:
    """A request by hand that this decision does not carry out is named in it, so that nobody takes it for lost."""
    if state.act is None or state.act.verb != "retrain" or verdict == RETRAIN:
        return ""
    return f" The retrain that {state.act.who} asked for ({state.act.reason}) goes on waiting."


def _blocked_fault(case: _Case) -> Found:
    faults, differing = case.record.faults.found, case.record.drift.differing_columns
    if faults or differing:
        said = [fault.sentence for fault in faults] + [f"column {text}" for text in differing]
        more = f" (and {len(said) - 2} more)" if len(said) > 2 else ""
        todo = f"; {faults[0].todo}" if faults else "; repair the features or their source"
        return ASK, "blocked_fault", f"The data are faulty, so nothing is trained: {'; '.join(said[:2])}{more}{todo}."
    review = case.state.review
    if review is not None and review.verdict == "data_fault" and case.record.drift.material:
        return (
            ASK,
            "reviewed_data_fault",
            (
                f"{review.reviewer} calls the drift of {', '.join(case.record.drift.material)} a fault of the data "
                f"({review.note}); repair it, nothing is trained on it until {review.until}."
            ),
        )
    return None


def _blocked_incumbent(case: _Case) -> Found:
    if not case.state.blocked:
        return None
    return (
        ASK,
        "exhausted",
        (
            "The last training against this incumbent ended exhausted or cancelled, and another would end "
            "the same way: look at its log, then: mlcost rearm MODEL --reason TEXT."
        ),
    )


def _in_progress(case: _Case) -> Found:
    if case.state.open_job is None:
        return None
    return HOLD, "in_progress", f"Job {case.state.open_job} is under way; nothing else is started until it has ended."


def _by_hand(case: _Case) -> Found:
    act = case.state.act
    if act is None or act.verb != "retrain":
        return None
    passed = [name for rule, name in GUARDS if rule(case) is not None]
    over = f" (passing over: {', '.join(passed)})" if passed else ""
    return RETRAIN, "by_hand", f"{act.who} asks for a retrain: {act.reason}{over}."


def _bootstrap(case: _Case) -> Found:
    if case.record.incumbent is not None:
        return None
    volume, policy = case.record.volume, case.policy
    positives, wanted = volume.usable_positives, policy.min_new_positives
    enough = volume.usable_rows >= policy.min_new_rows and (positives is None or positives >= wanted)
    have = f"{volume.usable_rows} usable rows ({policy.min_new_rows} are needed)"
    have += "" if positives is None else f", {positives} of the rare class ({wanted})"
    if enough:
        return RETRAIN, "bootstrap", f"There is no model yet and enough to learn from: {have}."
    return HOLD, "too_little_data", f"There is no model yet and too little to learn from: {have}."


def _too_little(case: _Case) -> Found:
    held = case.held
    short_rows = held.new_rows < held.rows_needed
    short_positives = held.new_positives is not None and held.new_positives < case.policy.min_new_positives
    if not (short_rows or short_positives):
        return None
    text = f"{held.new_rows} new labelled rows since the training cut, {held.rows_needed} are needed"
    if held.new_positives is not None:
        text += f"; {held.new_positives} of the rare class, {case.policy.min_new_positives} are needed"
    return HOLD, "too_little_data", text + "."


def _cooldown(case: _Case) -> Found:
    held = case.held
    if held.days_since_change is None or held.days_since_change >= held.cooldown_days:
        return None
    if held.decay_low is not None and held.decay_low > BREAK_THROUGH * held.break_threshold:
        return None
    return (
        HOLD,
        "cooldown",
        (
            f"The model changed, or a candidate was turned down, {held.days_since_change} days ago; nothing is "
            f"retrained for {held.cooldown_days} days, unless the bound of decay is above "
            f"{BREAK_THROUGH * held.break_threshold:.4f} ({_decay(case)})."
        ),
    )


def _budget(case: _Case) -> Found:
    if case.state.retrains_recent < case.policy.retrains_per_month:
        return None
    return (
        HOLD,
        "budget",
        (
            f"{case.state.retrains_recent} retrains in 30 days, {case.policy.retrains_per_month} are allowed; "
            f"{_decay(case)}."
        ),
    )


def _decayed(case: _Case) -> Found:
    held, state = case.held, case.state
    if held.decay_low is None or held.decay_low <= 0:
        return None
    if held.gain is None:
        if held.decay_low <= held.decay_threshold:
            return None
        return (
            RETRAIN,
            "decay",
            (
                f"{_decay(case)}: above {held.decay_threshold:.4f}, a twentieth of the verified level "
                "(what an outcome is worth is not known)."
            ),
        )
    if held.gain <= 0:
        return None
    return (
        RETRAIN,
        "decay",
        (
            f"{_decay(case)}: at least {held.decay_cost_per_day:.2f} {state.currency} a day, over "
            f"{case.policy.horizon_days} days {held.gain:.2f} {state.currency} "
            f"more than the {state.retrain_cost:.2f} {state.currency} of a retrain."
        ),
    )


def _reviewed(case: _Case) -> Found:
    review = case.state.review
    if review is not None and review.verdict == "real":
        return (
            RETRAIN,
            "reviewed_drift",
            (
                f"{review.reviewer} judged the drift of {', '.join(review.columns) or 'the data'} to be real "
                f"({review.note})."
            ),
        )
    left = case.held.unreviewed
    drift, decay = case.record.drift, case.record.decay
    if not left or (decay.known and drift.matured_days_since >= MATURED_DAYS):
        return None
    return (
        ASK,
        "needs_review",
        (
            f"{', '.join(left)} drifted (PSI up to {case.held.largest_psi or 0.0:.3f}, material above "
            f"{case.policy.drift_threshold}) since {drift.began}, and {drift.matured_days_since} days of matured "
            "labels cannot yet tell whether it matters: mlcost review MODEL real|expected|data_fault --note TEXT."
        ),
    )


def _max_age(case: _Case) -> Found:
    age, limit = case.state.model_age_days, case.policy.max_age_days
    if age is None or age < limit:
        return None
    return RETRAIN, "max_age", f"The model was trained up to {age} days ago, the limit is {limit}; {_decay(case)}."


def _no_evidence(case: _Case) -> Found:
    held = case.held
    text = f"{_decay(case)}; that bound would have to be above {held.decay_threshold:.4f}"
    expected = [name for name in case.record.drift.material if name not in held.unreviewed]
    if held.unreviewed:
        text += f"; {', '.join(held.unreviewed)} drifted, but matured labels show no loss worth a retrain"
    elif expected:
        text += f"; {', '.join(expected)} drifted, as a reviewer expects"
    elif held.largest_psi is not None:
        text += f"; largest PSI {held.largest_psi:.3f} (material above {held.psi_threshold:.3f})"
    else:
        text += f"; drift {case.record.drift.reason or 'was not measurable'}"
    return HOLD, "no_evidence", f"Nothing argues for a retrain: {text}; age {case.state.model_age_days} days."


def _decay(case: _Case) -> str:
    decay = case.record.decay
    if not decay.known or decay.low is None or decay.estimate is None:
        return f"decay is unknown ({decay.reason})"
    return (
        f"{decay.measure} is {decay.level:.4f} against {decay.anchor:.4f} verified, a decay of {decay.estimate:+.4f}, "
        f"at least {decay.low:+.4f} with {case.policy.decay_confidence:.0%} confidence "
        f"({decay.units} units, {decay.days} days)"
    )


GUARDS: tuple[tuple[Rule, str], ...] = (
    (_too_little, "too_little_data"),
    (_cooldown, "cooldown"),
    (_budget, "budget"),
)
RULES: tuple[Rule, ...] = (
    _blocked_fault,
    _blocked_incumbent,
    _in_progress,
    _by_hand,
    _bootstrap,
    _too_little,
    _cooldown,
    _budget,
    _decayed,
    _reviewed,
    _max_age,
    _no_evidence,
)
