"""The ordered rules, each both ways, and what must hold of all of them together."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mlcost_pipeline.evidence.policy import decide
from mlcost_pipeline.evidence.state import Act, PolicyState, Review
from mlcost_pipeline.evidence.values import (
    Decay,
    Drift,
    EvidenceRecord,
    Fault,
    Faults,
    FeatureDrift,
    Volume,
    WindowDrift,
)
from mlcost_pipeline.settings import Policy

PRICED = Policy(value_per_outcome=Decimal(50))
UNPRICED = Policy()
CALM = PolicyState(days_since_change=20, model_age_days=25, retrain_cost=Decimal(100), cost_source="test")
FAULT = Faults((Fault("unit_jump", "amount", 210, {"median_ratio": 98.0}, "amount is 98 times too large", "mend it"),))


def decay(low: float, estimate: float | None = None) -> Decay:
    """Two fraud cases a day could be caught, 80 % were verified to be."""
    middle = low + 0.05 if estimate is None else estimate
    return Decay(
        "measured",
        "",
        "recall",
        "predictions",
        anchor=0.8,
        level=0.8 - middle,
        estimate=middle,
        low=low,
        high=middle + 0.1,
        days=7,
        units=14,
        units_per_day=2.0,
    )


def drifted(*features: str, matured: int = 0) -> Drift:
    window = WindowDrift("2025-05-26", "2025-06-02", 900, 0.61, 0.05, True)
    found = tuple(FeatureDrift(name, "number", "measured", 5000, (window,) * 3, True) for name in features)
    return Drift("measured", "", "training rows", found, "2025-05-12" if features else None, matured)


def record(**changes: Any) -> EvidenceRecord:
    calm = EvidenceRecord(
        "e1", "fraud", "fraud-1", "2025-06-01", "d1", "1", "1-x", Faults(rows=900),
        Volume(9000, 8000, 90, 20_000, 20_000, 300), drifted(), decay(-0.02),
    )  # fmt: skip
    return replace(calm, **changes)


def reason(found: EvidenceRecord, state: PolicyState = CALM, policy: Policy = PRICED) -> tuple[str, str]:
    verdict = decide(found, state, policy)
    assert verdict.sentence.endswith(".")
    return verdict.verdict, verdict.reason


def review(verdict: str, *columns: str) -> Review:
    return Review("r1", "e0", verdict, "Ada", "looked at it", "2025-06-15", columns)


def test_nothing_argues_and_every_distance_is_told() -> None:
    verdict = decide(record(), CALM, PRICED)
    assert (verdict.verdict, verdict.reason) == ("hold", "no_evidence")
    assert verdict.distances["decay_low"] == {"value": -0.02, "threshold": 0.071428571, "distance": 0.091428571}
    assert verdict.distances["age_days"]["distance"] == 35
    assert set(verdict.distances) == {"new_rows", "new_positives", "cooldown_days", "retrains_30_days", "decay_low",
                                      "largest_psi", "age_days"}  # fmt: skip


def test_a_fault_comes_before_everything_even_before_a_person() -> None:
    by_hand = replace(CALM, act=Act("a1", "retrain", "Ada", "now"))
    assert reason(record(faults=FAULT, decay=decay(0.5)), by_hand) == ("ask", "blocked_fault")
    assert reason(record(faults=FAULT, incumbent=None)) == ("ask", "blocked_fault")
    gone = replace(drifted(), differing_columns=("f_speed: is missing",))
    assert "f_speed" in decide(record(drift=gone), CALM, PRICED).sentence


def test_a_blocked_incumbent_asks_until_it_is_rearmed() -> None:
    assert reason(record(decay=decay(0.5)), replace(CALM, blocked=True)) == ("ask", "exhausted")


def test_one_job_at_a_time() -> None:
    assert reason(record(decay=decay(0.5)), replace(CALM, open_job="j1")) == ("hold", "in_progress")


def test_without_a_model_enough_rows_start_one_and_too_few_do_not() -> None:
    first = record(incumbent=None, decay=Decay("unknown", "no incumbent"))
    state = PolicyState()
    assert reason(first, state) == ("retrain", "bootstrap")
    assert reason(replace(first, volume=Volume(0, 0, 0, 0, 999, 300)), state) == ("hold", "too_little_data")
    assert reason(replace(first, volume=Volume(0, 0, 0, 0, 5000, 39)), state) == ("hold", "too_little_data")
    assert reason(replace(first, volume=Volume(0, 0, None, 0, 5000, None)), state) == ("retrain", "bootstrap")


@pytest.mark.parametrize(
    ("volume", "held"),
    [
        (Volume(9000, 1999, 90, 20_000, 0, 0), True),  # a tenth of 20,000 is needed
        (Volume(9000, 2000, 90, 20_000, 0, 0), False),
        (Volume(9000, 999, 90, 5_000, 0, 0), True),  # never fewer than 1,000
        (Volume(9000, 8000, 39, 20_000, 0, 0), True),  # of the rare class
        (Volume(9000, 8000, None, 20_000, 0, None), False),
    ],
)
def test_too_little_new_data(volume: Volume, held: bool) -> None:
    expected = ("hold", "too_little_data") if held else ("retrain", "decay")
    assert reason(record(volume=volume, decay=decay(0.5))) == expected


def test_cooldown_holds_and_is_broken_by_three_times_the_threshold() -> None:
    fresh = replace(CALM, days_since_change=2)
    threshold = 100 / (2 * 50 * 14)
    assert reason(record(decay=decay(2.9 * threshold)), fresh) == ("hold", "cooldown")
    assert reason(record(decay=decay(3.1 * threshold)), fresh) == ("retrain", "decay")
    assert reason(record(decay=decay(2.9 * threshold)), replace(fresh, days_since_change=3)) == ("retrain", "decay")


def test_a_turned_down_candidate_doubles_the_cooldown() -> None:
    state = replace(CALM, days_since_change=5, cooldown_factor=2)
    assert reason(record(decay=decay(0.1)), state) == ("hold", "cooldown")


def test_a_free_retrain_is_not_free_of_the_cooldown() -> None:
    """With a price near nothing every decay pays; the cool-down still wants three twentieths of the level."""
    cheap = replace(CALM, days_since_change=1, retrain_cost=Decimal("0.001"))
    assert reason(record(decay=decay(0.11)), cheap) == ("hold", "cooldown")
    assert reason(record(decay=decay(0.13)), cheap) == ("retrain", "decay")


def test_the_budget_of_thirty_days() -> None:
    assert reason(record(decay=decay(0.5)), replace(CALM, retrains_recent=8)) == ("hold", "budget")
    assert reason(record(decay=decay(0.5)), replace(CALM, retrains_recent=7)) == ("retrain", "decay")


def test_by_hand_passes_over_the_guards_and_says_so() -> None:
    asked = replace(CALM, act=Act("a1", "retrain", "Ada", "new catalogue"), days_since_change=0, retrains_recent=9)
    verdict = decide(record(), asked, PRICED)
    assert (verdict.verdict, verdict.reason) == ("retrain", "by_hand")
    assert "cooldown, budget" in verdict.sentence and "new catalogue" in verdict.sentence
    assert reason(record(), replace(asked, open_job="j1")) == ("hold", "in_progress")
    assert reason(record(), replace(CALM, act=Act("a1", "rearm", "Ada", "fixed"))) == ("hold", "no_evidence")


def test_decay_must_pay_for_itself_and_the_money_is_told_both_ways() -> None:
    verdict = decide(record(decay=decay(0.08)), CALM, PRICED)
    assert (verdict.verdict, verdict.reason) == ("retrain", "decay")
    assert verdict.money["decay_cost_per_day"] == "8.000000"  # 0.08 · 2 cases a day · 50
    assert verdict.money["expected_if_hold"] == "112.000000"  # over 14 days
    assert verdict.money["expected_if_retrain"] == verdict.money["retrain_cost"] == "100.000000"
    assert reason(record(decay=decay(0.07))) == ("hold", "no_evidence")


def test_where_an_outcome_has_no_price_a_twentieth_of_the_level_must_be_lost() -> None:
    assert reason(record(decay=decay(0.041)), policy=UNPRICED) == ("retrain", "decay")
    held = decide(record(decay=decay(0.039)), CALM, UNPRICED)
    assert (held.verdict, held.reason) == ("hold", "no_evidence")
    unknown = ("decay_cost_per_day", "expected_if_hold", "expected_if_retrain")
    assert [held.money[name] for name in unknown] == [None] * 3


def test_unknown_decay_is_never_zero_decay() -> None:
    unknown = Decay("unknown", "3 matured days, 7 are needed")
    verdict = decide(record(decay=unknown), CALM, PRICED)
    assert "decay is unknown (3 matured days, 7 are needed)" in verdict.sentence
    assert verdict.distances["decay_low"]["value"] is None
    assert verdict.money["decay_cost_per_day"] is None


def test_drift_asks_only_while_labels_cannot_tell() -> None:
    unknown = Decay("unknown", "no labels yet")
    assert reason(record(drift=drifted("amount"), decay=unknown)) == ("ask", "needs_review")
    assert reason(record(drift=drifted("amount", matured=3))) == ("ask", "needs_review")
    assert reason(record(drift=drifted("amount", matured=7))) == ("hold", "no_evidence")


def test_a_reviewer_decides_what_drift_means() -> None:
    open_question = record(drift=drifted("amount", "hour"))
    assert reason(open_question, replace(CALM, review=review("real", "amount"))) == ("retrain", "reviewed_drift")
    assert reason(open_question, replace(CALM, review=review("expected", "amount", "hour"))) == ("hold", "no_evidence")
    assert reason(open_question, replace(CALM, review=review("expected", "amount"))) == ("ask", "needs_review")
    assert reason(open_question, replace(CALM, review=review("data_fault", "amount"))) == ("ask", "reviewed_data_fault")
    early = replace(CALM, review=review("real", "amount"), days_since_change=1)
    assert reason(open_question, early) == ("hold", "cooldown")


def test_a_proxy_is_given_no_price() -> None:
    """Hits on held-out days, where clicks added have the price: no money, and a twentieth of the anchor decides."""
    proxy = replace(CALM, decay_is_outcome=False)
    dear = decide(record(decay=decay(0.05)), proxy, Policy(value_per_outcome=Decimal(1_000_000)))
    for name in ("decay_cost_per_day", "expected_if_retrain", "expected_if_hold"):
        assert dear.money[name] is None
    assert dear.distances["decay_low"]["threshold"] == 0.04 == round(0.05 * 0.8, 9)
    assert dear.verdict == "retrain" and reason(record(decay=decay(0.03)), proxy) == ("hold", "no_evidence")
    assert decide(record(decay=decay(0.05)), CALM, PRICED).money["decay_cost_per_day"] is not None


def test_a_request_by_hand_that_has_to_wait_is_named() -> None:
    asked = replace(CALM, act=Act("a1", "retrain", "Ada", "new terminals"))
    waits = "The retrain that Ada asked for (new terminals) goes on waiting."
    for held_up in (
        decide(record(faults=FAULT), asked, PRICED),
        decide(record(), replace(asked, open_job="j1"), PRICED),
    ):
        assert held_up.verdict != "retrain" and held_up.sentence.endswith(waits)
    assert waits not in decide(record(), asked, PRICED).sentence


def test_age_is_the_last_resort() -> None:
    assert reason(record(), replace(CALM, model_age_days=60)) == ("retrain", "max_age")
    assert reason(record(), replace(CALM, model_age_days=59)) == ("hold", "no_evidence")
    assert reason(record(), replace(CALM, model_age_days=90, open_job="j1")) == ("hold", "in_progress")


LOWS = st.floats(-0.2, 0.8).map(lambda low: round(low, 6))
PRICES = st.integers(1, 100_000).map(Decimal)
STATES = st.builds(
    PolicyState,
    open_job=st.sampled_from([None, None, None, "j1"]),
    days_since_change=st.integers(0, 6),
    cooldown_factor=st.sampled_from([1, 2, 4]),
    retrains_recent=st.integers(6, 9),
    model_age_days=st.integers(50, 70),
    retrain_cost=PRICES,
)
VALUES = st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(50)])
DRIFTS = st.sampled_from([drifted(), drifted("amount"), drifted("amount", matured=9)])


@hypothesis_settings(max_examples=200, deadline=None)
@given(low=LOWS, more=st.floats(0, 0.5), state=STATES, value=VALUES, drift=DRIFTS)
def test_more_decay_never_turns_a_retrain_into_a_hold(
    low: float, more: float, state: PolicyState, value: Decimal, drift: Drift
) -> None:
    policy = Policy(value_per_outcome=value)
    if decide(record(decay=decay(low), drift=drift), state, policy).verdict == "retrain":
        assert decide(record(decay=decay(round(low + more, 6)), drift=drift), state, policy).verdict == "retrain"


@hypothesis_settings(max_examples=200, deadline=None)
@given(low=LOWS, dearer=st.integers(0, 100_000), state=STATES, value=VALUES, drift=DRIFTS)
def test_a_dearer_retrain_never_turns_a_hold_into_a_retrain(
    low: float, dearer: int, state: PolicyState, value: Decimal, drift: Drift
) -> None:
    policy, found = Policy(value_per_outcome=value), record(decay=decay(low), drift=drift)
    if decide(found, state, policy).verdict != "retrain":
        more = replace(state, retrain_cost=state.retrain_cost + dearer)
        assert decide(found, more, policy).verdict != "retrain"


@hypothesis_settings(max_examples=50, deadline=None)
@given(low=LOWS, state=STATES, factor=st.sampled_from([Decimal("0.001"), Decimal(7), Decimal(10_000)]))
def test_the_currency_does_not_matter(low: float, state: PolicyState, factor: Decimal) -> None:
    found = record(decay=decay(low))
    there = replace(state, retrain_cost=state.retrain_cost * factor)
    other = decide(found, there, Policy(value_per_outcome=Decimal(50) * factor))
    assert decide(found, state, PRICED).reason == other.reason
