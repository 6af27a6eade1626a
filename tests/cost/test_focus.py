"""Reading FOCUS: exact, tolerant of what the standard leaves open, and clear about everything else."""

from __future__ import annotations

import csv
import gzip
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.bills.contents import reader
from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import TEXT
from tests.cost.billing import line, whole, write_bill


@pytest.mark.parametrize(
    ("file", "rows", "billed", "effective"),
    [
        ("focus_1_0_sample_1000.csv", 1000, "20.52022672899", "14.97651418586"),
        (
            "focus_synthetic_aws_1_2_cost_and_usage_rows100_seed42.csv",
            100,
            "1157.48882377213324",
            "403.45921877213324",
        ),
        (
            "focus_synthetic_aws_1_3_cost_and_usage_rows100_seed42.csv",
            100,
            "1242.11561911486050",
            "215.67890111486050",
        ),
    ],
)
def test_published_bills_add_up_to_their_published_sums(
    billing_data: Path, file: str, rows: int, billed: str, effective: str
) -> None:
    contents = whole(billing_data / file)
    assert contents.lines.num_rows == rows
    assert money_sum(contents.lines["billed"].to_pylist()) == Decimal(billed)
    assert money_sum(contents.lines["effective"].to_pylist()) == Decimal(effective)
    assert contents.residues == {}


def test_the_real_sample_keeps_its_known_facts(billing_data: Path) -> None:
    lines = whole(billing_data / "focus_1_0_sample_1000.csv").lines.to_pylist()
    hours = [(row["charge_end"] - row["charge_start"]).total_seconds() / 3600 for row in lines]
    assert (hours.count(1), hours.count(24)) == (949, 51)
    assert sum(row["resource_id"] is None for row in lines) == 75
    assert sum(row["tags"] is None for row in lines) == 289
    assert sum(row["billed"] < 0 for row in lines) == 13
    categories = [row["category"] for row in lines]
    assert (categories.count("Credit"), categories.count("Adjustment")) == (1, 2)
    assert sum(row["period"] == "2024-10" for row in lines) == 1
    assert [row["commitment_status"] for row in lines].count("Used") == 4
    assert max(-row[name].normalize().as_tuple().exponent for row in lines for name in ("billed", "effective")) == 11


@pytest.mark.parametrize(
    ("version", "purchases", "taxes", "methods"),
    [("1_2", 20, 1, {}), ("1_3", 17, 2, {"split-even": 12, "split-weighted": 9, "split-proportional": 6})],
)
def test_the_synthetic_bills_keep_their_known_facts(
    billing_data: Path, version: str, purchases: int, taxes: int, methods: dict[str, int]
) -> None:
    file = billing_data / f"focus_synthetic_aws_{version}_cost_and_usage_rows100_seed42.csv"
    read = whole(file)
    kinds, parts = Counter(read.lines["category"].to_pylist()), Counter(read.lines["allocation"].to_pylist())
    assert (read.version, kinds["Purchase"], kinds["Tax"]) == (version.replace("_", "."), purchases, taxes)
    with file.open(newline="", encoding="utf-8") as stream:
        told = Counter(row["AllocatedMethodId"] for row in csv.DictReader(stream) if row.get("AllocatedMethodId"))
    assert told == methods and parts["allocated"] == sum(methods.values())


def test_exports_that_are_not_focus_are_refused_by_name(billing_data: Path) -> None:
    refused = [
        "aws_cur_legacy_anonymous.csv",
        "azure_ea_anonymous.csv",
        *(f"focus_spec_examples/{file.name}" for file in (billing_data / "focus_spec_examples").glob("*.csv")),
    ]
    assert len(refused) == 24
    for name in refused:  # a missing mandatory column, or a date in a local notation that could mean two days
        with pytest.raises(BillError, match=r"column \w+"):
            whole(billing_data / name)


def test_a_format_that_is_not_read_is_refused() -> None:
    with pytest.raises(BillError, match="'cur' are not read yet; formats that are: azure_ea, cur2, cur_legacy, focus"):
        reader("cur")


