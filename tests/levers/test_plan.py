"""The seven questions over a month that can be added up by hand: right order, right money, nothing made up."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.levers import busy_hardware, cache, cheaper_capacity, less_often, precompute, quantize
from mlcost_pipeline.levers import simpler_model as simpler
from mlcost_pipeline.levers.plan import plan
from mlcost_pipeline.levers.question import Context
from mlcost_pipeline.levers.questions import ORDER, questions
from mlcost_pipeline.levers.spending import days_known, month_of, stage_cost
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.evaluation.toys import DAY, purchases, settings_of, shop_model, trained
from tests.levers.months import JUNE, month


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def context_of(warehouse: Warehouse, settings: Settings) -> Context:
    clock = model_clock(warehouse, settings, "shop")
    return Context(warehouse, settings, clock, "shop", month_of(warehouse, settings, "shop"))


def in_production(warehouse: Warehouse, baseline: dict[str, Any], hit: list[int]) -> tuple[Settings, str]:
    """A production model that hits `hit` of 200 users, and settings whose baseline is told what to hit."""
    settings = settings_of(warehouse.root)
    config = settings.model("shop")
    told = config.baseline.model_copy(update={"params": baseline})
    models = {**settings.models, "shop": config.model_copy(update={"baseline": told})}
    settings = settings.model_copy(update={"models": models})
    purchases(warehouse, settings, 200)
    version = trained(warehouse, "shop", "j1", {**shop_model(200, hit), "slow": True})
    warehouse.state.update("models/shop", lambda now: {**(now or {}), "incumbent": version})
    return settings, version


def decided(warehouse: Warehouse, days: int, retrains: int) -> None:
    for n in range(days):
        verdict = "retrain" if n < retrains else "hold"
        row = {
            "decision_id": f"d{n}", "evidence_id": f"e{n}", "model": "shop", "as_of": DAY - timedelta(days=n),
            "verdict": verdict, "reason": "decay", "sentence": "-", "distances": "{}", "money": "{}",
            "policy_version": "1", "mode": "act",
        }  # fmt: skip
        warehouse.append("decisions", [row])


def looked_up(warehouse: Warehouse, tiers: dict[str, int]) -> None:
    rows = [
        {
            "request_id": f"{tier}-{n}", "looked_up_at": JUNE + timedelta(hours=n), "user_id": f"u{n % 10}",
            "arm": "treated", "tier": tier, "reason": "-", "version": "v1", "items": ["i"], "latency_seconds": 0.001,
        }
        for tier, count in tiers.items()
        for n in range(count)
    ]  # fmt: skip
    warehouse.append("lookups", rows)


def test_a_lever_is_one_module_and_they_come_in_their_order() -> None:
    assert [question.NAME for question in questions()] == list(ORDER)
    assert ORDER[:2] == ("simpler_model", "less_often") and ORDER[-1] == "cheaper_capacity"
    assert all(question.QUESTION.endswith("?") for question in questions())


def test_spending_is_what_the_ledger_says(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    assert month_of(warehouse, settings, "shop") is None
    month(warehouse, settings, tmp_path, jobs=["j1", "j2", "j3"])
    found = month_of(warehouse, settings, "shop")
    assert found is not None and found.period == "2025-06" and found.currency == "USD"
    assert found.by_stage == {"training": Decimal(18), "serving": Decimal(100)} and found.total == 118
    assert stage_cost(found.by_stage, "features") == 0 and found.per_retrain == 6


def test_only_the_known_days_of_a_month_count() -> None:
    assert days_known("2025-06", date(2025, 1, 1), JUNE + timedelta(days=90)) == 30
    assert days_known("2025-06", date(2025, 6, 11), JUNE + timedelta(days=20)) == 10
    assert days_known("2025-12", date(2025, 1, 1), JUNE + timedelta(days=365)) == 31


# ── a simpler model ─────────────────────────────────────────────────────────────────────────────


def test_a_baseline_that_earns_the_same_is_a_lever_to_pull(warehouse: Warehouse, tmp_path: Path) -> None:
    same = list(range(120))
    settings, version = in_production(warehouse, shop_model(200, same), same)
    month(warehouse, settings, tmp_path, jobs=["j1", "j2"], busy=1.9)
    answer = simpler.ask(context_of(warehouse, settings))
    assert answer.verdict == "pull" and answer.effect is not None
    assert (answer.effect.difference, answer.effect.low) == (0.0, 0.0)
    # 1.9 of 2 hours were busy: a baseline that takes no time leaves 5 % of 12; serving adds to the upper figure only
    assert answer.saving_low is not None and Decimal("5") < answer.saving_low <= Decimal("11.4")
    assert answer.saving_high is not None and answer.saving_high >= answer.saving_low
    (row,) = warehouse.rows("lever_trials")
    assert row["trial_id"] == answer.trial_id and row["verdict"] == "pull" and row["cost_before"] == Decimal(112)
    runs = warehouse.rows("run_records", where="purpose = 'trial'")
    assert [(r["stage"], r["status"], r["model_version"]) for r in runs] == [("evaluation", "succeeded", version)]


def test_a_trial_is_found_again_and_not_run_again(warehouse: Warehouse, tmp_path: Path) -> None:
    settings, _ = in_production(warehouse, shop_model(200, [1, 2]), list(range(150)))
    month(warehouse, settings, tmp_path, jobs=["j1"])
    context = context_of(warehouse, settings)
    assert simpler.ask(context) == simpler.ask(context)
    assert len(warehouse.rows("run_records", where="purpose = 'trial'")) == 1


def test_a_reader_starts_no_experiment(warehouse: Warehouse, tmp_path: Path) -> None:
    settings, version = in_production(warehouse, shop_model(200, [1, 2]), list(range(150)))
    month(warehouse, settings, tmp_path, jobs=["j1"])
    first = plan(warehouse, settings, "shop", may_try=False)[0]
    assert first.verdict == "not_shown" and version in first.sentence and not warehouse.rows("lever_trials")
    tried = plan(warehouse, settings, "shop")[0]
    assert tried.verdict == "leave" and plan(warehouse, settings, "shop", may_try=False)[0] == tried


def test_a_baseline_shown_worse_is_left(warehouse: Warehouse, tmp_path: Path) -> None:
    settings, _ = in_production(warehouse, shop_model(200, [1, 2]), list(range(150)))
    month(warehouse, settings, tmp_path, jobs=["j1"])
    answer = simpler.ask(context_of(warehouse, settings))
    assert answer.verdict == "leave" and answer.effect is not None and answer.effect.high < -answer.effect.margin
    assert "production earns more" in answer.sentence and "75.00%" in answer.sentence


def test_too_few_to_tell_is_said(warehouse: Warehouse, tmp_path: Path) -> None:
    settings, _ = in_production(warehouse, shop_model(200, [0, 1, 2, 3]), [4, 5, 6, 7])
    month(warehouse, settings, tmp_path, jobs=["j1"])
    answer = simpler.ask(context_of(warehouse, settings))
    assert answer.verdict == "not_shown" and "too few" in answer.sentence


def test_without_a_bill_no_saving_is_promised(warehouse: Warehouse) -> None:
    same = list(range(120))
    settings, _ = in_production(warehouse, shop_model(200, same), same)
    answer = simpler.ask(context_of(warehouse, settings))
    assert answer.verdict == "not_shown" and answer.saving_low is None and "no bill" in answer.sentence


def test_without_a_model_there_is_nothing_to_compare(warehouse: Warehouse) -> None:
    assert simpler.ask(context_of(warehouse, settings_of(warehouse.root))).verdict == "not_yet"


# ── the others ──────────────────────────────────────────────────────────────────────────────────


def test_a_calendar_that_runs_more_often_than_the_evidence_asks(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=[f"j{n}" for n in range(28)])
    decided(warehouse, days=30, retrains=4)
    answer = less_often.ask(context_of(warehouse, settings))
    assert answer.verdict == "pull" and answer.saving_low is not None and answer.saving_high is not None
    # 28 ran, 4 were asked for (exact 95 % bounds 1.37 and 9.15): of 168 the difference is 113.1 to 159.8
    assert float(answer.saving_low) == pytest.approx(168 * (1 - 9.1535 / 28), rel=1e-3)
    assert float(answer.saving_high) == pytest.approx(168 * (1 - 1.3663 / 28), rel=1e-3)


def test_a_cadence_that_the_evidence_asks_for_is_left(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=["j1", "j2"])
    decided(warehouse, days=30, retrains=3)
    assert less_often.ask(context_of(warehouse, settings)).verdict == "leave"


def test_few_days_of_decisions_show_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=["j1", "j2"])
    decided(warehouse, days=5, retrains=0)
    answer = less_often.ask(context_of(warehouse, settings))
    assert answer.verdict == "not_shown" and "days with a decision: 5" in answer.sentence and answer.saving_low is None


def test_utilisation_is_busy_by_billed_and_unknown_stays_unknown(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=["j1", "j2"], busy=None, serving_busy=25.0)
    answer = busy_hardware.ask(context_of(warehouse, settings))
    assert answer.verdict == "not_shown" and answer.facts is not None
    assert answer.facts["serving"]["share"] == pytest.approx(0.25)
    assert answer.facts["training"]["share"] is None and answer.facts["training"]["billed_hours"] == 4
    assert "training unknown" in answer.sentence and "at most 75.00 USD" in answer.sentence


def test_busy_hardware_is_left_alone(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=["j1", "j2"], busy=1.8, serving_busy=90.0)
    assert busy_hardware.ask(context_of(warehouse, settings)).verdict == "leave"


def test_lookups_answered_from_lists_are_counted(warehouse: Warehouse) -> None:
    context = context_of(warehouse, settings_of(warehouse.root))
    assert precompute.ask(context).verdict == cache.ask(context).verdict == "not_shown"
    looked_up(warehouse, {"fresh": 60, "popular": 40})
    lists, cached = precompute.ask(context), cache.ask(context)
    assert lists.verdict == "leave" and "60 of 100 lookups (60.0%)" in lists.sentence
    assert cached.facts == {"lookups": 100, "repeats": 90}


def test_what_was_not_measured_is_not_promised(warehouse: Warehouse) -> None:
    settings, version = in_production(warehouse, {}, [1])
    answer = quantize.ask(context_of(warehouse, settings))
    assert answer.verdict == "not_shown" and version in answer.sentence and answer.saving_low is None


@pytest.mark.parametrize(("market", "verdict"), [("on_demand", "not_yet"), ("spot", "leave")])
def test_spot_needs_a_passed_drill_or_is_compared(
    warehouse: Warehouse, tmp_path: Path, market: str, verdict: str
) -> None:
    settings = settings_of(warehouse.root)
    month(warehouse, settings, tmp_path, jobs=["j1"], market=market)
    answer = cheaper_capacity.ask(context_of(warehouse, settings))
    assert answer.verdict == verdict
    assert ("drill" in answer.sentence) == (market == "on_demand")
    if market == "spot":  # 2 hours at 3, against 2 hours at the pool's 1
        assert answer.facts is not None
        assert (Decimal(answer.facts["paid"]), Decimal(answer.facts["on_demand"])) == (6, 2)


# ── the plan ────────────────────────────────────────────────────────────────────────────────────


def test_below_an_open_question_nothing_is_promised(warehouse: Warehouse, tmp_path: Path) -> None:
    same = list(range(120))
    settings, _ = in_production(warehouse, shop_model(200, same), same)
    month(warehouse, settings, tmp_path, jobs=[f"j{n}" for n in range(1, 29)], busy=1.9)
    decided(warehouse, days=30, retrains=4)
    answers = plan(warehouse, settings, "shop")
    assert [answer.lever for answer in answers] == list(ORDER)
    assert answers[0].verdict == "pull" and {answer.verdict for answer in answers[1:]} == {"not_yet"}
    assert all(answer.saving_low is None for answer in answers[1:])
    assert "simpler_model comes first" in answers[1].sentence and "28.0 retrains ran" in answers[1].sentence


def test_a_lever_that_was_pulled_settles_its_question_until_it_is_reverted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    same = list(range(120))
    settings, _ = in_production(warehouse, shop_model(200, same), same)
    month(warehouse, settings, tmp_path, jobs=[f"j{n}" for n in range(1, 29)], busy=1.9)
    decided(warehouse, days=30, retrains=4)
    pulled = {"lever": "simpler_model", "model": "shop", "applied_at": JUNE, "budget": "{}"}
    warehouse.append("lever_ledger", [pulled])
    assert plan(warehouse, settings, "shop")[1].verdict == "pull"
    warehouse.append("lever_ledger", [{**pulled, "reverted_at": JUNE + timedelta(days=3)}])
    assert plan(warehouse, settings, "shop")[1].verdict == "not_yet"


def test_an_empty_warehouse_is_told_the_truth(warehouse: Warehouse) -> None:
    answers = plan(warehouse, settings_of(warehouse.root), "shop")
    assert {answer.verdict for answer in answers} == {"not_yet"}
    assert all(answer.saving_low is None and answer.sentence for answer in answers)
    assert date(2025, 6, 20) == DAY
