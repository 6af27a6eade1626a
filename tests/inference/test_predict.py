"""Daily scoring: a fixed number of alerts a day, said once."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.inference.predict import PredictResult, score_days
from tests.inference.payments import MODEL, Bank

START, END = date(2025, 5, 29), date(2025, 6, 8)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bank") / "warehouse"
    bank = opened(root)
    bank.fill()
    bank.train()
    return root


def opened(root: Path) -> Bank:
    """A bank that holds out enough days to be scored from START on."""
    bank = Bank(root)
    ours = bank.settings.models[MODEL]
    windows = ours.windows.model_copy(update={"holdout_days": 9})
    bank.settings = bank.settings.model_copy(update={"models": {MODEL: ours.model_copy(update={"windows": windows})}})
    return bank


@pytest.fixture
def bank(filled: Path, tmp_path: Path) -> Bank:
    shutil.copytree(filled, tmp_path / "warehouse")
    return opened(tmp_path / "warehouse")


def score(bank: Bank, start: date = START, end: date = END, **options: Any) -> PredictResult:
    return score_days(bank.warehouse, bank.settings, bank.clock, bank.model, start, end, **options)


def test_the_highest_scores_of_each_day_are_alerted(bank: Bank) -> None:
    made = score(bank)
    assert [day.day for day in made.days] == [START + timedelta(days=n) for n in range(10)]
    rows = bank.warehouse.rows("predictions")
    assert len(rows) == made.transactions == 9 * 40
    for day in made.days:
        said = [r for r in rows if r["predicted_at"].date() == day.day + timedelta(days=1)]
        best = sorted(said, key=lambda r: (-r["score"], r["entity_id"]))
        assert {r["entity_id"] for r in said if r["alerted"]} == {r["entity_id"] for r in best[:5]}
        assert all(r["threshold"] == best[4]["score"] == day.threshold for r in said)
        assert day.alerted == len(best[:5])
    said = {r["entity_id"]: r["alerted"] for r in rows}
    frauds = [
        r["transaction_id"] for r in bank.warehouse.rows("labels", where="is_fraud") if r["transaction_id"] in said
    ]
    assert sum(said[name] for name in frauds) > 0.6 * len(frauds), "the planted frauds are found"


def test_a_day_without_transactions_is_reported_and_no_error(bank: Bank) -> None:
    made = score(bank)
    assert made.empty_days == [bank.empty_day]
    alone = score(bank, bank.empty_day, bank.empty_day + timedelta(days=1))
    assert (alone.transactions, alone.days[0].state, alone.days[0].threshold) == (0, "empty", None)


def test_again_changes_nothing_and_says_the_same(bank: Bank) -> None:
    first = score(bank, run_id="run-1")
    rows = bank.warehouse.rows("predictions")
    again = score(bank, run_id="run-2")
    assert bank.warehouse.rows("predictions") == rows
    assert [(d.day, d.transactions, d.alerted, d.threshold) for d in again.days] == [
        (d.day, d.transactions, d.alerted, d.threshold) for d in first.days
    ]
    assert {day.state for day in again.days} == {"said_before", "empty"}


def test_late_payments_leave_an_alert_to_the_run_that_raised_it(bank: Bank) -> None:
    """An alert that was raised in time must not look late because its day was scored again."""
    tomorrow = START + timedelta(days=1)
    score(bank, START, tomorrow, run_id="in time")
    alerts = {row["entity_id"] for row in bank.warehouse.rows("predictions", where="alerted")}
    quiet = next(row for row in bank.warehouse.rows("transactions") if row["happened_at"].date() == START
                 and row["transaction_id"] not in alerts)  # fmt: skip
    bank.warehouse.append("transactions", [{**quiet, "transaction_id": "late"}])
    assert score(bank, START, tomorrow, run_id="again").days[0].state == "scored"
    rows = {row["entity_id"]: row for row in bank.warehouse.rows("predictions")}
    assert {name for name, row in rows.items() if row["alerted"]} == alerts and "late" in rows
    assert {row["run_id"] for row in rows.values() if row["alerted"]} == {"in time"}
    assert {row["run_id"] for row in rows.values() if not row["alerted"]} == {"again"}


def test_day_by_day_is_the_same_as_all_at_once(bank: Bank, filled: Path, tmp_path: Path) -> None:
    score(bank)
    shutil.copytree(filled, tmp_path / "daily")
    daily = opened(tmp_path / "daily")
    for n in range(10):
        score(daily, START + timedelta(days=n), START + timedelta(days=n + 1))
    assert daily.warehouse.rows("predictions") == bank.warehouse.rows("predictions")


def test_killed_between_two_months_and_run_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    append, calls = bank.warehouse.append, []

    def die_second(table: str, rows: Any) -> Any:
        calls.append(table)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return append(table, rows)

    with monkeypatch.context() as patch:
        patch.setattr(bank.warehouse, "append", die_second)
        with pytest.raises(KeyboardInterrupt):
            score(bank)
    half = bank.warehouse.rows("predictions")
    assert 0 < len(half) < 360
    score(bank)
    rows = bank.warehouse.rows("predictions")
    assert len(rows) == 360 and [row for row in rows if row in half] == half


def test_equal_scores_are_alerted_by_the_smaller_id(bank: Bank) -> None:
    at = datetime(2025, 6, 5, 12, tzinfo=UTC)
    twin = {"happened_at": at, "merchant_category": "shoes", "amount": Decimal(77), "currency": "EUR"}
    bank.warehouse.append(
        "transactions", [{**twin, "transaction_id": name} for name in ("9", "10", "007", "b", "a", "c")]
    )
    score(bank, bank.empty_day, bank.empty_day + timedelta(days=1))
    alerted = bank.warehouse.rows("predictions", where="alerted")
    assert [row["entity_id"] for row in alerted] == ["007", "10", "9", "a", "b"]


def test_what_was_said_is_not_said_again_by_a_newer_version(bank: Bank) -> None:
    old = score(bank, START, date(2025, 6, 3))
    new = bank.train("job-2", seed=9)
    made = score(bank, START, END)
    by = {day.day: day.model_version for day in made.days}
    assert by[date(2025, 6, 2)] == old.model_version and by[date(2025, 6, 3)] == new
    assert len(bank.warehouse.rows("predictions")) == 360


def test_days_before_the_version_came_into_force_are_hindsight(bank: Bank) -> None:
    (row,) = bank.warehouse.rows("model_versions")
    in_force = datetime(END.year, END.month, END.day, 6, tzinfo=UTC)
    bank.warehouse.append("model_versions", [{**row, "promoted_at": in_force}])
    with pytest.raises(ModelError, match="is hindsight, and no prediction"):
        score(bank, END - timedelta(days=2))
    assert score(bank, END - timedelta(days=1)).transactions > 0, "the day before, which it serves first"


def test_days_that_the_version_was_trained_on_are_hindsight(bank: Bank) -> None:
    early = START - timedelta(days=1)
    with pytest.raises(ModelError, match=f"trained on what happened before {START}.*Ask for {START} and later"):
        score(bank, early)
    assert bank.warehouse.rows("predictions") == []
    assert score(bank).transactions == 360


def test_days_that_an_earlier_version_has_spoken_about_can_be_asked_for_again(bank: Bank) -> None:
    old = score(bank)
    new = bank.train("job-2", seed=9)
    rows = bank.warehouse.rows("model_versions", where="version = ?", params=[new])
    bank.warehouse.append("model_versions", [{**rows[0], "promoted_at": datetime(2025, 6, 9, 0, 30, tzinfo=UTC)}])
    again = score(bank)
    assert {day.model_version for day in again.days if day.state == "said_before"} == {old.model_version}


def test_a_day_that_is_not_over_is_refused(bank: Bank) -> None:
    with pytest.raises(ModelError, match="not over"):
        score(bank, date(2025, 6, 8), date(2025, 6, 10))


def test_without_a_version_in_production_nothing_is_said(bank: Bank) -> None:
    bank.warehouse.state.update(f"models/{bank.model}", lambda _: {"incumbent": None})
    with pytest.raises(ModelError, match="in production"):
        score(bank)