@pytest.mark.parametrize(
    ("text", "stored", "lost"),
    [
        ("1e-3", "0.001", "0"),
        ("-0.0000000000000000005", "0", "-0.0000000000000000005"),  # half to even: 0
        ("0.0000000000000000015", "0.000000000000000002", "-0.0000000000000000005"),
        ("0.12345678901234567890123456", "0.123456789012345679", "-0.00000000000000000009876544"),
        ("12345678901234567890.5", "12345678901234567890.5", "0"),
    ],
)
def test_decimals_are_rounded_half_even_to_18_places_and_the_rest_is_kept(
    tmp_path: Path, text: str, stored: str, lost: str
) -> None:
    contents = whole(write_bill(tmp_path / "bill.csv", [line("1"), line(text, effective="2")]))
    assert contents.lines["billed"].to_pylist()[1] == Decimal(stored)
    assert contents.residues.get("billed", Decimal(0)) == Decimal(lost)


@pytest.mark.parametrize("text", ["1e30", "-1E30", "9e29", "1e38", "9" * 23, "123456789012345678901e3"])
def test_an_amount_that_no_ledger_can_hold_is_refused_and_not_wrapped(tmp_path: Path, text: str) -> None:
    with pytest.raises(BillError, match=r"bill\.csv, line 3, column BilledCost"):
        whole(write_bill(tmp_path / "bill.csv", [line("1"), line(text, effective="2")]))


@pytest.mark.parametrize("text", ["12345678901234567890.1234567890123456789", "1e-19", "1e19", "00012.50"])
def test_wide_and_fine_amounts_are_what_they_say(tmp_path: Path, text: str) -> None:
    contents = whole(write_bill(tmp_path / "bill.csv", [line("1"), line(text, effective="2")]))
    lost = contents.residues.get("billed", Decimal(0))
    assert EXACT.add(contents.lines["billed"].to_pylist()[1], lost) == Decimal(text)


