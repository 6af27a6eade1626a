"""Features of payments: what they are worth, and that none of them looks ahead."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.features import build_features, load_features
from mlcost_pipeline.models.registry import family
from mlcost_pipeline.models.scoring_features import scoring_rows
from mlcost_pipeline.models.scoring_request import rows_from_request
from mlcost_pipeline.warehouse import Warehouse
from tests.models.samples import AS_OF, DAY0, label, payment, payments, scoring, settings_with

END = DAY0 + timedelta(days=30)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def rows_of(warehouse: Warehouse, **changes: Any) -> list[dict[str, Any]]:
    """Rows over all 30 days as known at their end."""
    found = scoring_rows(warehouse, settings_with(fraud=scoring(**changes)), "fraud", DAY0, END, END)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def features_at(warehouse: Warehouse, moment: datetime) -> list[dict[str, Any]]:
    """Feature columns of all rows up to and including a moment."""
    chosen = [row for row in rows_of(warehouse) if row["happened_at"] <= moment]
    return [{k: v for k, v in row.items() if k.startswith("f_") or k == "transaction_id"} for row in chosen]


def test_each_feature_has_the_value_worked_out_by_hand(warehouse: Warehouse) -> None:
    t = DAY0 + 10 * DAY + timedelta(hours=6)  # Tuesday, 06:00
    warehouse.append(
        "transactions",
        [
            payment(1, t - 9 * DAY, "30", terminal_id="t1"),
            payment(2, t - 2 * DAY, "10"),
            payment(3, t - HOUR, "20", customer_id="c9"),
            payment(4, t, "40"),
        ],
    )
    warehouse.append("labels", [label(2, t - DAY, True), label(3, t, False), label(1, t - 8 * DAY, True)])
    row = rows_of(warehouse)[-1]
    assert row["transaction_id"] == "00004"
    expected = {
        "f_category": "food",
        "f_hour": 6.0,
        "f_hour_sin": 1.0,
        "f_hour_cos": 0.0,
        "f_weekday": 1.0,
        "f_log_amount": math.log(41),
        "f_amount_vs_customer": math.log(40 / 20),
        "f_customer_count_1d": 0.0,
        "f_customer_count_7d": 1.0,
        "f_terminal_count_7d": 2.0,
        "f_terminal_count_28d": 2.0,
        "f_terminal_fraud_rate_7d": 0.5,
        "f_terminal_fraud_rate_28d": 0.5,
        "f_terminal_known_28d": 2.0,
    }
    found = {name: value for name, value in row.items() if name.startswith("f_")}
    assert found == {k: v if isinstance(v, str) else pytest.approx(v, abs=1e-9) for k, v in expected.items()}


def test_nothing_that_happens_or_is_known_later_changes_a_feature(warehouse: Warehouse) -> None:
    rows, labels = payments(300)
    moment = DAY0 + 15 * DAY
    warehouse.append("transactions", [row for row in rows if row["happened_at"] <= moment])
    warehouse.append("labels", [one for one in labels if one["known_at"] <= moment])
    before = features_at(warehouse, moment)
    warehouse.append("transactions", [row for row in rows if row["happened_at"] > moment])
    warehouse.append("labels", [one for one in labels if one["known_at"] > moment])
    late = moment + timedelta(microseconds=1)
    warehouse.append("labels", [label(int(row["transaction_id"]), late, True) for row in before[:50]])
    assert len(before) > 100
    assert features_at(warehouse, moment) == before


def test_payments_of_one_instant_are_not_each_others_past(warehouse: Warehouse) -> None:
    warehouse.append("transactions", [payment(n, DAY0 + DAY, "10") for n in (3, 1, 2)])
    rows = rows_of(warehouse)
    assert [row["transaction_id"] for row in rows] == ["00001", "00002", "00003"]
    assert {row["f_customer_count_7d"] for row in rows} == {0.0}
    assert {row["f_amount_vs_customer"] for row in rows} == {None}


def test_a_corrected_label_counts_once_and_with_its_newest_word(warehouse: Warehouse) -> None:
    warehouse.append("transactions", [payment(1, DAY0), payment(2, DAY0 + 3 * DAY), payment(3, DAY0 + 5 * DAY)])
    warehouse.append("labels", [label(1, DAY0 + 2 * DAY, False), label(1, DAY0 + 4 * DAY, True)])
    first, second, third = rows_of(warehouse)
    assert (second["f_terminal_fraud_rate_7d"], second["f_terminal_known_28d"]) == (0.0, 1.0)
    assert (third["f_terminal_fraud_rate_7d"], third["f_terminal_known_28d"]) == (1.0, 1.0)
    assert (first["is_fraud"], first["known_at"]) == (True, DAY0 + 4 * DAY)


def test_labels_are_those_known_at_the_moment_asked_for(warehouse: Warehouse) -> None:
    warehouse.append("transactions", [payment(1, DAY0), payment(2, DAY0 + DAY)])
    warehouse.append("labels", [label(1, DAY0 + 5 * DAY, True), label(2, DAY0 + 9 * DAY, True)])
    settings = settings_with(fraud=scoring())
    known = [
        scoring_rows(warehouse, settings, "fraud", DAY0, END, DAY0 + days * DAY)["is_fraud"].to_pylist()
        for days in (4, 5, 9)
    ]
    assert known == [[None, None], [True, None], [True, True]]


def test_payments_without_customer_or_terminal_have_no_past(warehouse: Warehouse) -> None:
    nobody = {"customer_id": None, "terminal_id": None}
    warehouse.append("transactions", [payment(n, DAY0 + n * HOUR, "5", **nobody) for n in range(3)])
    for row in rows_of(warehouse):
        assert row["f_customer_count_7d"] is None
        assert row["f_terminal_count_7d"] is None
        assert row["f_log_amount"] == pytest.approx(math.log(6))


def test_ids_stay_text(warehouse: Warehouse) -> None:
    odd = payment(1, DAY0, transaction_id="000123", customer_id="007", terminal_id="18446744073709551617")
    warehouse.append("transactions", [odd])
    row = rows_of(warehouse)[0]
    assert (row["transaction_id"], row["customer_id"], row["terminal_id"]) == ("000123", "007", "18446744073709551617")


@pytest.mark.parametrize("never", ["feature_online", "online"])
def test_a_forbidden_feature_is_refused_under_either_name(warehouse: Warehouse, never: str) -> None:
    rows, _ = payments(20)
    warehouse.append("transactions", rows)
    settings = settings_with(fraud=scoring(features=["feature_online"]))
    object.__setattr__(settings.models["fraud"], "never_features", [never])
    with pytest.raises(ModelError, match=r"feature_online.*never_features"):
        build_features(warehouse, settings, "fraud", AS_OF)


def test_a_forbidden_column_takes_what_is_made_of_it_along(warehouse: Warehouse) -> None:
    warehouse.append("transactions", payments(20)[0])
    row = rows_of(warehouse, never_features=["terminal_id", "amount"])[0]
    names = {name for name in row if name.startswith("f_")}
    assert not any("terminal" in name or "amount" in name for name in names)
    assert "f_customer_count_7d" in names


@pytest.mark.parametrize("leak", ["is_fraud", "known_at", "transaction_id"])
def test_a_label_is_never_a_feature(warehouse: Warehouse, leak: str) -> None:
    with pytest.raises(ModelError, match="never a feature"):
        rows_of(warehouse, features=[leak])


def test_a_feature_that_is_not_there_is_named(warehouse: Warehouse) -> None:
    warehouse.append("transactions", payments(5)[0])
    with pytest.raises(ModelError, match=r"no column feature_shoe_size.*feature_online"):
        rows_of(warehouse, features=["feature_shoe_size"])


def test_the_version_is_of_the_content_not_of_files_or_order(tmp_path: Any) -> None:
    rows, labels = payments(200)
    settings = settings_with(fraud=scoring(features=["feature_online"], slices=["merchant_category", "feature_online"]))
    versions = []
    for number, (cut, step) in enumerate([(200, 1), (70, -1)]):
        store = Warehouse(tmp_path / str(number))
        mixed = rows[::step]
        store.append("transactions", mixed[:cut])
        if mixed[cut:]:
            store.append("transactions", mixed[cut:])
        store.append("labels", labels[::step])
        found = build_features(store, settings, "fraud", AS_OF)
        versions.append((found.data_version, (found.folder / "rows.parquet").read_bytes()))
    assert versions[0] == versions[1]


def test_features_are_built_once_and_found_again(warehouse: Warehouse) -> None:
    rows, labels = payments(100)
    warehouse.append("transactions", rows)
    warehouse.append("labels", labels)
    settings = settings_with(fraud=scoring())
    first = build_features(warehouse, settings, "fraud", AS_OF)
    (first.folder / "features.json").unlink()  # killed before the manifest
    with pytest.raises(ModelError, match="build those of 'fraud' again"):
        load_features(warehouse, "fraud", first.data_version)
    assert build_features(warehouse, settings, "fraud", AS_OF) == first
    assert load_features(warehouse, "fraud", first.data_version) == first
    warehouse.append("labels", [label(0, DAY0 + 20 * DAY, True), label(1, DAY0 + 20 * DAY, True)])
    assert build_features(warehouse, settings, "fraud", AS_OF).data_version != first.data_version
    table = pq.read_table(first.folder / "rows.parquet")
    assert first.rows == table.num_rows
    assert first.positives == sum(x is True for x in table["is_fraud"].to_pylist())


def test_quarantined_payments_are_left_out_of_training_but_still_scored(warehouse: Warehouse) -> None:
    warehouse.append("transactions", [payment(1, DAY0 + 9 * DAY, "1000"), payment(2, DAY0 + 10 * DAY, "10")])
    held = {"table_name": "transactions", "row_key": "00001", "evidence_id": "e", "reason": "cents", "from": END}
    warehouse.append("quarantine", [held])
    settings = settings_with(fraud=scoring())
    found = build_features(warehouse, settings, "fraud", AS_OF)
    assert pq.read_table(found.folder / "rows.parquet")["transaction_id"].to_pylist() == ["00002"]
    assert found.dropped == {"quarantined": 1}
    day_before = build_features(warehouse, settings, "fraud", AS_OF - DAY)
    assert day_before.dropped == {"quarantined": 0}, "what was found later does not change an earlier day"
    scored = rows_of(warehouse)
    assert [row["transaction_id"] for row in scored] == ["00001", "00002"]
    assert scored[1]["f_amount_vs_customer"] is None


def test_an_empty_window_says_what_was_looked_for(warehouse: Warehouse) -> None:
    with pytest.raises(ModelError, match="no transactions from 2025-03-01"):
        build_features(warehouse, settings_with(fraud=scoring()), "fraud", AS_OF)


def test_a_request_is_scored_as_the_daily_run_scores_the_same_row(warehouse: Warehouse, tmp_path: Any) -> None:
    rows, labels = payments(400)
    warehouse.append("transactions", rows)
    warehouse.append("labels", labels)
    settings = settings_with(fraud=scoring(features=["feature_online"], slices=["feature_online"]))
    found = build_features(warehouse, settings, "fraud", AS_OF)
    model = family("forest")({"trees": 20}, 0)
    model.start(found.folder, found.cuts.training_cut)
    model.step(None, 0)  # type: ignore[arg-type]
    model.save(tmp_path)
    scorer: Any = family("forest").load(tmp_path)
    daily = scoring_rows(warehouse, settings, "fraud", DAY0, END, END).slice(0, 50)
    asked = []
    past = [n for n in daily.column_names if n.startswith(("f_customer", "f_terminal", "f_amount"))]
    sent = {row["transaction_id"]: row for row in rows}
    for row in daily.to_pylist():
        own = {k: v for k, v in sent[row["transaction_id"]].items() if k != "currency"}
        own["happened_at"] = own["happened_at"].isoformat()
        asked.append({**own, **{name: row[name] for name in past}})
    request = rows_from_request(asked, settings.model("fraud"))
    for name in request.column_names:
        if name.startswith("f_"):
            assert request[name].to_pylist() == daily[name].to_pylist(), name
    assert scorer.score(request).tolist() == scorer.score(daily).tolist()
    bare = rows_from_request([{k: v for k, v in asked[0].items() if k not in past}], settings.model("fraud"))
    assert 0 <= scorer.score(bare)[0] <= 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"amount": None}, "row 0: amount is missing"),
        ({"amount": "much"}, "field amount"),
        ({"amount": float("nan")}, "field amount"),
        ({"happened_at": "2025-03-01T00:00:00"}, "needs a zone"),
        ({"happened_at": "soon"}, "expected ISO time"),
        ({"is_fraud": True}, "unknown field is_fraud"),
        ({"f_customer_count_7d": "three"}, "f_customer_count_7d: expected a number"),
    ],
)
def test_a_request_that_does_not_fit_is_answered_by_row_and_field(change: dict[str, Any], said: str) -> None:
    row = {"happened_at": "2025-03-01T00:00:00Z", "merchant_category": "food", "amount": Decimal("1")}
    with pytest.raises(ModelError, match=said):
        rows_from_request([{**row, **change}], settings_with(fraud=scoring()).model("fraud"))
