"""The whole loop on a small shop: what it says, what it leaves, and that it happened once."""

from __future__ import annotations

import json
from decimal import Decimal

from mlcost_pipeline.cost.deliveries import bills_in_force, scope_of
from mlcost_pipeline.cost.reconciliation import require_reconciled
from mlcost_pipeline.evaluation.versions import incumbent
from tests.scenarios.conftest import Shop, mlcost


def test_the_summary_answers_every_question_and_names_the_report(shop: Shop) -> None:
    for question in (
        "What was decided for each model, and why",
        "What was trained, on which capacity, for how much",
        "Who has fresh recommendations",
        "Spend by model and stage",
        "Cost per outcome",
        "Does the bill add up",
    ):
        assert question in shop.printed
    assert "SIMULATED" in shop.printed
    report = shop.home / "shop" / "warehouse" / "reports" / "report.html"
    page = report.read_text()
    assert "SIMULATED" in page
    assert "https://" not in page.replace("https://www.w3.org", "")


def test_every_bill_is_reconciled_to_the_last_unit(shop: Shop) -> None:
    periods = bills_in_force(shop.warehouse)
    assert periods
    for account, period in periods:
        require_reconciled(shop.warehouse, account, period)


def test_the_ledger_agrees_with_the_billers_own_books(shop: Shop) -> None:
    """The biller sees occupancy alone and keeps its own sums; the ledger must come to the same total."""
    checked = 0
    for account, period in bills_in_force(shop.warehouse):
        books = sorted((shop.home / "shop" / "books").glob(f"{period}.delivery-*.json"))
        total = Decimal(json.loads(books[-1].read_text())["total"])
        ledger = shop.warehouse.read_version("cost_ledger", scope_of(account, period)).to_pylist()
        assert sum(part["billed"] for part in ledger) == total
        checked += 1
    assert checked


def test_a_decision_to_retrain_made_exactly_one_job(shop: Shop) -> None:
    decisions = shop.warehouse.rows("decisions")
    wanted = {row["decision_id"] for row in decisions if row["verdict"] == "retrain"}
    jobs = {row["job_id"] for row in shop.warehouse.rows("jobs")}
    assert wanted == jobs
    assert {row["verdict"] for row in decisions} > {"retrain"}, "and some decisions were not to retrain"
    assert all(row["reason"] and row["sentence"] for row in decisions)


def test_both_models_are_in_production_and_every_run_has_ended(shop: Shop) -> None:
    for model in ("recommendations", "fraud"):
        version = incumbent(shop.warehouse, model)
        assert version is not None and version.gate_passed
    open_runs = [row for row in shop.warehouse.rows("run_records") if row["status"] == "running"]
    assert open_runs == []


def test_running_it_again_adds_nothing(shop: Shop) -> None:
    before = {
        table: len(shop.warehouse.rows(table)) for table in ("jobs", "model_versions", "decisions", "run_records")
    }
    again = mlcost("demo", "--small", "--home", str(shop.home))
    after = {table: len(shop.warehouse.rows(table)) for table in before}
    assert after == before
    assert "Does the bill add up" in again.stdout


def test_a_lookup_names_tier_reason_version_and_age(shop: Shop) -> None:
    answer = json.loads(mlcost("recommend", "u0007", home=shop.home).stdout)
    assert answer["items"]
    assert answer["tier"] in {"fresh", "filtered", "popular"}
    assert {"reason", "version", "data_cut", "age_seconds"} <= set(answer)
    stranger = json.loads(mlcost("recommend", "nobody-knows-me", home=shop.home).stdout)
    assert stranger["tier"] == "popular"
    assert stranger["items"]


def test_why_tells_the_decision_its_numbers_and_the_money(shop: Shop) -> None:
    told = mlcost("why", "fraud", home=shop.home).stdout
    assert "fraud, 2025-" in told
    assert "Distances" in told
    assert "Money" in told


def test_a_mistyped_model_is_answered_in_one_line(shop: Shop) -> None:
    failed = mlcost("why", "frau", home=shop.home, check=False)
    assert failed.returncode == 1
    assert failed.stderr.strip() == "Error: no model 'frau' in mlcost.yaml; there are: fraud, recommendations"
