"""Reading CUR 2.0: what a line is, what it cost effectively, and what must never be added up."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.bills import cur2
from mlcost_pipeline.cost.deliveries import import_bill, scope_of
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.cur_reports import NOON, PAYER, PLAN, USER, cur_line, lines_of, total, write_csv, write_parquet

ARN = "savings_plan_savings_plan_a_r_n"
COVERED = {ARN: PLAN, "savings_plan_savings_plan_effective_cost": 1.1}
RESERVATION = "arn:aws:ec2:eu-west-1:001122334455:reserved-instances/ri-1"
SPOT = {"usage_type": "EU-SpotUsage:p3.2xlarge"}


def read(tmp_path: Path, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return lines_of(cur2.open_bill(write_parquet(tmp_path / "bill.snappy.parquet", rows)))


def warnings(tmp_path: Path, *rows: dict[str, Any]) -> str:
    report = cur2.open_bill(write_parquet(tmp_path / "bill.parquet", rows))
    lines_of(report)
    return "\n".join(report.warnings)


def test_a_line_of_a_data_export(tmp_path: Path) -> None:
    tags = {"user_mlcost_run": "run-1", "aws_created_by": "me"}
    [line] = read(
        tmp_path,
        cur_line(
            3.06, resource_tags=tags, pricing_public_on_demand_cost=3.5, pricing_unit="Hrs", product_sku="SKU1",
            product_region_code="eu-west-1", bill_invoice_id="4711", line_item_description="p3", **SPOT,
        ),
    )  # fmt: skip
    expected = {
        "provider": "AWS", "account": PAYER, "sub_account": USER, "period": "2026-03", "charge_start": NOON,
        "charge_end": NOON + timedelta(hours=1), "category": "Usage", "service": "AmazonEC2", "sku": "SKU1",
        "region": "eu-west-1", "resource_id": "i-0abc", "currency": "USD", "billed": Decimal("3.06"),
        "effective": Decimal("3.06"), "list": Decimal("3.5"), "quantity": Decimal(1), "quantity_unit": "Hrs",
        "invoice_id": "4711", "allocation": "origin", "pricing_category": "Dynamic", "commitment_status": None,
        "tags": sorted(tags.items()),
    }  # fmt: skip
    assert {name: line[name] for name in expected} == expected


def test_doubles_are_rounded_half_even_to_12_places_and_the_rest_is_kept(tmp_path: Path) -> None:
    costs = [0.1 + 0.2, 1e-13, -0.7]
    report = cur2.open_bill(write_parquet(tmp_path / "bill.parquet", [cur_line(cost) for cost in costs]))
    lines = lines_of(report)
    assert [line["billed"] for line in lines] == [Decimal("0.3"), Decimal(0), Decimal("-0.7")]
    with localcontext(prec=100):
        lost = sum(Decimal(cost) for cost in costs) - total(lines)
    assert report.residues == {(PAYER, "2026-03"): {"billed": lost, "effective": lost}}


@pytest.mark.parametrize(
    ("kind", "more", "category", "status", "effective"),
    [
        ("Usage", {}, "Usage", None, "5"),
        ("SavingsPlanCoveredUsage", COVERED, "Usage", "Used", "1.1"),
        ("SavingsPlanNegation", {ARN: PLAN}, "Adjustment", "Negation", "0"),
        ("SavingsPlanUpfrontFee", {ARN: PLAN}, "Purchase", "Fee", "0"),
        (
            "SavingsPlanRecurringFee",
            {ARN: PLAN, "savings_plan_total_commitment_to_date": 5.0, "savings_plan_used_commitment": 3.5},
            "Purchase", "Fee", "1.5",
        ),
        ("DiscountedUsage", {"reservation_effective_cost": 0.75}, "Usage", "Used", "0.75"),
        (
            "RIFee",
            {
                "reservation_unused_amortized_upfront_fee_for_billing_period": 0.25,
                "reservation_unused_recurring_fee": 0.5,
            },
            "Purchase", "Fee", "0.75",
        ),
        ("RIFee", {"reservation_unused_recurring_fee": 0.5}, "Purchase", "Fee", "0.5"),
        ("Fee", {"reservation_reservation_a_r_n": RESERVATION}, "Purchase", "Fee", "0"),
        ("Fee", {}, "Purchase", None, "5"),
        ("Tax", {}, "Tax", None, "5"),
        ("Credit", {}, "Credit", None, "5"),
        ("EdpDiscount", {}, "Adjustment", None, "5"),
        ("Zorble", {}, "Zorble", None, "5"),
    ],
)  # fmt: skip
def test_effective_cost_is_by_line_type_and_billed_is_unblended(
    tmp_path: Path, kind: str, more: dict[str, Any], category: str, status: str | None, effective: str
) -> None:
    [line] = read(tmp_path, cur_line(5.0, kind, **more))
    assert (line["category"], line["commitment_status"]) == (category, status)
    assert (line["billed"], line["effective"]) == (Decimal(5), Decimal(effective))
    assert line["commitment_id"] == more.get(ARN, more.get("reservation_reservation_a_r_n"))


def test_an_hour_under_a_savings_plan_closes_in_both_measures(tmp_path: Path) -> None:
    """opencost#3839: on-demand 3.06 is taken back, the plan bills 1.10, and the run cost 1.10."""
    fee = {ARN: PLAN, "savings_plan_total_commitment_to_date": 1.1, "savings_plan_used_commitment": 1.1}
    lines = read(
        tmp_path,
        cur_line(3.06, "SavingsPlanCoveredUsage", **COVERED),
        cur_line(-3.06, "SavingsPlanNegation", **{ARN: PLAN}),
        cur_line(1.1, "SavingsPlanRecurringFee", resource_id=PLAN, **fee),
    )
    assert [line["effective"] for line in lines] == [Decimal("1.1"), 0, 0]
    assert (total(lines), total(lines, "effective")) == (Decimal("1.1"), Decimal("1.1"))
    assert {line["commitment_id"] for line in lines} == {PLAN}
    assert lines[0]["pricing_category"] == "Committed"


