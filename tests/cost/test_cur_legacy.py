"""Reading legacy cost and usage reports: slash names, tags in columns, columns that vary by month."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.bills import cur2, cur_legacy
from mlcost_pipeline.cost.bills.cur_columns import cur2_name
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.cur_reports import PLAN, cur_line, lines_of, slash_name, total, write_csv, write_legacy

ANONYMOUS = "aws_cur_legacy_anonymous.csv"


def test_the_published_report_adds_up_to_its_published_sum(billing_data: Path) -> None:
    report = cur_legacy.open_bill(billing_data / ANONYMOUS)
    lines = lines_of(report)
    assert len(lines) == 1281
    assert total(lines) == total(lines, "effective") == Decimal("1.68230869740")
    assert (report.residues, report.warnings) == ({}, [])


def test_the_published_report_keeps_its_known_facts(billing_data: Path) -> None:
    report = cur_legacy.open_bill(billing_data / ANONYMOUS)
    lines = lines_of(report)
    taxes = [line for line in lines if line["category"] == "Tax"]
    assert [line["charge_end"] - line["charge_start"] for line in taxes] == [timedelta(days=30)] * 12
    assert total(taxes) == Decimal("0.08")
    assert len({line["line"] for line in lines}) == 1281  # although 893 rows share a LineItemId
    assert {line["invoice_id"] for line in lines} == {None}
    assert {(line["account"], line["period"], line["currency"]) for line in lines} == {
        ("123412340534", "2023-11", "USD")
    }
    assert all(line["charge_end"] - line["charge_start"] <= timedelta(days=1) for line in lines if line not in taxes)
    assert "RESOURCES" in report.absent["line_item_resource_id"]
    assert "activate the cost allocation tags" in report.absent["resource_tags"]
    assert "bill_invoice_id" not in report.absent


def test_it_says_the_same_as_a_data_export_of_the_same_charges(tmp_path: Path) -> None:
    rows = [
        cur_line(1.25, resource_tags={"user_team": "ml"}, pricing_public_on_demand_cost=2.5, bill_invoice_id="4711"),
        cur_line(3.0, "SavingsPlanCoveredUsage", savings_plan_savings_plan_a_r_n=PLAN,
                 savings_plan_savings_plan_effective_cost=1.1),
        cur_line(-1.0, "EdpDiscount", resource_id=None),
    ]  # fmt: skip
    modern = lines_of(cur2.open_bill(write_csv(tmp_path / "modern.csv", rows)))
    for name in ("legacy.csv", "legacy.csv.gz"):
        legacy = lines_of(cur_legacy.open_bill(write_legacy(tmp_path / name, rows)))
        assert legacy[0]["tags"] == [("user:team", "ml")]
        own = {"tags": None, "tags_text": None}
        assert [line | own for line in legacy] == [line | own for line in modern]
    with pytest.raises(BillError, match="legacy cost and usage report; its format is cur_legacy"):
        cur2.open_bill(tmp_path / "legacy.csv")


def test_months_have_columns_of_their_own(tmp_path: Path) -> None:
    tagged = write_legacy(tmp_path / "a.csv", [cur_line(1.0, resource_tags={"user_Team": "ml", "user_mlcost_run": ""})])
    plain = write_legacy(tmp_path / "b.csv", [cur_line(1.0)])
    assert lines_of(cur_legacy.open_bill(tagged))[0]["tags"] == [("user:Team", "ml")]
    assert lines_of(cur_legacy.open_bill(plain))[0]["tags"] is None


def test_parquet_has_snake_case_names_and_tags_in_columns(tmp_path: Path) -> None:
    row = cur_line(0.1 + 0.2) | {"resource_tags_user_mlcost_run": "run-1", "resource_tags_user_team": None}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "legacy.parquet")
    report = cur_legacy.open_bill(tmp_path / "legacy.parquet")
    [line] = lines_of(report)
    assert (line["billed"], line["tags"]) == (Decimal("0.3"), [("user_mlcost_run", "run-1")])
    assert "resource_tags" not in report.absent


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lineItem/UnblendedCost", "line_item_unblended_cost"),
        ("identity/TimeInterval", "identity_time_interval"),
        ("savingsPlan/SavingsPlanARN", "savings_plan_savings_plan_a_r_n"),
        ("reservation/ReservationARN", "reservation_reservation_a_r_n"),
        ("pricing/publicOnDemandCost", "pricing_public_on_demand_cost"),
        ("product/regionCode", "product_region_code"),
        (
            "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
            "reservation_unused_amortized_upfront_fee_for_billing_period",
        ),
        ("line_item_unblended_cost", "line_item_unblended_cost"),
    ],
)
def test_names_are_those_of_cur2(name: str, expected: str) -> None:
    assert cur2_name(name) == expected


def test_a_bad_value_is_named_as_the_report_names_it(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "bill.csv", [cur_line(1.0), cur_line(float("nan"))])
    with pytest.raises(BillError, match=r"bill\.csv, line 3, column lineItem/UnblendedCost: .*'nan'"):
        lines_of(cur_legacy.open_bill(path))


def test_missing_and_doubled_columns_and_a_cut_file_are_refused(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "bill.csv", [cur_line(1.0), cur_line(2.0)])
    text = path.read_text()
    cost = slash_name("line_item_unblended_cost")
    path.write_text(text.replace(cost, "lineItem/Cost"))
    with pytest.raises(BillError, match="column line_item_unblended_cost is missing"):
        cur_legacy.open_bill(path)
    path.write_text(text.replace("bill/BillType", cost))
    with pytest.raises(BillError, match="columns named twice: lineItem/UnblendedCost"):
        cur_legacy.open_bill(path)
    path.write_text(text.replace("bill/BillType", "line_item_unblended_cost"))
    with pytest.raises(BillError, match="columns named twice"):
        cur_legacy.open_bill(path)
    path.write_text(text[: text.rindex("EU-")])
    with pytest.raises(BillError, match=r"bill\.csv.*cut off"):
        lines_of(cur_legacy.open_bill(path))


def test_the_published_report_is_taken_over_whole_and_its_period_stays_open(
    billing_data: Path, warehouse: Warehouse
) -> None:
    [delivery] = import_bill(warehouse, billing_data / ANONYMOUS, format="cur_legacy")
    assert (delivery.billed_total, delivery.billed_residue) == (Decimal("1.68230869740"), 0)
    assert (delivery.rows, delivery.state, delivery.format) == (1281, "open", "cur_legacy 1")
    again = import_bill(warehouse, billing_data / ANONYMOUS, format="cur_legacy")
    assert [(same.delivery_id, same.took_over) for same in again] == [(delivery.delivery_id, False)]
