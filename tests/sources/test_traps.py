"""Traps of real input: what files hold that nobody here wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import Ingested, ingest
from mlcost_pipeline.warehouse import Warehouse

EVENTS = {"event_id": "id", "user_id": "user", "item_id": "item", "kind": "action", "happened_at": "at"}
PAYMENTS = {
    "transaction_id": "id", "happened_at": "at", "merchant_category": "shop", "amount": "amount",
    "currency": {"value": "EUR"}, "customer_id": "customer", "feature_online": "online",
}  # fmt: skip


def settings_for(folder: Path, **sources: Any) -> Settings:
    model = {
        "task": "scoring", "first_day": "2025-03-01", "trainer": {"family": "mlp"}, "baseline": {"family": "forest"},
        "outcome": {"unit": "fraud_caught"}, "alerts_per_day": 5,
    }  # fmt: skip
    pool = {"name": "od", "market": "on_demand", "price_per_hour": "3.06"}
    return Settings.model_validate(
        {"version": 1, "name": "t", "models": {"fraud": model}, "capacity": {"pools": [pool]}, "sources": sources,
         "base": folder}
    )  # fmt: skip


def take(folder: Path, table: str, **source: Any) -> tuple[Warehouse, Ingested]:
    warehouse = Warehouse(folder / "warehouse")
    return warehouse, ingest(warehouse, settings_for(folder, **{table: {"path": "in", **source}}), table)


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / "in" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_ids_stay_text_with_leading_zeros_and_any_size(tmp_path: Path) -> None:
    big = str(2**63 + 41)
    write(tmp_path, "a.csv", f"id,user,item,action,at\n{big},007,00042,view,2025-03-01T08:00:00Z\n")
    warehouse, _ = take(tmp_path, "interactions", columns=EVENTS)
    (row,) = warehouse.rows("interactions")
    assert (row["event_id"], row["user_id"], row["item_id"]) == (big, "007", "00042")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([17850, None], pa.int64()), ["17850", None]),
        (pa.array([17850.0, None], pa.float64()), ["17850", None]),
        (pa.array([2**64 - 1, None], pa.uint64()), ["18446744073709551615", None]),
        (pa.array(["0017", None]).dictionary_encode(), ["0017", None]),
        (pa.array([Decimal("99999999999999999999"), None], pa.decimal128(20, 0)), ["99999999999999999999", None]),
    ],
)
def test_parquet_ids_become_text_without_a_point(tmp_path: Path, column: pa.Array, expected: list[str | None]) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"id": ["a", "b"], "user": column, "item": ["x", "x"], "action": ["view"] * 2,
                     "at": pa.array([datetime(2025, 3, 1, 8)] * 2)})  # fmt: skip
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    warehouse, _ = take(tmp_path, "interactions", columns=EVENTS)
    assert [row["user_id"] for row in warehouse.rows("interactions")] == expected


def test_an_id_that_lost_digits_as_a_float_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"id": [1.0, 2.0**60], "user": ["u"] * 2, "item": ["x"] * 2, "action": ["view"] * 2,
                     "at": pa.array([datetime(2025, 3, 1, 8)] * 2)})  # fmt: skip
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    with pytest.raises(SourceError, match=r"row 2, column 'id' .*lost digits; export it as text"):
        take(tmp_path, "interactions", columns=EVENTS)


def test_cancelled_orders_are_events_of_their_own_kind(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.csv",
        "invoice,user,item,quantity,at\n536365,1,85123a,6,2010-12-01 08:26\n"
        "C536379,1,85123A,-6,2010-12-01 09:41\nA536380,1,85123A,0,2010-12-01 09:50\n",
    )
    kinds = [{"when": [{"column": "invoice", "starts_with": "C"}], "value": "cancellation"}]
    columns = {
        "user_id": "user", "item_id": {"column": "item", "transform": ["upper"]},
        "kind": {"choices": kinds, "otherwise": "purchase"}, "happened_at": "at",
    }  # fmt: skip
    warehouse, done = take(
        tmp_path, "interactions", columns=columns, keep=[{"column": "invoice", "matches": "C?[0-9]+"}]
    )
    found = {(row["kind"], row["item_id"]) for row in warehouse.rows("interactions")}
    assert found == {("purchase", "85123A"), ("cancellation", "85123A")}
    assert done.rows_dropped == {"keep: invoice matches C?[0-9]+": 1}


def test_equal_rows_are_one_event_and_counted(tmp_path: Path) -> None:
    line = "1,x,view,2025-03-01T08:00:00Z\n"
    write(tmp_path, "a.csv", "user,item,action,at\n" + line * 3 + "1,y,view,2025-03-01T08:00:00Z\n")
    columns = {name: theirs for name, theirs in EVENTS.items() if name != "event_id"}
    warehouse, done = take(tmp_path, "interactions", columns=columns)
    assert len(warehouse.rows("interactions")) == 2
    assert (done.rows_read, done.rows_new, done.rows_dropped) == (4, 2, {"duplicate": 2})


def test_of_different_rows_with_one_id_the_last_stays(tmp_path: Path) -> None:
    write(
        tmp_path, "a.csv", "id,user,item,action,at\n1,u,x,view,2025-03-01T08:00:00Z\n1,u,y,view,2025-03-01T08:00:00Z\n"
    )
    warehouse, done = take(tmp_path, "interactions", columns=EVENTS)
    assert [row["item_id"] for row in warehouse.rows("interactions")] == ["y"]
    assert done.rows_dropped == {"superseded": 1}


def test_anonymous_users_are_kept_without_a_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.csv",
        "id,user,item,action,at\n1,,x,view,2025-03-01T08:00:00Z\n2,NULL,x,view,2025-03-01T08:00:00Z\n",
    )
    warehouse, done = take(tmp_path, "interactions", columns=EVENTS)
    assert [row["user_id"] for row in warehouse.rows("interactions")] == [None, None]
    assert done.rows_new == 2


def test_equal_timestamps_are_different_events(tmp_path: Path) -> None:
    same = "u,{},view,2025-03-01T08:00:00Z\n"
    write(tmp_path, "a.csv", "user,item,action,at\n" + "".join(same.format(item) for item in "abc"))
    columns = {name: theirs for name, theirs in EVENTS.items() if name != "event_id"}
    warehouse, _ = take(tmp_path, "interactions", columns=columns)
    assert [row["happened_at"] for row in warehouse.rows("interactions")] == [datetime(2025, 3, 1, 8, tzinfo=UTC)] * 3


def test_local_times_become_utc_also_where_the_clock_is_put_back(tmp_path: Path) -> None:
    times = {
        "summer": "2011-07-01 12:00",
        "twice": "2011-10-30 01:30",
        "never": "2011-03-27 01:30",
        "zoned": "2011-07-01T12:00+02:00",
    }
    write(tmp_path, "a.csv", "id,user,item,action,at\n" + "".join(f"{k},u,x,view,{at}\n" for k, at in times.items()))
    warehouse, _ = take(tmp_path, "interactions", columns=EVENTS, time_zone="Europe/London")
    found = {row["event_id"]: row["happened_at"].strftime("%H:%M") for row in warehouse.rows("interactions")}
    # the hour that occurs twice is its first pass (still summer time); the time that never was keeps winter's offset
    assert found == {"summer": "11:00", "twice": "00:30", "never": "01:30", "zoned": "10:00"}


def test_a_day_and_an_hour_make_a_time(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,day,hour,shop,amount,customer,online\n1,2,13.57,fuel,5,c,1\n")
    when = {"column": "day", "day_origin": "2026-01-01", "hour_column": "hour"}
    warehouse, _ = take(tmp_path, "transactions", columns={**PAYMENTS, "happened_at": when})
    assert warehouse.rows("transactions")[0]["happened_at"] == datetime(2026, 1, 3, 13, 34, 12, tzinfo=UTC)


def test_money_is_exact_whatever_carried_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"id": ["1", "2"], "at": pa.array([datetime(2025, 3, 1)] * 2), "shop": ["fuel"] * 2,
                     "amount": pa.array([60.37, 0.1], pa.float32()), "customer": [1, 2],
                     "online": pa.array([0, 1], pa.int8())})  # fmt: skip
    pq.write_table(rows, tmp_path / "in" / "a.parquet")
    warehouse, _ = take(tmp_path, "transactions", columns=PAYMENTS)
    assert [row["amount"] for row in warehouse.rows("transactions")] == [Decimal("60.37"), Decimal("0.1")]
    assert [row["feature_online"] for row in warehouse.rows("transactions")] == [0.0, 1.0]


def test_an_empty_day_is_reported_and_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,user,item,action,at\n")
    _, done = take(tmp_path, "interactions", columns=EVENTS)
    assert (done.files, done.rows_read, done.rows_new) == (1, 0, 0)
    assert done.sentence == "interactions: 1 new files hold no rows at all"


def test_rows_that_are_all_dropped_are_not_silent(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,user,item,action,at\n1,u,x,view,2025-03-01T08:00:00Z\n")
    _, done = take(tmp_path, "interactions", columns=EVENTS, keep=[{"column": "action", "equals": "View"}])
    assert done.rows_new == 0
    assert done.sentence.endswith(
        "dropped 1 keep: action equals View; not one row was stored, look at the keep conditions"
    )
