"""The bill: every hour that a resource existed, to the last digit, and untidy where it was planted untidy."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.demo.biller import bill_period
from mlcost_pipeline.demo.cloud import Cloud, charges
from mlcost_pipeline.demo.planted import UNKNOWN_RESOURCE
from mlcost_pipeline.errors import BillError

NINE = datetime(2025, 3, 3, 9, tzinfo=UTC)
CLOUD = Cloud({"gpu": Decimal("3.06"), "cpu": Decimal("0.192")}, {"spot-a": Decimal("0.9731")}, frozenset({"node"}))


def hold(run_id: str, resource_id: str, start: float, end: float) -> dict[str, Any]:
    return {"run_id": run_id, "resource_id": resource_id, "share_milli": 1000,
            "start": NINE + timedelta(seconds=start), "end": NINE + timedelta(seconds=end)}  # fmt: skip


def resource(resource_id: str, kind: str, seconds: float | None = None) -> dict[str, Any]:
    end = None if seconds is None else NINE + timedelta(seconds=seconds)
    return {"resource_id": resource_id, "kind": kind, "capacity_milli": 1000, "valid_from": NINE, "valid_to": end}


def day_of(*holds: dict[str, Any], resources: list[dict[str, Any]]) -> list[Any]:
    return charges(CLOUD, holds, resources, NINE - timedelta(hours=9), NINE + timedelta(hours=15))


def test_a_standing_resource_is_charged_while_it_exists() -> None:
    made = day_of(hold("r", "node", 600, 900), resources=[resource("node", "cpu", 9000)])
    assert [(c.seconds, c.amount) for c in made] == [
        (3600, Decimal("0.192")),
        (3600, Decimal("0.192")),
        (1800, Decimal("0.096")),
    ]
    assert [c.runs for c in made] == [("r",), (), ()]


def test_an_instance_is_charged_while_held_to_the_started_second() -> None:
    (made,) = day_of(hold("j/1", "spot-a/j/1", 10.4, 19.2), resources=[resource("spot-a/j/1", "gpu")])
    assert (made.start.second, made.end.second, made.seconds) == (10, 20, 10)
    assert made.amount == Decimal("0.0027030556")


def test_overlapping_holds_are_charged_once() -> None:
    made = day_of(hold("a", "x", 0, 100), hold("b", "x", 50, 150), resources=[resource("x", "gpu")])
    assert [(c.seconds, c.runs) for c in made] == [(150, ("a", "b"))]


def lines(file: Path) -> list[dict[str, str]]:
    with file.open() as stream:
        return list(csv.DictReader(stream))


def test_lines_add_up_to_the_billers_books_and_to_the_truth(spring_shop: Any) -> None:
    for period, true in spring_shop.truth["bill"].items():
        file = bill_period(spring_shop.warehouse, spring_shop.folder, period)[0]
        rows = lines(file)
        total = sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))
        number = 2 if (spring_shop.folder / "books" / f"{period}.delivery-2.json").exists() else 1
        books = json.loads((spring_shop.folder / "books" / f"{period}.delivery-{number}.json").read_text())
        assert (len(rows), total) == (books["lines"], Decimal(books["total"]))
        wrong = Decimal(true["overcharged_in_first_delivery"]) if number == 1 else Decimal(0)
        tax = (wrong * Decimal("0.07")).quantize(Decimal("0.01"))
        assert abs(total - wrong - Decimal(true["total"]) - tax) <= Decimal("0.01")
        assert {row["InvoiceId"] for row in rows} == {f"INV-{period}" if true["whole"] else ""}


def test_what_is_untidy_was_planted(spring_shop: Any) -> None:
    rows = lines(bill_period(spring_shop.warehouse, spring_shop.folder, "2025-04")[0])
    usage = [row for row in rows if row["ChargeCategory"] == "Usage"]
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Purchase", "Tax", "Credit"}
    assert any(Decimal(row["BilledCost"]) < 0 for row in rows)
    assert sum(row["ResourceId"] == UNKNOWN_RESOURCE for row in usage) == 30
    assert all(not row["Tags"] for row in usage if row["ResourceId"] == "serve-gpu-2")
    trainings = [row for row in usage if row["ResourceId"].startswith("train-")]
    assert {bool(row["Tags"]) for row in trainings} == {True, False}
    assert all("mlcost_run" in json.loads(row["Tags"]) for row in trainings if row["Tags"])


def test_a_month_is_restated_in_place_and_stays_restated(spring_shop: Any) -> None:
    warehouse, folder = spring_shop.warehouse, spring_shop.folder
    for book in (folder / "books").glob("2025-04.delivery-2.json"):
        book.unlink()
    before = lines(bill_period(warehouse, folder, "2025-04")[0])
    written = bill_period(warehouse, folder, "2025-05")
    assert [file.name for file in written] == ["2025-05.csv", "2025-04.csv"]
    after = lines(folder / "bills" / "2025-04.csv")
    cost = [sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0)) for rows in (before, after)]
    assert cost[1] == Decimal(spring_shop.truth["bill"]["2025-04"]["total"]) < cost[0]
    bill_period(warehouse, folder, "2025-04")  # a replay of the earlier month does not bring the fault back
    assert lines(folder / "bills" / "2025-04.csv") == after


def test_the_same_records_give_the_same_bytes(tiny_shop: Any) -> None:
    first = bill_period(tiny_shop.warehouse, tiny_shop.folder, "2025-03")[0].read_bytes()
    assert bill_period(tiny_shop.warehouse, tiny_shop.folder, "2025-03")[0].read_bytes() == first


def test_a_month_without_anything_is_refused(tiny_shop: Any) -> None:
    with pytest.raises(BillError, match="nothing to bill"):
        bill_period(tiny_shop.warehouse, tiny_shop.folder, "2024-01")
    with pytest.raises(BillError, match="expected a month such as 2025-03"):
        bill_period(tiny_shop.warehouse, tiny_shop.folder, "March")
