"""A record held against the policy's constants: thresholds, the distance to each, and the money on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.evidence.state import PolicyState
from mlcost_pipeline.evidence.values import EvidenceRecord
from mlcost_pipeline.settings import Policy

#: Where money cannot argue: the share of the verified level that must surely be lost.
RELATIVE_THRESHOLD = 0.05


@dataclass(frozen=True)
class Held:
    """The numbers that the rules compare; None where a number cannot be had."""

    new_rows: int
    rows_needed: int
    new_positives: int | None
    positives_needed: int
    days_since_change: int | None
    cooldown_days: int
    retrains_recent: int
    retrains_allowed: int
    decay_low: float | None
    decay_threshold: float
    """Decay at which a retrain pays for itself over the horizon; without a price, a twentieth of the anchor."""
    break_threshold: float
    """A third of what breaks through the cool-down; never below a twentieth of the anchor."""
    decay_cost_per_day: Decimal | None
    gain: Decimal | None
    """G = max(0, D_low) · outcomes a day · value · horizon − C"""
    largest_psi: float | None
    psi_threshold: float
    unreviewed: tuple[str, ...]
    """Materially drifted features that no reviewer has called expected."""
    age_days: int | None
    max_age_days: int

    def distances(self) -> dict[str, dict[str, float | None]]:
        """Value, threshold and distance (threshold − value) of each rule that compares a number."""
        pairs: dict[str, tuple[float | None, float | None]] = {
            "new_rows": (self.new_rows, self.rows_needed),
            "new_positives": (self.new_positives, None if self.new_positives is None else self.positives_needed),
            "cooldown_days": (self.days_since_change, self.cooldown_days),
            "retrains_30_days": (self.retrains_recent, self.retrains_allowed),
            "decay_low": (self.decay_low, self.decay_threshold),
            "largest_psi": (self.largest_psi, self.psi_threshold),
            "age_days": (self.age_days, self.max_age_days),
        }
        return {name: _distance(value, threshold) for name, (value, threshold) in pairs.items()}


def _distance(value: float | None, threshold: float | None) -> dict[str, float | None]:
    apart = None if value is None or threshold is None else round(threshold - value, 9)
    return {"value": value, "threshold": threshold, "distance": apart}


def _nearest_drift(record: EvidenceRecord, policy: Policy) -> tuple[float | None, float]:
    """PSI of the feature that is nearest to (or farthest over) its own bound in the newest window, and that bound.

    A feature's bound is the threshold, or what PSI reaches without drift at its sample sizes where that is more.
    """
    newest = [f.windows[0] for f in record.drift.features if f.state == "measured" and f.windows]
    held = [(w.psi, max(policy.drift_threshold, w.null_bound or 0.0)) for w in newest if w.psi is not None]
    if not held:
        return None, policy.drift_threshold
    psi, bound = max(held, key=lambda pair: pair[0] / pair[1])
    return psi, round(bound, 9)


def held_against(record: EvidenceRecord, state: PolicyState, policy: Policy) -> Held:
    """Work out every number that a rule compares."""
    decay, volume = record.decay, record.volume
    low = decay.low if decay.known else None
    relative = round(RELATIVE_THRESHOLD * (decay.anchor or 0.0), 9)
    priced = policy.value_per_outcome > 0 and state.decay_is_outcome and decay.known and bool(decay.units_per_day)
    cost_per_day = gain = None
    threshold = relative
    if priced:
        worth = Decimal(repr(decay.units_per_day)) * policy.value_per_outcome
        cost_per_day = max(Decimal(0), Decimal(repr(low))) * worth
        gain = cost_per_day * policy.horizon_days - state.retrain_cost
        threshold = round(float(state.retrain_cost / (worth * policy.horizon_days)), 9)
    accepted = state.review.columns if state.review is not None and state.review.verdict == "expected" else ()
    largest_psi, psi_bound = _nearest_drift(record, policy)
    return Held(
        new_rows=volume.new_labelled,
        rows_needed=max(policy.min_new_rows, int(policy.min_new_share * volume.training_rows)),
        new_positives=volume.new_positives,
        positives_needed=policy.min_new_positives,
        days_since_change=state.days_since_change,
        cooldown_days=policy.cooldown_days * state.cooldown_factor,
        retrains_recent=state.retrains_recent,
        retrains_allowed=policy.retrains_per_month,
        decay_low=low,
        decay_threshold=threshold,
        break_threshold=max(threshold, relative),
        decay_cost_per_day=cost_per_day,
        gain=gain,
        largest_psi=largest_psi,
        psi_threshold=psi_bound,
        unreviewed=tuple(name for name in record.drift.material if name not in accepted),
        age_days=state.model_age_days,
        max_age_days=policy.max_age_days,
    )


def money_of(held: Held, state: PolicyState, policy: Policy) -> dict[str, str | None]:
    """The line of money: what the decay surely costs a day, what a retrain costs, and either choice over the horizon.

    Null where it is not known what an outcome is worth, or how much has decayed.
    """
    per_day = held.decay_cost_per_day
    return {
        "decay_cost_per_day": _text(per_day),
        "retrain_cost": _text(state.retrain_cost),
        "retrain_cost_source": state.cost_source,
        "expected_if_retrain": None if per_day is None else _text(state.retrain_cost),
        "expected_if_hold": None if per_day is None else _text(per_day * policy.horizon_days),
        "horizon_days": str(policy.horizon_days),
        "currency": state.currency,
    }


def _text(amount: Decimal | None) -> str | None:
    """A plain decimal string, to a millionth."""
    return None if amount is None else f"{amount.quantize(Decimal('0.000001')):f}"
