"""The spend section: the share attributed first, what is left by reason, currencies never added."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from mlcost_pipeline.reports.ledger_view import read_spend, total
from mlcost_pipeline.reports.sections.spend import spend
from mlcost_pipeline.reports.values import Quantity
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def part(number: int, amount: str, **changes: Any) -> dict[str, Any]:
    row = {
        "ledger_version": "v1", "slot_id": "s", "part": number, "delivery_id": "d", "account": "a", "period": "2025-05",
        "currency": "USD", "method": "direct", "model": "fraud", "stage": "training",
        "billed": Decimal(amount), "effective": Decimal(amount),
    }  # fmt: skip
    return {**row, **changes}


def unattributed(number: int, amount: str, reason: str, **changes: Any) -> dict[str, Any]:
    return part(number, amount, model=None, stage=None, method="unattributed", reason=reason, **changes)


def put(warehouse: Warehouse, rows: list[dict[str, Any]], scope: str = "a|2025-05", version: str = "v1") -> None:
    warehouse.write_version("cost_ledger", scope, version, rows)
    warehouse.point("cost_ledger", scope, version)


def test_the_first_line_is_the_share_attributed(warehouse: Warehouse, settings: Settings) -> None:
    put(warehouse, [part(0, "60"), part(1, "20", model="recommendations", stage="serving"),
                    unattributed(2, "15", "no_resource_id"), unattributed(3, "5", "idle")])  # fmt: skip
    doc = spend(warehouse, settings)
    assert doc.summary == (
        "80 % of 100.00 USD is attributed to models, unattributed by reason: no resource id 15.00 USD, idle 5.00 USD."
    )
    assert doc.marks == ("SIMULATED",)
    assert doc.numbers[0].value == 0.8
    assert doc.tables[0].columns == ["model", "all stages", "training", "serving"]
    assert [str(cell) for cell in doc.tables[0].rows[0]] == ["fraud", "60.00 USD", "60.00 USD", "0.00 USD"]
    assert doc.tables[0].rows[-1][1] == Quantity(Decimal("100"), "USD")
    assert doc.pictures[0].table.rows[0][0] == "2025-05"


def test_only_the_version_in_force_counts(warehouse: Warehouse, settings: Settings) -> None:
    put(warehouse, [part(0, "60")])
    put(warehouse, [part(0, "50", ledger_version="v2")], version="v2")
    assert total(read_spend(warehouse)) == Decimal("50")


def test_currencies_are_never_added(warehouse: Warehouse, settings: Settings) -> None:
    put(warehouse, [part(0, "60")])
    put(warehouse, [part(0, "7", account="b", currency="EUR")], scope="b|2025-05")
    doc = spend(warehouse, settings)
    assert "100 % of 60.00 USD" in doc.summary and "100 % of 7.00 EUR" in doc.summary
    assert doc.numbers[1].value == Decimal("60")
    assert [picture.title for picture in doc.pictures] == ["Spend by month and stage"] * 2


def test_a_credit_hangs_below_and_sums_stay_exact(warehouse: Warehouse, settings: Settings) -> None:
    tiny = "0.000000000000000001"
    put(warehouse, [part(0, tiny), part(1, "10"), unattributed(2, "-4", "charge_type")])
    doc = spend(warehouse, settings)
    assert doc.numbers[1].value == Decimal("6") + Decimal(tiny)
    assert "charge type −4.00 USD" in doc.summary


def test_without_a_ledger_it_says_why(warehouse: Warehouse, settings: Settings) -> None:
    doc = spend(warehouse, settings)
    assert doc.summary.startswith("Spend is unknown: no ledger is in force")


def test_a_bill_of_zero_has_no_share(warehouse: Warehouse, settings: Settings) -> None:
    put(warehouse, [part(0, "5"), unattributed(1, "-5", "credit")])
    doc = spend(warehouse, settings)
    assert doc.numbers[0].value is None
    assert doc.summary.startswith("the share attributed is unknown, because the bills add up to 0.00 USD")
