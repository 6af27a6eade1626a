"""The whole demo held against the shop's truth file: what was planted is what the pipeline says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from mlcost_pipeline.home import PROJECT
from tests.scenarios.conftest import Shop

pytestmark = pytest.mark.timeout(1200)

#: Months of the past alone: later ones also hold the runs that the demo itself made.
PAST = ("2025-03", "2025-04")
#: Apportionment floors each part of a slot to 1e-18, and the truth is written with 15 decimals.
ROUNDING = Decimal("1e-12")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, dict[str, Any]]:
    home = tmp_path_factory.mktemp("whole") / "home"
    done = subprocess.run(
        [sys.executable, "-m", "mlcost_pipeline.cli", "demo", "--home", str(home)],
        capture_output=True, text=True, cwd=PROJECT, timeout=1150,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Shop(home, done.stdout), json.loads((home / "shop" / "truth.json").read_text())


def test_spend_by_model_and_stage_is_what_was_planted(whole: tuple[Shop, dict[str, Any]]) -> None:
    shop, truth = whole
    for period in PAST:
        found: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        reasons: dict[str, Decimal] = defaultdict(Decimal)
        derived: dict[str, Decimal] = defaultdict(Decimal)
        for part in shop.warehouse.read_version("cost_ledger", f"shop-ml|{period}").to_pylist():
            if part["method"] == "derived":
                derived[part["reason"]] += part["effective"]
            elif part["model"] is not None:
                found[part["model"], part["stage"]] += part["effective"]
            else:
                reasons[part["reason"] or part["method"]] += part["effective"]
        planted = {
            (model, stage): Decimal(amount)
            for model, stages in truth["bill"][period]["spend"].items()
            for stage, amount in stages.items()
        }
        assert set(found) == set(planted)
        assert all(abs(found[key] - planted[key]) < ROUNDING for key in planted), (found, planted)
        why = {reason: Decimal(amount) for reason, amount in truth["bill"][period]["unattributed_by_reason"].items()}
        assert all(abs(reasons[reason] - amount) < ROUNDING for reason, amount in why.items()), (reasons, why)
        assert derived == {
            name: Decimal(text) for name, text in truth["bill"][period]["derived"].items() if Decimal(text)
        }
        idle = sum(Decimal(amount) for amount in truth["bill"][period]["idle"].values())
        assert abs(reasons["idle"] - idle) < ROUNDING


def test_a_month_that_was_restated_says_what_changed(whole: tuple[Shop, dict[str, Any]]) -> None:
    shop, _ = whole
    restated = [row for row in shop.warehouse.rows("restatements") if row["period"] == "2025-04"]
    took_over = [row for row in restated if row["cause"] in ("cost", "credits", "tags")]
    books = [json.loads((shop.home / "shop" / "books" / f"2025-04.delivery-{n}.json").read_text()) for n in (1, 2)]
    first, second = (Decimal(book["total"]) for book in books)
    assert first > second
    assert sum(row["billed_delta"] for row in took_over) == second - first


def test_added_clicks_lie_within_their_interval_every_month(whole: tuple[Shop, dict[str, Any]]) -> None:
    shop, truth = whole
    rows = shop.warehouse.rows("outcomes", where="model = 'recommendations' AND slice = 'all'")
    found = {f"{row['start']:%Y-%m}": row for row in rows}
    for period in ("2025-03", "2025-04", "2025-05"):
        expected = truth["added_clicks"][period]["expected_added"]
        assert found[period]["low"] < expected < found[period]["high"]
        assert found[period]["low"] > 0, "the interval is narrow enough to say that clicks were added at all"


def test_the_planted_drift_is_answered_by_decay_and_by_nothing_else(whole: tuple[Shop, dict[str, Any]]) -> None:
    shop, truth = whole
    retrains = [row for row in shop.warehouse.rows("decisions") if row["verdict"] == "retrain"]
    reasons = sorted((row["model"], row["reason"]) for row in retrains)
    assert reasons == [("fraud", "bootstrap"), ("fraud", "decay"), ("recommendations", "bootstrap")]
    (decay,) = [row for row in retrains if row["reason"] == "decay"]
    assert decay["as_of"] > date.fromisoformat(truth["drift"]["date"])


def test_the_transformer_is_found_to_pay_for_one_segment_only(whole: tuple[Shop, dict[str, Any]]) -> None:
    """Planted: only business users follow a sequence. Against matrix factorisation, only they would be harmed."""
    shop, truth = whole
    planted = [segment for segment, share in truth["sequence_share"].items() if share > 0.5]
    (trial,) = shop.warehouse.rows("lever_trials", where="model = 'recommendations' AND lever = 'simpler_model'")
    slices = {entry["value"]: entry["status"] for entry in json.loads(trial["slices"])["slices"]}
    assert [segment for segment, status in slices.items() if status == "harmed"] == planted == ["business"]
    assert trial["verdict"] == "leave"


def test_the_small_category_is_judged_by_name(whole: tuple[Shop, dict[str, Any]]) -> None:
    shop, truth = whole
    small = truth["fraud"]["small_category"]["name"]
    for row in shop.warehouse.rows("model_versions", where="model = 'fraud'"):
        slices = {entry["value"]: entry for entry in json.loads(row["gate"])["slices"]}
        assert small in slices


def test_what_the_bill_cannot_say_is_said(whole: tuple[Shop, dict[str, Any]]) -> None:
    printed = " ".join(whole[0].printed.split())
    assert "SIMULATED" in printed
    assert "unattributed by reason" in printed
    assert "Yes: 5 accounts and months reconciled to the last unit" in printed
