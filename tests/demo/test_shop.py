"""The shop's history is the same for the same seed, holds what its truth says, and is as untidy as real input."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from mlcost_pipeline.demo.shop import make_shop


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_seed_makes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        make_shop(tmp_path / name, seed=seed, days=4, users=20, items=40, payments_per_day=30)
    first, again, other = (everything(tmp_path / name) for name in "abc")
    assert first == again
    assert first["data/events/2025-03-02.csv"] != other["data/events/2025-03-02.csv"]


def test_ingest_takes_every_event_once(tiny_shop: Any) -> None:
    shop = tiny_shop
    kinds = shop.warehouse.query(
        "SELECT kind, count(*) AS n FROM interactions GROUP BY kind", tables=["interactions"]
    ).to_pylist()
    found = {row["kind"]: row["n"] for row in kinds}
    assert found == {kind: count for kind, count in shop.truth["events"].items() if kind != "anonymous" and count}
    files = (shop.folder / "data" / "events").iterdir()
    written = sum(len(list(csv.DictReader(file.read_text().splitlines()))) for file in files)
    done = shop.ingested["interactions"]
    assert (done.rows_read, done.rows_new) == (written, sum(found.values()))
    assert set(done.rows_dropped) <= {"duplicate"}


def test_duplicates_anonymous_users_and_cancellations_are_planted(spring_shop: Any) -> None:
    shop = spring_shop
    assert shop.ingested["interactions"].rows_dropped["duplicate"] > 0
    assert shop.truth["events"]["cancellation"] > 0
    nameless = shop.warehouse.rows("interactions", where="user_id IS NULL")
    assert len(nameless) >= shop.truth["events"]["anonymous"] > 0


def test_ids_are_text_that_no_integer_holds(tiny_shop: Any) -> None:
    events = tiny_shop.warehouse.rows("interactions")
    assert all(int(row["event_id"]) > 2**63 for row in events)
    assert all(len(row["item_id"]) == 5 and row["item_id"].startswith("0") for row in events)


def test_the_first_day_begins_in_the_morning(tiny_shop: Any) -> None:
    opening = datetime.fromisoformat(tiny_shop.truth["first_event_not_before"])
    assert opening.hour == 7
    times = {"interactions": "happened_at", "transactions": "happened_at", "lookups": "looked_up_at"}
    for table, column in times.items():
        assert min(row[column] for row in tiny_shop.warehouse.rows(table, columns=[column])) >= opening


def test_one_day_has_no_payments_at_all(tiny_shop: Any) -> None:
    empty = date.fromisoformat(tiny_shop.truth["empty_day"]["date"])
    assert (tiny_shop.folder / "data" / "payments" / f"{empty}.csv.gz").exists()
    days = {row["happened_at"].astimezone(UTC).date() for row in tiny_shop.warehouse.rows("transactions")}
    assert empty not in days
    assert {empty - timedelta(days=1), empty + timedelta(days=1)} <= days


def test_labels_come_late_and_never_after_the_end_of_history(spring_shop: Any) -> None:
    rows = spring_shop.warehouse.query(
        "SELECT is_fraud, date_diff('day', happened_at, known_at) AS days, known_at FROM labels "
        "JOIN transactions USING (transaction_id)",
        tables=["labels", "transactions"],
    ).to_pylist()
    assert {row["days"] for row in rows if not row["is_fraud"]} == {7}
    late = [row["days"] for row in rows if row["is_fraud"]]
    assert late and min(late) >= 1 and max(late) <= 30
    assert max(row["known_at"] for row in rows) < datetime(2025, 5, 4, tzinfo=UTC)


def test_withdrawn_items_are_not_viewed_afterwards(spring_shop: Any) -> None:
    late = spring_shop.warehouse.query(
        "SELECT count(*) FILTER (valid_to IS NOT NULL) AS withdrawn, "
        "count(*) FILTER (happened_at >= valid_to) AS viewed_after, "
        "count(*) FILTER (happened_at < valid_from) AS before "
        "FROM interactions JOIN items USING (item_id)",
        tables=["interactions", "items"],
    ).to_pylist()[0]
    assert late["withdrawn"] > 0
    assert (late["viewed_after"], late["before"]) == (0, 0)


def test_clicks_of_the_past_belong_to_lookups_and_count_as_the_truth_says(spring_shop: Any) -> None:
    rows = spring_shop.warehouse.query(
        "SELECT strftime(looked_up_at, '%Y-%m') AS month, arm, count(DISTINCT l.request_id) AS lookups, "
        "count(event_id) AS clicks FROM lookups l LEFT JOIN interactions i ON i.request_id = l.request_id "
        "WHERE l.user_id IS NOT NULL GROUP BY ALL",
        tables=["lookups", "interactions"],
    ).to_pylist()
    assert rows
    for row in rows:
        true = spring_shop.truth["added_clicks"][row["month"]]
        assert true[f"{row['arm']}_lookups"] == row["lookups"]
        assert true.get(f"{row['arm']}_clicks", 0) == row["clicks"]


def test_settings_of_the_shop_are_simulated_and_their_clocks_follow_history(tiny_shop: Any) -> None:
    assert tiny_shop.settings.simulated
    for model in tiny_shop.settings.models.values():
        assert model.clock is not None
        assert model.clock.origin == datetime(2025, 3, 13, 6, tzinfo=UTC)
