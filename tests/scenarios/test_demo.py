"""The whole loop on a small shop: what it says, what it leaves, and that it happened once."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.deliveries import bills_in_force, in_force, scope_of
from mlcost_pipeline.cost.reconciliation import require_reconciled
from mlcost_pipeline.cost.waste import waste
from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.settings_faults import PLATFORM
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


def test_what_bought_nothing_is_what_the_tables_say(shop: Shop) -> None:
    """Counted again row by row: services by their busy time, lists by their lookups, retrains by their jobs."""
    warehouse = shop.warehouse
    found = waste(warehouse, shop.settings, model_clock(warehouse, shop.settings, PLATFORM).now())
    runs = {row["run_id"]: row for row in warehouse.rows("run_records")}
    holds: dict[str, list[dict[str, Any]]] = {}
    for row in warehouse.rows("occupancy"):
        holds.setdefault(row["run_id"], []).append(row)
    idle, by_run = dict[tuple[str, str], Fraction](), dict[str, Fraction]()
    for account, period in bills_in_force(warehouse):
        scope = scope_of(account, period)
        bill = in_force(warehouse, account, period)
        assert bill is not None
        slots = {row["slot_id"]: row for row in warehouse.read_version("billing_slots", scope, bill).to_pylist()}
        for part in warehouse.read_version("cost_ledger", scope).to_pylist():
            run, where = runs.get(part["run_id"]), slots[part["slot_id"]]["resource_id"]
            amount = Fraction(part["effective"])
            by_run[part["run_id"]] = by_run.get(part["run_id"], Fraction(0)) + amount
            if run is not None and run["purpose"] == "online" and where is not None:  # tax has no resource
                [hold] = holds[run["run_id"]]
                time = Fraction((hold["end"] - hold["start"]) // timedelta(microseconds=1) * hold["share_milli"], 1000)
                busy = min(time, Fraction(round(run["busy_seconds"] * 10**6)))
                idle[period, where] = idle.get((period, where), Fraction(0)) + amount * (1 - busy / time)
    held = [each for each in found.replicas if each.unused is not None]
    assert idle and {(each.period, each.resource_id) for each in held} == set(idle)
    assert all(each.unheld == each.spent for each in found.replicas if each not in held), "left on, and held by nobody"
    for each in held:
        assert each.unused is not None and each.unmeasured == 0
        assert 0 <= idle[each.period, each.resource_id] - Fraction(each.unused) < Fraction(1, 10**15)

    lookups, made = warehouse.rows("lookups"), {row["version"]: row for row in warehouse.rows("publications")}
    assert made and {each.version for each in found.lists} == set(made)
    for lists in found.lists:
        own = [row for row in lookups if row["version"] == lists.version]
        readers = {row["user_id"] for row in own if row["tier"] in ("fresh", "filtered")}
        assert lists.read == len(readers) or (lists.read is None and not own)
        spent = by_run.get(made[lists.version]["run_id"])
        if lists.wasted is not None and not lists.estimated:
            assert spent is not None
            exact = spent * (lists.lists - len(readers)) / lists.lists
            assert 0 <= exact - Fraction(lists.wasted) < Fraction(1, 10**17)

    ended = {row["job_id"]: row["state"] for row in warehouse.rows("jobs") if row["state"] != "open"}
    never = {each.job_id for each in found.retrains if each.became == "never_shipped"}
    assert never == {job for job, state in ended.items() if state != "promoted"}


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
