"""Features of the lists: which events and items a model may see as of a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import cuts
from mlcost_pipeline.models.features import FeatureSet, build_features
from mlcost_pipeline.models.sequences import read_sequences
from mlcost_pipeline.warehouse import Warehouse
from tests.models.samples import AS_OF, DAY0, event, events, recommendation, scoring, settings_with

DAY = timedelta(days=1)
END = DAY0 + 30 * DAY
SETTINGS = settings_with(lists=recommendation(), fraud=scoring())


def built(warehouse: Warehouse) -> FeatureSet:
    """Features as of the last of 30 days."""
    return build_features(warehouse, SETTINGS, "lists", AS_OF)


def table(features: FeatureSet, name: str) -> list[dict[str, Any]]:
    """Rows of one file of the folder."""
    rows: list[dict[str, Any]] = pq.read_table(features.folder / f"{name}.parquet").to_pylist()
    return rows


def test_cuts_are_midnights_and_wait_for_labels_only_where_there_are_labels() -> None:
    lists, fraud = cuts(SETTINGS.model("lists"), AS_OF), cuts(SETTINGS.model("fraud"), AS_OF)
    assert lists.data_cut == lists.holdout_end == datetime(2025, 3, 31, tzinfo=UTC)
    assert lists.training_cut == datetime(2025, 3, 24, tzinfo=UTC)
    assert (fraud.data_cut - fraud.holdout_end, fraud.holdout_end - fraud.training_cut) == (3 * DAY, 7 * DAY)


def test_only_events_of_interest_by_known_users_inside_the_window_count(warehouse: Warehouse) -> None:
    inside = DAY0 + 5 * DAY
    rows = [
        event("a", "x", DAY0, "first instant"),
        event("a", "x", DAY0 - timedelta(microseconds=1), "too old"),
        event("a", "x", END - timedelta(microseconds=1), "last instant"),
        event("a", "x", END, "too new"),
        event(None, "x", inside, "nobody"),
        event("", "x", inside, "blank"),
        event("gone", "x", inside, "forgotten"),
        event("a", "x", inside, "looked", kind="view"),
        event("a", "x", inside, "held"),
    ]
    warehouse.append("interactions", rows)
    warehouse.append("users", [{"user_id": "gone", "valid_from": DAY0, "forgotten_at": DAY0 + 20 * DAY}])
    quarantined = {"table_name": "interactions", "row_key": "held", "evidence_id": "e", "reason": "r", "from": END}
    warehouse.append("quarantine", [quarantined])
    features = built(warehouse)
    assert [row["event_id"] for row in table(features, "events")] == ["first instant", "last instant"]
    assert features.dropped == {"anonymous": 2, "forgotten": 1, "quarantined": 1}
    assert (features.rows, features.training_rows, features.positives) == (2, 1, None)


def test_items_are_withdrawn_as_of_the_data_cut(warehouse: Warehouse) -> None:
    warehouse.append("interactions", [event("a", item, DAY0, f"e{item}") for item in ("old", "back", "stray")])
    periods = [("old", 0, 10), ("back", 0, 10), ("back", 12, None), ("fresh", 3, None), ("later", 40, None)]
    warehouse.append(
        "items",
        [
            {"item_id": name, "valid_from": DAY0 + a * DAY, "valid_to": None if b is None else DAY0 + b * DAY}
            for name, a, b in periods
        ],
    )
    items = {row["item_id"]: row["withdrawn"] for row in table(built(warehouse), "items")}
    assert items == {"old": True, "back": False, "stray": True, "fresh": False}


def test_without_a_catalogue_every_item_is_offered(warehouse: Warehouse) -> None:
    warehouse.append("interactions", [event("a", "x", DAY0, "e")])
    assert table(built(warehouse), "items") == [{"item_id": "x", "withdrawn": False}]


def test_equal_instants_are_ordered_by_event_and_ids_stay_text(warehouse: Warehouse) -> None:
    rows = [event("007", "18446744073709551617", DAY0, "b"), event("007", "01", DAY0, "a"), event("7", "1", DAY0, "c")]
    warehouse.append("interactions", rows)
    features = built(warehouse)
    assert [row["event_id"] for row in table(features, "events")] == ["a", "b", "c"]
    found = read_sequences(features.folder, features.cuts.training_cut)
    assert found.users == ["007", "7"]
    assert found.items == ["01", "1", "18446744073709551617"]
    assert [history.tolist() for history in found.histories()] == [[0, 2], [1]]


def test_the_version_does_not_depend_on_order_or_parts(tmp_path: Any) -> None:
    rows = events()
    one, two = Warehouse(tmp_path / "one"), Warehouse(tmp_path / "two")
    one.append("interactions", rows)
    two.append("interactions", rows[50:][::-1])
    two.append("interactions", rows[:50])
    two.append("interactions", rows[:10])
    first, second = built(one), built(two)
    assert first.data_version == second.data_version
    assert (first.folder / "events.parquet").read_bytes() == (second.folder / "events.parquet").read_bytes()


def test_no_events_is_an_error_that_counts_what_was_left_out(warehouse: Warehouse) -> None:
    warehouse.append("interactions", [event(None, "x", DAY0, "e")])
    with pytest.raises(ModelError, match=r"no events of kind purchase.*1 left out"):
        built(warehouse)