def test_negations_do_not_double_the_hours(tmp_path: Path) -> None:
    """koku PR#5252: 109 covered hours and 109 negated ones are 109 hours of use."""
    rows = [cur_line(1.0, "SavingsPlanCoveredUsage", hours=109, **COVERED)]
    rows.append(cur_line(-1.0, "SavingsPlanNegation", hours=109))
    assert sum(line["quantity"] or 0 for line in read(tmp_path, *rows)) == 109


def test_discounts_count_once_whether_or_not_there_are_net_columns(tmp_path: Path) -> None:
    """opencost#954: usage 100 and a discount of 20 are 80, not 60."""
    plain = [cur_line(100.0), cur_line(-20.0, "EdpDiscount", resource_id=None)]
    net = [{**row, "line_item_net_unblended_cost": cost} for row, cost in zip(plain, (80.0, 0.0), strict=True)]
    for rows in (plain, net):
        assert total(read(tmp_path, *rows)) == 80
        assert warnings(tmp_path, *rows) == ""
    assert "add up to 100.00, net costs to 80.00" in warnings(tmp_path, net[0])


def test_refunds_of_plans_are_kept_and_cancelled_plans_cost_nothing(tmp_path: Path) -> None:
    """cloud-intelligence-dashboards#1497, #1087 and PR#1515."""
    product = {"product_code": "ComputeSavingsPlans", "resource_id": None}
    told = "Refund for one-time fee for Savings Plan ID: sp-1"
    lines = read(
        tmp_path,
        cur_line(-8869.54, "Refund", line_item_line_item_description="Enterprise discount", **product),
        cur_line(876.0, "SavingsPlanUpfrontFee", **{ARN: PLAN}, **product),
        cur_line(-876.0, "Refund", **{ARN: PLAN}, **product),
        cur_line(-876.0, "Refund", line_item_line_item_description=told, **product),
    )
    assert [round(line["effective"], 2) for line in lines] == [Decimal("-8869.54"), 0, 0, 0]
    assert [round(line["billed"], 2) for line in lines] == [Decimal("-8869.54"), 876, -876, -876]
    assert [line["commitment_status"] for line in lines] == [None, "Fee", "Fee", "Fee"]


def test_blended_costs_are_never_read(tmp_path: Path) -> None:
    """cloud-intelligence-dashboards#860: blended 3,426 against unblended 5,844."""
    [line] = read(tmp_path, cur_line(5844.0, blended_cost=3426.0))
    assert (line["billed"], line["effective"]) == (5844, 5844)
    assert line["invoice_id"] is None  # blank in the report: not final


