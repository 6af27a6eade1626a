"""The spend section: the share attributed first, what is left by reason, currencies never added."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from mlcost_pipeline.reports.ledger_view import Spend
from mlcost_pipeline.reports.sections.spend import loaded_table, spend_document
from mlcost_pipeline.reports.values import Quantity
from mlcost_pipeline.settings import Settings


def part(amount: str, **changes: Any) -> Spend:
    row = {
        "account": "a", "period": "2025-05", "currency": "USD", "model": "fraud", "stage": "training",
        "method": "direct", "reason": None, "billed": Decimal(amount), "effective": Decimal(amount), "parts": 1,
    }  # fmt: skip
    return Spend(**{**row, **changes})


def unattributed(amount: str, reason: str, **changes: Any) -> Spend:
    return part(amount, model=None, stage=None, method="unattributed", reason=reason, **changes)


def test_the_first_line_is_the_share_attributed(settings: Settings) -> None:
    entries = [part("60"), part("20", model="recommendations", stage="serving"), unattributed("15", "no_resource_id"),
               unattributed("5", "idle")]  # fmt: skip
    doc = spend_document(entries, settings)
    assert doc.summary == (
        "80 % of 100.00 USD is attributed to models, unattributed by reason: no resource id 15.00 USD, idle 5.00 USD."
    )
    assert doc.marks == ("SIMULATED",)
    assert doc.numbers[0].value == 0.8
    assert doc.tables[0].columns == ["model", "all stages", "training", "serving"]
    assert [str(cell) for cell in doc.tables[0].rows[0]] == ["fraud", "60.00 USD", "60.00 USD", "0.00 USD"]
    assert doc.tables[0].rows[-1][1] == Quantity(Decimal("100"), "USD")
    assert doc.pictures[0].table.rows[0][0] == "2025-05"


def test_currencies_are_never_added(settings: Settings) -> None:
    doc = spend_document([part("60"), part("7", account="b", currency="EUR")], settings)
    assert "100 % of 60.00 USD" in doc.summary and "100 % of 7.00 EUR" in doc.summary
    assert doc.numbers[1].value == Decimal("60")
    assert [picture.title for picture in doc.pictures] == ["Spend by month and stage"] * 2


def test_a_credit_hangs_below_and_sums_stay_exact(settings: Settings) -> None:
    tiny = "0.000000000000000001"
    doc = spend_document([part(tiny), part("10"), unattributed("-4", "charge_type")], settings)
    assert doc.numbers[1].value == Decimal("6") + Decimal(tiny)
    assert "charge type −4.00 USD" in doc.summary


def test_without_a_ledger_it_says_why(settings: Settings) -> None:
    doc = spend_document([], settings)
    assert doc.summary.startswith("Spend is unknown: no ledger is in force")


def test_a_bill_of_zero_has_no_share(settings: Settings) -> None:
    doc = spend_document([part("5"), unattributed("-5", "credit")], settings)
    assert doc.numbers[0].value is None
    assert doc.summary.startswith("the share attributed is unknown, because the bills add up to 0.00 USD")


def test_fully_loaded_views_spread_what_is_nobodys_and_each_adds_up_to_the_bill() -> None:
    entries = [part("60"), part("20", model="recommendations"), unattributed("15", "no_resource_id"),
               unattributed("5", "idle")]  # fmt: skip
    rows = [[str(cell) for cell in row] for row in loaded_table(entries, "USD").rows]
    assert rows == [
        ["fraud", "60.00 USD", "15.00 USD", "75.00 USD", "10.00 USD", "70.00 USD"],
        ["recommendations", "20.00 USD", "5.00 USD", "25.00 USD", "10.00 USD", "30.00 USD"],
    ]
    [nobody] = loaded_table([unattributed("5", "idle")], "USD").rows
    assert str(nobody[1]) == "5.00 USD"
    waiting = unattributed("7", "no_ledger_yet", period="2025-06")  # whose it is will be known
    *models, rest = loaded_table([*entries, waiting], "USD").rows
    assert [[str(cell) for cell in row] for row in models] == rows
    assert [str(cell) for cell in rest[:2]] == ["not apportioned yet: no ledger", "7.00 USD"]
    whole = sum((row[3].value for row in models if isinstance(row[3], Quantity)), Decimal(0)) + Decimal(7)
    assert whole == Decimal(107)
