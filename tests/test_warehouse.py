"""Tables that never change a row, whole versions behind a pointer, and rows that are refused by name."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import SchemaError, WarehouseError
from mlcost_pipeline.tables import MONEY, TABLES
from mlcost_pipeline.warehouse import Warehouse

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def event(event_id: str, **other: object) -> dict[str, object]:
    return {"event_id": event_id, "user_id": "007", "item_id": "00042", "kind": "view", "happened_at": NOON, **other}


def test_every_table_of_the_design_is_there_and_its_key_is_never_null() -> None:
    assert len(TABLES) == 31
    for table in TABLES.values():
        assert set(table.key) <= set(table.columns), table.name
        assert all(not table.schema.field(column).nullable for column in table.key), table.name
        for field in table.schema:
            assert not pa.types.is_timestamp(field.type) or field.type.tz == "UTC"
            assert not pa.types.is_decimal(field.type) or field.type == MONEY


def test_adding_the_same_rows_twice_is_one_part(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    assert warehouse.append("interactions", [event("a"), event("b")]).new
    assert not warehouse.append("interactions", [event("a"), event("b")]).new
    assert [row["event_id"] for row in warehouse.rows("interactions")] == ["a", "b"]


def test_of_rows_with_one_key_the_last_recorded_wins(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.append("interactions", [event("a"), event("b")])
    warehouse.append("interactions", [event("a", kind="purchase")])
    assert {row["event_id"]: row["kind"] for row in warehouse.rows("interactions")} == {"a": "purchase", "b": "view"}
    warehouse.compact("interactions")
    assert len(list((tmp_path / "tables" / "interactions").glob("*.parquet"))) == 1
    assert {row["event_id"]: row["kind"] for row in warehouse.rows("interactions")} == {"a": "purchase", "b": "view"}


def test_rows_that_were_compacted_away_do_not_come_back(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.append("interactions", [event("a")])
    warehouse.append("interactions", [event("a", kind="purchase")])
    warehouse.compact("interactions")
    assert not warehouse.append("interactions", [event("a")]).new
    assert warehouse.rows("interactions")[0]["kind"] == "purchase"


def test_a_value_that_comes_back_holds_again(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for kind in ("view", "purchase", "view"):
        warehouse.append("interactions", [event("a", kind=kind)], holds_now=True)
        assert warehouse.rows("interactions")[0]["kind"] == kind
    assert not warehouse.append("interactions", [event("a", kind="view")], holds_now=True).new
    assert not warehouse.append("interactions", [event("a", kind="purchase")]).new, (
        "a killed writer that repeats itself"
    )
    assert warehouse.rows("interactions")[0]["kind"] == "view"


def test_ids_are_text_to_the_last_zero(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    ids = ["007", "7", str(2**63 + 1), "ä|b/c"]
    warehouse.append("interactions", [event(f"e{i}", user_id=user) for i, user in enumerate(ids)])
    assert sorted(row["user_id"] for row in warehouse.rows("interactions")) == sorted(ids)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (event("a", happened_at=datetime(2025, 6, 1)), "row 1, column happened_at: time without a zone"),
        (event("a", item_id=None), "row 1, column item_id: is missing"),
        (event("a", kind=3), "row 1, column kind: expected string, found 3"),
        (event("a", colour="red"), "unknown column colour"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_row_and_column(tmp_path: Path, row: dict, says: str) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(SchemaError, match=says):
        warehouse.append("interactions", [event("first"), row])
    assert warehouse.rows("interactions") == []


def test_money_is_never_a_binary_float(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    with pytest.raises(SchemaError, match="price"):
        warehouse.append("market_observations", [{"pool": "a", "at": NOON, "available": True, "price": 0.1}])
    table = pa.table({"pool": ["a"], "at": [NOON], "available": [True], "price": [0.1]})
    with pytest.raises(SchemaError, match="money arrived as binary floats"):
        warehouse.append("market_observations", table)
    exact = Decimal("0.000000000000000001")
    warehouse.append("market_observations", [{"pool": "a", "at": NOON, "available": True, "price": exact}])
    assert warehouse.rows("market_observations")[0]["price"] == exact


def test_a_team_adds_columns_only_under_the_prefix(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    payment = {
        "transaction_id": "1",
        "happened_at": NOON,
        "merchant_category": "toys",
        "amount": Decimal(1),
        "currency": "EUR",
    }
    warehouse.append("transactions", [{**payment, "feature_hour": 3.0}])
    warehouse.append("transactions", [{**payment, "transaction_id": "2", "feature_zone": "north"}])
    first, second = warehouse.rows("transactions")
    assert (first["feature_hour"], first["feature_zone"]) == (3.0, None)
    assert (second["feature_hour"], second["feature_zone"]) == (None, "north")


def test_a_version_is_in_force_only_after_the_pointer_moved(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    row = {"version": "v1", "user_id": "u", "rank": 1, "item_id": "i", "score": 0.5}
    warehouse.write_version("recommendations", "shop", "v1", [row])
    assert warehouse.read_version("recommendations", "shop").num_rows == 0
    warehouse.point("recommendations", "shop", "v1")
    assert warehouse.read_version("recommendations", "shop").to_pylist() == [row]
    with pytest.raises(WarehouseError, match="version v2 was never written whole"):
        warehouse.point("recommendations", "shop", "v2")
    with pytest.raises(WarehouseError, match="is in force and stays"):
        warehouse.drop_version("recommendations", "shop", "v1")


def test_readers_and_a_compaction_do_not_meet(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    for number in range(20):
        warehouse.append("interactions", [event(f"e{number:02}")])
    counted: list[int] = []
    readers = [
        threading.Thread(target=lambda: counted.extend(len(warehouse.rows("interactions")) for _ in range(5)))
        for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    warehouse.compact("interactions")
    for reader in readers:
        reader.join()
    assert counted == [20] * 15


def test_parts_from_before_a_column_was_added_read_as_null(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.append("interactions", [event("old")])
    (part,) = (tmp_path / "tables" / "interactions").glob("*.parquet")
    pq.write_table(pq.read_table(part).drop_columns(["request_id"]), part)
    assert warehouse.query("SELECT request_id FROM interactions", tables=["interactions"]).to_pylist() == [
        {"request_id": None}
    ]
    assert warehouse.rows("interactions")[0]["request_id"] is None


def test_a_warehouse_of_another_schema_is_refused(tmp_path: Path) -> None:
    Warehouse(tmp_path)
    (tmp_path / "warehouse.json").write_text('{"schema_version": 99}')
    with pytest.raises(WarehouseError, match=r"schema version 99.*mlcost migrate"):
        Warehouse(tmp_path)
