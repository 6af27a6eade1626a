"""Reading Azure cost exports: headers by agreement and language, local dates, bare tags, two row sets."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.bills import azure_ea
from mlcost_pipeline.cost.deliveries import bills_in_force, import_bill
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.cur_reports import lines_of, total

ACCOUNT = "12345678"


def azure_row(cost: str, **more: Any) -> dict[str, Any]:
    """One row of an Enterprise Agreement export of September 2026."""
    row = {
        "SubscriptionId": "sub-1", "ResourceLocation": "westeurope", "Date": "9/2/2026", "ProductName": "VM NC6s v3",
        "MeterCategory": "Virtual Machines", "MeterId": "meter-1", "UnitOfMeasure": "1 Hour", "Quantity": "24",
        "CostInBillingCurrency": cost, "ResourceId": "/subscriptions/SUB-1/resourceGroups/Ml/vm1",
        "Tags": '"team": "ml","mlcost_model": "fraud"', "ReservationId": "", "ChargeType": "Usage",
        "PricingModel": "OnDemand", "BillingAccountId": ACCOUNT, "BillingCurrencyCode": "EUR",
        "BillingPeriodStartDate": "9/1/2026", "BillingPeriodEndDate": "9/30/2026",
    }  # fmt: skip
    return row | more


def write_export(path: Path, rows: Sequence[Mapping[str, Any]], *, rename: Mapping[str, str | None] = {}) -> Path:
    """A CSV of the rows; `rename` gives columns another name, or None takes them out."""
    names = {name: rename.get(name, name) for name in rows[0]}
    kept = {name: theirs for name, theirs in names.items() if theirs is not None}
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(kept.values())
        writer.writerows([[row[name] for name in kept] for row in rows])
    return path


def read(tmp_path: Path, *rows: dict[str, Any], **how: Any) -> list[dict[str, Any]]:
    return lines_of(azure_ea.open_bill(write_export(tmp_path / "bill.csv", rows, **how)))


def test_the_published_export_adds_up_to_its_published_sum(billing_data: Path) -> None:
    report = azure_ea.open_bill(billing_data / "azure_ea_anonymous.csv")
    lines = lines_of(report)
    assert len(lines) == 27
    assert total(lines) == total(lines, "effective") == Decimal("1.26136926505726")
    assert [line["pricing_category"] for line in lines].count("Dynamic") == 3
    assert {(line["currency"], line["account"], line["period"]) for line in lines} == {("CAD", ACCOUNT, "2023-09")}
    assert {line["charge_start"] for line in lines} == {datetime(2023, 9, 2, tzinfo=UTC)}
    assert lines[0]["tags"] == [("tagA", "valueA"), ("tagB", "valueB"), ("tagC", "valueC")]
    assert (report.version, report.residues, report.warnings) == ("without commitments", {}, [])


def test_a_row_of_an_enterprise_agreement(tmp_path: Path) -> None:
    [line] = read(tmp_path, azure_row("1.5"))
    expected = {
        "provider": "Microsoft", "account": ACCOUNT, "sub_account": "sub-1", "period": "2026-09",
        "region": "westeurope",
        "charge_start": datetime(2026, 9, 2, tzinfo=UTC), "charge_end": datetime(2026, 9, 3, tzinfo=UTC),
        "category": "Usage", "service": "Virtual Machines", "sku": "meter-1", "description": "VM NC6s v3",
        "resource_id": "/subscriptions/sub-1/resourcegroups/ml/vm1", "currency": "EUR", "billed": Decimal("1.5"),
        "effective": Decimal("1.5"), "list": None, "quantity": Decimal(24), "quantity_unit": "1 Hour",
        "invoice_id": None, "pricing_category": "Standard", "commitment_status": None,
        "tags": [("mlcost_model", "fraud"), ("team", "ml")],
    }  # fmt: skip
    assert {name: line[name] for name in expected} == expected


def test_26_decimals_are_rounded_and_the_rest_is_kept(tmp_path: Path) -> None:
    costs = ("0.12345678901234567890123456", "5.64902E-05")
    report = azure_ea.open_bill(write_export(tmp_path / "bill.csv", [azure_row(cost) for cost in costs]))
    assert [line["billed"] for line in lines_of(report)] == [Decimal("0.123456789012345679"), Decimal("0.0000564902")]
    lost = Decimal("-0.00000000000000000009876544")
    assert report.residues == {(ACCOUNT, "2026-09"): {"billed": lost, "effective": lost}}


CUSTOMER_AGREEMENT = {
    "SubscriptionId": "subscriptionId", "Date": "date", "CostInBillingCurrency": "costInBillingCurrency",
    "BillingCurrencyCode": "billingCurrency", "Tags": "tags", "BillingAccountId": "billingAccountId",
    "ChargeType": "chargeType", "ProductName": "invoiceId", "BillingPeriodStartDate": "billingPeriodStartDate",
}  # fmt: skip
GERMAN = {
    "SubscriptionId": "Abonnement-GUID (SubscriptionGuid)", "ResourceLocation": "Ressourcenstandort (ResourceLocation)",
    "Date": "UsageDateTime (UsageDateTime)", "MeterCategory": "Kategorie der Verbrauchseinheit (MeterCategory)",
    "CostInBillingCurrency": "PreTaxCost (PreTaxCost)", "ResourceId": "InstanceId (InstanceId)", "Tags": "Tags (Tags)",
    "UnitOfMeasure": "Maßeinheit (UnitOfMeasure)", "Quantity": "UsageQuantity (UsageQuantity)",
    "BillingCurrencyCode": "Currency", "ChargeType": None, "PricingModel": None, "BillingAccountId": None,
    "BillingPeriodStartDate": None, "BillingPeriodEndDate": None,
}  # fmt: skip


def test_headers_of_other_agreements_and_languages(tmp_path: Path) -> None:
    [line] = read(tmp_path, azure_row("1.5", ProductName="G-1"), rename=CUSTOMER_AGREEMENT)
    assert (line["account"], line["billed"], line["currency"], line["invoice_id"]) == (
        ACCOUNT,
        Decimal("1.5"),
        "EUR",
        "G-1",
    )
    report = azure_ea.open_bill(write_export(tmp_path / "de.csv", [azure_row("1.5", Date="2026-09-02")], rename=GERMAN))
    [line] = lines_of(report)
    assert (line["account"], line["category"], line["period"]) == ("sub-1", "Usage", "2026-09")
    assert (line["quantity"], line["service"]) == (Decimal(24), "Virtual Machines")
    assert {"type", "pricing", "period_start", "invoice_id"} <= report.absent.keys()


def test_a_byte_order_mark_and_gzip_change_nothing(tmp_path: Path) -> None:
    plain = write_export(tmp_path / "bill.csv", [azure_row("1.5")])
    expected = lines_of(azure_ea.open_bill(plain))
    marked = tmp_path / "marked.csv.gz"
    marked.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes()))
    assert lines_of(azure_ea.open_bill(marked)) == expected


@pytest.mark.parametrize(("text", "day"), [("9/30/2026", 30), ("09/02/2026", 2), ("2026-09-03", 3), ("4.9.2026", 4)])
def test_dates_are_month_first(tmp_path: Path, text: str, day: int) -> None:
    assert read(tmp_path, azure_row("1", Date=text))[0]["charge_start"] == datetime(2026, 9, day, tzinfo=UTC)


def test_dates_with_the_day_first_show_themselves_by_the_end_of_the_period(tmp_path: Path) -> None:
    row = azure_row("1", Date="2/9/2026", BillingPeriodStartDate="1/9/2026", BillingPeriodEndDate="30/9/2026")
    with pytest.raises(BillError, match=r"column BillingPeriodEndDate: .*\(month first\), found '30/9/2026'"):
        read(tmp_path, row)


def test_tags_with_braces_without_them_and_none(tmp_path: Path) -> None:
    rows = [azure_row("1", Tags=text) for text in ('{"a": "1"}', '"a": "1"', "", "{}")]
    assert [line["tags"] for line in read(tmp_path, *rows)][:3] == [[("a", "1")], [("a", "1")], None]


BOUGHT = {"ChargeType": "Purchase", "PricingModel": "Reservation", "ReservationId": "res-1"}
COVERED = {"PricingModel": "Reservation", "ReservationId": "res-1"}
UNUSED = {"ChargeType": "UnusedReservation", "PricingModel": "Reservation", "ReservationId": "res-1"}


def test_actual_and_amortized_costs_are_told_apart(tmp_path: Path) -> None:
    actual = azure_ea.open_bill(
        write_export(tmp_path / "a.csv", [azure_row("365", **BOUGHT), azure_row("0", **COVERED)])
    )
    lines = lines_of(actual)
    assert (actual.version, total(lines)) == ("ActualCost", 365)
    assert [(line["category"], line["commitment_status"]) for line in lines] == [("Purchase", None), ("Usage", "Used")]
    assert "an AmortizedCost export tells it" in actual.warnings[0]
    spread = azure_ea.open_bill(
        write_export(tmp_path / "b.csv", [azure_row("0.75", **COVERED), azure_row("0.25", **UNUSED)])
    )
    lines = lines_of(spread)
    assert (spread.version, total(lines, "effective")) == ("AmortizedCost", 1)
    assert [line["commitment_status"] for line in lines] == ["Used", "Unused"]
    assert {(line["pricing_category"], line["commitment_id"]) for line in lines} == {("Committed", "res-1")}
    assert "billed costs are not those of the invoice" in spread.warnings[0]
    plain = azure_ea.open_bill(write_export(tmp_path / "c.csv", [azure_row("1")]))
    azure_ea.refuse_parts([actual, plain])
    with pytest.raises(BillError, match=r"a\.csv is ActualCost and .*b\.csv is AmortizedCost, of one export"):
        azure_ea.refuse_parts([plain, actual, spread])


def test_both_row_sets_in_one_file_are_refused(tmp_path: Path) -> None:
    for spread in (azure_row("1", **UNUSED), azure_row("1", **COVERED)):
        with pytest.raises(BillError, match=r"bill\.csv: mixes ActualCost and AmortizedCost"):
            read(tmp_path, azure_row("365", **BOUGHT), spread)


def test_charge_types(tmp_path: Path) -> None:
    kinds = ["usage", "Refund", "RoundingAdjustment", "Tax", "Zorble"]
    lines = read(tmp_path, *(azure_row("1", ChargeType=kind) for kind in kinds))
    assert [line["category"] for line in lines] == ["Usage", "Credit", "Adjustment", "Tax", "Zorble"]
    assert [line["pricing_category"] for line in lines] == ["Standard", None, None, None, None]


@pytest.mark.parametrize(
    ("fault", "column", "text"),
    [
        ({"CostInBillingCurrency": "NaN"}, "CostInBillingCurrency", "'NaN'"),
        ({"CostInBillingCurrency": "1,5"}, "CostInBillingCurrency", "plain decimal number"),
        ({"CostInBillingCurrency": ""}, "CostInBillingCurrency", "is empty"),
        ({"Date": "31/12/2026"}, "Date", "month first"),
        ({"Date": ""}, "Date", "is empty"),
        ({"Tags": '"a": '}, "Tags", "JSON object"),
        ({"BillingCurrencyCode": ""}, "BillingCurrencyCode", "is empty"),
        ({"BillingAccountId": "", "SubscriptionId": ""}, "BillingAccountId", "is empty"),
    ],
)
def test_a_bad_value_is_named_by_file_line_and_column(
    tmp_path: Path, fault: dict[str, str], column: str, text: str
) -> None:
    with pytest.raises(BillError, match=rf"bill\.csv, line 3, column {column}.*{text}"):
        read(tmp_path, azure_row("1"), azure_row("2", **fault))


def test_missing_doubled_and_no_rows_are_refused(tmp_path: Path) -> None:
    for rename in ({"CostInBillingCurrency": "Kosten"}, {"Date": "Tag"}, {"BillingCurrencyCode": None}):
        with pytest.raises(BillError, match=r"line 1: column .* is missing, so this is no Azure cost export"):
            read(tmp_path, azure_row("1"), rename=rename)
    with pytest.raises(BillError, match=r"columns named twice: Datum \(Date\), Date"):
        read(tmp_path, {"Datum (Date)": "9/2/2026", **azure_row("1")})
    path = write_export(tmp_path / "bill.csv", [azure_row("1")])
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(BillError, match="holds no charge"):
        lines_of(azure_ea.open_bill(path))


def test_the_published_export_is_taken_over_and_a_mixed_folder_is_not(
    billing_data: Path, warehouse: Warehouse, tmp_path: Path
) -> None:
    [delivery] = import_bill(warehouse, billing_data / "azure_ea_anonymous.csv", format="azure_ea")
    assert (delivery.billed_total, delivery.billed_residue) == (Decimal("1.26136926505726"), 0)
    assert (delivery.currency, delivery.rows, delivery.state) == ("CAD", 27, "open")
    assert delivery.format == "azure_ea without commitments"
    (tmp_path / "mixed").mkdir()
    write_export(tmp_path / "mixed" / "actual.csv", [azure_row("365", **BOUGHT)])
    write_export(tmp_path / "mixed" / "spread.csv", [azure_row("1", **UNUSED)])
    with pytest.raises(BillError, match="of one export; export ActualCost and AmortizedCost to folders of their own"):
        import_bill(warehouse, tmp_path / "mixed", format="azure_ea")
    assert bills_in_force(warehouse) == [(ACCOUNT, "2023-09")]