def test_a_line_type_nobody_knows_is_kept_and_told(tmp_path: Path) -> None:
    """opencost#4022: a list of known types lost a ``Fee``."""
    rows = [cur_line(1.0), cur_line(2.5, "Zorble"), cur_line(3.0, "Zorble"), cur_line(4.0, "Fee")]
    assert total(read(tmp_path, *rows)) == Decimal("10.5")
    assert "line type Zorble is not known: 2 lines, 5.5 in all" in warnings(tmp_path, *rows)


def test_split_costs_are_never_added_to_the_lines_that_they_split(tmp_path: Path) -> None:
    split = {
        "split_line_item_parent_resource_id": "i-0abc", "split_line_item_split_cost": 1.2,
        "split_line_item_unused_cost": 0.3, "resource_id": "arn:aws:eks:eu-west-1:001122334455:pod/ml/train",
    }  # fmt: skip
    rows = [cur_line(3.0), cur_line(0.0, **split), cur_line(0.0, **split)]
    assert [(line["resource_id"], line["billed"]) for line in read(tmp_path, *rows)] == [("i-0abc", 3)]
    assert "2 records of split cost allocation were left out" in warnings(tmp_path, *rows)
    rows.append(cur_line(1.2, **split))
    assert total(read(tmp_path, *rows)) == Decimal("4.2")
    assert "1 records of split cost allocation have a cost of their own, 1.20 in all" in warnings(tmp_path, *rows)


def test_spot_is_told_by_usage_type_or_purchase_option(tmp_path: Path) -> None:
    rows = [cur_line(1.0), cur_line(1.0, **SPOT), cur_line(1.0, pricing_purchase_option="Spot"), cur_line(1.0, "Tax")]
    told = [line["pricing_category"] for line in read(tmp_path, *rows)]
    assert told == ["Standard", "Dynamic", "Dynamic", None]


def test_job_arns_stay_resource_ids_and_instance_arns_become_ids(tmp_path: Path) -> None:
    job = "arn:aws:sagemaker:eu-west-1:998877665544:training-job/Fraud-2026-03"
    instance = "arn:aws:ec2:eu-west-1:998877665544:instance/i-0abc"
    lines = read(tmp_path, cur_line(1.0, resource_id=job), cur_line(1.0, resource_id=instance))
    assert [line["resource_id"] for line in lines] == [job, "i-0abc"]
    assert lines[1]["resource_id_raw"] == instance


def test_csv_with_maps_as_json_says_the_same_as_parquet(tmp_path: Path) -> None:
    fee = {"savings_plan_total_commitment_to_date": 5.0, "savings_plan_used_commitment": 3.5}
    rows = [
        cur_line(1.25, resource_tags={"user_team": "ml", "user_mlcost_model": "fraud"}, product={"vcpu": "8"}),
        cur_line(3.0, "SavingsPlanCoveredUsage", **COVERED),
        cur_line(5.0, "SavingsPlanRecurringFee", resource_id=None, **{ARN: PLAN}, **fee),
    ]
    typed = read(tmp_path, *rows)
    for name in ("bill.csv", "bill.csv.gz"):
        texts = lines_of(cur2.open_bill(write_csv(tmp_path / name, rows)))
        assert [line | {"line": 0} for line in texts] == [line | {"line": 0} for line in typed]


def test_an_export_without_resources_is_attributed_by_tag_and_says_how_to_have_them(
    tmp_path: Path, warehouse: Warehouse
) -> None:
    """opencost-helm-chart#317: the column does not exist, and the whole bill was refused for it."""
    rows = [cur_line(1.5, resource_tags={"user_mlcost_model": "fraud"}), cur_line(0.1 + 0.2)]
    path = write_parquet(tmp_path / "bill.parquet", rows, without=["line_item_resource_id"])
    [delivery] = import_bill(warehouse, path, format="cur2")
    assert "INCLUDE_RESOURCES" in delivery.absent["line_item_resource_id"]
    assert "resource_tags" not in delivery.absent
    version = (scope_of(PAYER, "2026-03"), delivery.delivery_id)
    sql = "SELECT tag_model, resource_id, billed FROM billing_slots ORDER BY billed"
    slots = warehouse.query(sql, tables=["billing_slots"], versions={"billing_slots": [version]}).to_pylist()
    assert [tuple(slot.values()) for slot in slots] == [(None, None, Decimal("0.3")), ("fraud", None, Decimal("1.5"))]
    assert delivery.billed_total == Decimal("1.8") + delivery.billed_residue