def test_binary_floats_are_rounded_to_12_places_first(tmp_path: Path) -> None:
    rows = [line("0") | {"BilledCost": 0.1 + 0.2, "EffectiveCost": 1e-13, "ListCost": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bill.parquet")
    contents = whole(tmp_path / "bill.parquet")
    assert contents.lines["billed"].to_pylist() == [Decimal("0.3")]
    assert contents.lines["effective"].to_pylist() == [Decimal(0)]
    assert contents.residues["effective"] == Decimal.from_float(1e-13)


def test_parquet_with_its_own_types_says_the_same_as_csv(tmp_path: Path) -> None:
    rows = [line("1.25", tags={"b": "2", "a": "1"}), line("-0.5", resource=None)]
    typed = pa.Table.from_pylist(rows)
    for name in ("BilledCost", "EffectiveCost", "ListCost"):
        cast = pa.array([Decimal(row[name]) for row in rows], pa.decimal128(20, 6))
        typed = typed.set_column(typed.schema.get_field_index(name), name, cast)
    for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart"):
        times = [datetime.fromisoformat(row[name]).replace(tzinfo=None) for row in rows]
        typed = typed.set_column(typed.schema.get_field_index(name), name, pa.array(times, pa.timestamp("ns")))
    tags = pa.array([[("b", "2"), ("a", "1")], None], pa.map_(pa.string(), pa.string()))
    typed = typed.set_column(typed.schema.get_field_index("Tags"), "Tags", tags)
    pq.write_table(typed, tmp_path / "bill.parquet")
    from_csv = whole(write_bill(tmp_path / "bill.csv", rows))
    assert whole(tmp_path / "bill.parquet").lines.to_pylist() == from_csv.lines.to_pylist()


def test_times_with_a_foreign_zone_or_none_are_utc(tmp_path: Path) -> None:
    rows = [
        line("1", ChargePeriodStart="2026-03-10 12:00:00", ChargePeriodEnd="2026-03-10T15:00:00+02:00"),
        line("1", BillingPeriodStart="2026-03-01T00:00:00+09:00"),
        line("1", BillingPeriodStart="2026-03-01T00:00:00-08:00"),
    ]
    lines = whole(write_bill(tmp_path / "bill.csv", rows)).lines.to_pylist()
    assert lines[0]["charge_start"] == datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert lines[0]["charge_end"] == datetime(2026, 3, 10, 13, tzinfo=UTC)
    assert [row["period"] for row in lines] == ["2026-03"] * 3


def test_tags_without_a_value_and_the_text_null(tmp_path: Path) -> None:
    rows = [line("1", tags={"z": True, "a": "x", "gone": None, "n": 7}), line("1", Tags="NULL", ResourceId="NULL")]
    lines = whole(write_bill(tmp_path / "bill.csv", rows)).lines.to_pylist()
    assert lines[0]["tags"] == [("a", "x"), ("n", "7"), ("z", "true")]
    assert (lines[1]["tags"], lines[1]["resource_id"]) == (None, None)


def test_ids_keep_their_zeros_and_unknown_categories_are_kept(tmp_path: Path) -> None:
    rows = [line("1", BillingAccountId="000123", ResourceId="00042", category="Zorble")]
    [row] = whole(write_bill(tmp_path / "bill.csv", rows)).lines.to_pylist()
    assert (row["account"], row["resource_id"], row["category"]) == ("000123", "00042", "Zorble")


def test_absent_optional_columns_are_named_with_what_they_cost(tmp_path: Path) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1")], without=["ResourceId", "Tags", "ListCost", "InvoiceId"])
    contents = whole(bill)
    assert {"ResourceId", "Tags", "ListCost", "InvoiceId"} <= contents.absent.keys()
    assert "export the bill with resource ids" in contents.absent["ResourceId"]
    assert contents.lines["list"].to_pylist() == [None]


def _cut_a_row(data: bytes) -> bytes:
    return data[: data.rindex(b"Compute")]


def _cut_a_quote(data: bytes) -> bytes:
    return data[: data.rindex(b'""Q1')] + b"\n"


@pytest.mark.parametrize("cut", [_cut_a_row, _cut_a_quote])
def test_a_file_cut_off_in_the_middle_is_refused(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1"), line("2", tags={"team": "Q1"})])
    bill.write_bytes(cut(bill.read_bytes()))
    with pytest.raises(BillError, match=r"bill\.csv.*cut off"):
        whole(bill)


def test_a_gzip_stream_or_parquet_cut_off_is_refused(tmp_path: Path) -> None:
    plain = write_bill(tmp_path / "bill.csv", [line(str(i)) for i in range(500)])
    packed = tmp_path / "bill.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert whole(packed).lines.equals(whole(plain).lines)
    for size in (len(packed.read_bytes()) - 5, 300):
        packed.write_bytes(gzip.compress(plain.read_bytes())[:size])
        with pytest.raises(BillError, match=r"bill\.csv\.gz"):
            whole(packed)
    pq.write_table(pa.Table.from_pylist([line("1")]), tmp_path / "bill.parquet")
    (tmp_path / "bill.parquet").write_bytes((tmp_path / "bill.parquet").read_bytes()[:-100])
    with pytest.raises(BillError, match=r"bill\.parquet"):
        whole(tmp_path / "bill.parquet")


@pytest.mark.parametrize(
    ("fault", "column", "text"),
    [
        ({"BilledCost": "1,200.00"}, "BilledCost", "plain decimal number, found '1,200.00'"),
        ({"BilledCost": "NaN"}, "BilledCost", "'NaN'"),
        ({"BilledCost": "1_000"}, "BilledCost", "'1_000'"),
        ({"EffectiveCost": ""}, "EffectiveCost", "is empty"),
        ({"BilledCost": "1e21"}, "BilledCost", "20 digits"),
        ({"ChargePeriodStart": "5/1/25"}, "ChargePeriodStart", "found '5/1/25'"),
        ({"ChargePeriodEnd": "2026-03-09T00:00:00Z"}, "ChargePeriodEnd", "before the start"),
        ({"Tags": "{broken"}, "Tags", "JSON object"),
        ({"Tags": "[1]"}, "Tags", "JSON object"),
        ({"BillingAccountId": " "}, "BillingAccountId", "is empty"),
    ],
)
def test_a_bad_value_is_named_by_file_line_and_column(
    tmp_path: Path, fault: dict[str, str], column: str, text: str
) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1"), {**line("2"), **fault}])
    with pytest.raises(BillError, match=rf"bill\.csv, line 3, column {column}.*{text}"):
        whole(bill)


def test_a_missing_column_and_an_empty_bill_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BillError, match="column EffectiveCost is missing"):
        whole(write_bill(tmp_path / "bill.csv", [line("1")], without=["EffectiveCost"]))
    with pytest.raises(BillError, match="holds no charge"):
        whole(write_bill(tmp_path / "empty.csv", []))
    (tmp_path / "nothing.csv").write_bytes(b"")
    with pytest.raises(BillError, match="is empty"):
        whole(tmp_path / "nothing.csv")


@pytest.mark.parametrize(
    ("added", "dropped", "version"),
    [
        ([], [], "1.2"), ([], ["InvoiceId"], "1.0"), (["CapacityReservationId"], ["InvoiceId"], "1.1"),
        (["ServiceProviderName"], [], "1.3"), (["ServiceProviderName"], ["ProviderName"], "1.4"),
        (["ServiceProviderName", "InvoiceDetailId"], [], "1.4"),
    ],
)  # fmt: skip
def test_versions_are_told_by_what_each_added_and_dropped(
    tmp_path: Path, added: list[str], dropped: list[str], version: str
) -> None:
    row = line("1") | dict.fromkeys(added, "Cloudy")
    found = whole(write_bill(tmp_path / "bill.csv", [row], without=dropped))
    assert (found.version, found.lines["provider"].to_pylist()) == (version, ["Cloudy"])


def test_many_doubles_at_once_are_what_each_is_alone(tmp_path: Path) -> None:
    chance = random.Random(5)
    values = [chance.choice((1, -1)) * chance.random() * 10.0 ** chance.randint(-14, 4) for _ in range(3000)]
    values += [round(value, 7) for value in values] + [0.0, -0.0, 5e-324, 3000.1, 8796.0930222080005, 1e5 / 3]
    ties = [2.5e-12, 0.5**13, 1.5**20, 12345678.000000000001, 1e19]
    for name, column in {"quick": values, "ties": [*values, *ties]}.items():
        rows = {**line("0"), "Tags": None}
        table = pa.Table.from_pylist([rows] * len(column))
        for measure in ("BilledCost", "EffectiveCost"):
            number = table.schema.get_field_index(measure)
            table = table.set_column(number, measure, pa.array(column, pa.float64()))
        pq.write_table(table, tmp_path / f"{name}.parquet")
        found = whole(tmp_path / f"{name}.parquet")
        expected = [Decimal(value).quantize(Decimal("1e-12"), ROUND_HALF_EVEN, Context(prec=400)) for value in column]
        assert found.lines["billed"].to_pylist() == expected
        exact = sum(
            (Fraction(value) - Fraction(kept) for value, kept in zip(column, expected, strict=True)), Fraction(0)
        )
        assert Fraction(found.residues["billed"]) == Fraction(found.residues["effective"]) == exact


def test_tags_of_parquet_maps_and_structs_are_those_of_json(tmp_path: Path) -> None:
    given: list[dict[str, str | None] | None] = [
        {"b": "2", "a": "1"},
        None,
        {"a": "1"},
        {"b": "2", "a": "1"},
        {"a": None},
    ]
    from_json = whole(write_bill(tmp_path / "bill.csv", [line("1", tags=tags) for tags in given])).lines
    for name, kind in {"map": pa.map_(TEXT, TEXT), "struct": pa.struct([("a", TEXT), ("b", TEXT)])}.items():
        values = [None if tags is None else list(tags.items()) if name == "map" else tags for tags in given]
        table = pa.Table.from_pylist([line("1") for _ in given])
        table = table.set_column(table.schema.get_field_index("Tags"), "Tags", pa.array(values, kind))
        pq.write_table(table, tmp_path / f"{name}.parquet")
        found = whole(tmp_path / f"{name}.parquet").lines
        assert found["tags_text"].to_pylist() == from_json["tags_text"].to_pylist()
        assert found["tags"].to_pylist() == from_json["tags"].to_pylist()