def test_times_are_those_of_the_interval_where_the_export_has_no_others(tmp_path: Path) -> None:
    without = ["line_item_usage_start_date", "line_item_usage_end_date"]
    [line] = lines_of(cur2.open_bill(write_parquet(tmp_path / "bill.parquet", [cur_line(1.0)], without=without)))
    assert (line["charge_start"], line["charge_end"]) == (NOON, NOON + timedelta(hours=1))
    broken = cur2.open_bill(write_parquet(tmp_path / "b.parquet", [cur_line(1.0, identity_time_interval="noon")],
                                          without=without))  # fmt: skip
    with pytest.raises(BillError, match="column identity_time_interval: expected two times with / between, found noon"):
        lines_of(broken)


def test_an_account_that_was_made_a_number_has_its_zeros_again(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "bill.parquet", [cur_line(1.0)])
    table = pq.read_table(path)
    place = table.schema.get_field_index("bill_payer_account_id")
    pq.write_table(table.set_column(place, "bill_payer_account_id", pa.array([int(PAYER)])), path)
    assert lines_of(cur2.open_bill(path))[0]["account"] == PAYER


@pytest.mark.parametrize(
    ("fault", "column", "text"),
    [
        ({"unblended_cost": float("nan")}, "line_item_unblended_cost", "expected a number, found nan"),
        ({"unblended_cost": None}, "line_item_unblended_cost", "is empty"),
        ({"unblended_cost": 1e300}, "line_item_unblended_cost", "20 digits"),
        ({"usage_end_date": None}, "line_item_usage_end_date", "is empty"),
        ({"usage_end_date": datetime(2026, 3, 9)}, "line_item_usage_end_date", "before the start"),
        ({"bill_payer_account_id": " "}, "bill_payer_account_id", "is empty"),
        ({"line_item_type": None}, "line_item_line_item_type", "is empty"),
        ({"line_item_type": "SavingsPlanCoveredUsage"}, "savings_plan_savings_plan_effective_cost", "needs it"),
        ({"line_item_type": "RIFee"}, "reservation_unused_amortized.*, reservation_unused_recurring_fee", "needs it"),
        ({"line_item_type": "DiscountedUsage", "reservation_effective_cost": float("inf")}, "reservation_eff", "inf"),
    ],
)
def test_a_bad_value_is_named_by_file_line_and_column(
    tmp_path: Path, fault: dict[str, Any], column: str, text: str
) -> None:
    bill = write_parquet(tmp_path / "bill.parquet", [cur_line(1.0), cur_line(2.0, **fault)])
    with pytest.raises(BillError, match=rf"bill\.parquet, line 3, column {column}.*{text}"):
        lines_of(cur2.open_bill(bill))


def test_bad_texts_in_csv_are_named(tmp_path: Path) -> None:
    for fault in ({"usage_start_date": "10/03/2026"}, {"unblended_cost": "1,5"}, {"resource_tags": "{user"}):
        bill = write_csv(tmp_path / "bill.csv", [cur_line(1.0), cur_line(1.0, **fault)])
        with pytest.raises(BillError, match=r"bill\.csv, line 3, column .*; nothing was taken over"):
            lines_of(cur2.open_bill(bill))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for column in ("line_item_unblended_cost", "bill_payer_account_id", "line_item_currency_code"):
        with pytest.raises(BillError, match=f"column {column} is missing"):
            cur2.open_bill(write_parquet(tmp_path / "bill.parquet", [cur_line(1.0)], without=[column]))


def test_damaged_doubled_and_empty_files_are_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "bill.parquet", [cur_line(1.0)])
    whole = pq.read_table(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BillError, match=r"bill\.parquet"):
        lines_of(cur2.open_bill(path))
    pq.write_table(whole.append_column("line_item_unblended_cost", whole["line_item_blended_cost"]), path)
    with pytest.raises(BillError, match="columns named twice: line_item_unblended_cost"):
        cur2.open_bill(path)
    with pytest.raises(BillError, match="holds no charge"):
        lines_of(cur2.open_bill(write_parquet(path, [])))
    strange = whole.set_column(
        whole.schema.get_field_index("line_item_unblended_cost"), "line_item_unblended_cost",
        pa.array([[1.0]], pa.list_(pa.float64())),
    )  # fmt: skip
    pq.write_table(strange, path)
    with pytest.raises(BillError, match=r"bill\.parquet"):
        lines_of(cur2.open_bill(path))
