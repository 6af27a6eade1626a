"""What manifests name is the delivery: whole, of the right size and count, the newest, and never outside its folder."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.bills.detect import detect_format
from mlcost_pipeline.cost.deliveries import delivery, import_bill
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, PERIOD, line, write_bill
from tests.cost.cur_reports import PAYER, cur_line, write_legacy, write_parquet

ARN = "arn:aws:bcm-data-exports:us-east-1:1:export/costs-1"


def _json(path: Path, said: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path


def data_export(root: Path, costs: list[str], *, period: str = PERIOD, run: str = "", account: str = ACCOUNT) -> Path:
    """AWS Data Exports: ``data/`` and ``metadata/`` beside each other, parts named by full addresses of objects."""
    under = Path(f"BILLING_PERIOD={period}") / run
    more = {"BillingPeriodStart": f"{period}-01T00:00:00Z", "BillingAccountId": account}
    names = [f"costs-{number:05d}.csv.gz" for number in range(1, len(costs) + 1)]
    for name, cost in zip(names, costs, strict=True):
        plain = write_bill(root / "plain.csv", [line(cost, **more)])
        (root / "data" / under).mkdir(parents=True, exist_ok=True)
        (root / "data" / under / name).write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    files = [f"s3://bucket/prefix/costs/data/{under.as_posix()}/{name}" for name in names]
    said = {"executionId": run, "exportArn": ARN, "columns": [], "dataFiles": files, "additionalOutputFiles": []}
    return _json(root / "metadata" / under / "costs-Manifest.json", said)


def azure_export(root: Path, costs: list[list[str]], **more: Any) -> Path:
    """An Azure export run of FOCUS parts: its manifest lies beside the parts and says how large they are."""
    blobs = []
    for number, part in enumerate(costs):
        file = write_bill(root / f"part_{number}_0001.csv", [line(cost) for cost in part])
        name = f"exports/focus/20260301-20260331/{root.name}/{file.name}"
        blobs.append({"blobName": name, "byteCount": file.stat().st_size, "dataRowCount": len(part)})
    info = {"executionType": "Scheduled", "submittedTime": "2026-03-20T10:00:00Z", "startDate": "2026-03-01T00:00:00",
            "endDate": "2026-03-31T00:00:00", **more}  # fmt: skip
    return _json(root / "manifest.json", {"blobCount": len(blobs), "runInfo": info, "blobs": blobs})


def _billed(warehouse: Warehouse, account: str = ACCOUNT) -> Decimal | None:
    found = delivery(warehouse, account, PERIOD)
    return None if found is None else found.billed_total


@pytest.mark.parametrize("by_name", [True, False])
def test_the_parts_of_a_data_export_are_one_delivery(warehouse: Warehouse, tmp_path: Path, by_name: bool) -> None:
    manifest = data_export(tmp_path / "export", ["1", "2", "4"])
    [made] = import_bill(warehouse, manifest if by_name else tmp_path / "export")
    assert (made.billed_total, made.rows, made.manifest) == (Decimal(7), 3, str(manifest))


def test_the_format_is_told_by_what_a_manifest_names(tmp_path: Path) -> None:
    manifest = data_export(tmp_path / "export", ["1", "2"])
    assert detect_format(manifest) == detect_format(tmp_path / "export") == "focus"


def test_bills_that_no_manifest_names_are_named(warehouse: Warehouse, tmp_path: Path) -> None:
    data_export(tmp_path / "export", ["1", "2"])
    april = {"BillingPeriodStart": "2026-04-01T00:00:00Z"}
    write_bill(tmp_path / "export" / "beside" / "april.csv", [line("7", **april)])
    [made] = import_bill(warehouse, tmp_path / "export")
    assert made.billed_total == 3
    [told] = made.warnings
    assert re.match(r"not read, because no manifest names them: .*beside/april\.csv; import them by name", told)


@pytest.mark.parametrize("name", ["costs-00003.csv", "old/costs-00001.csv.gz"])
def test_a_folder_with_more_of_a_period_than_its_manifest_names_is_refused(
    warehouse: Warehouse, tmp_path: Path, name: str
) -> None:
    manifest = data_export(tmp_path / "export", ["1", "2"])
    parts = tmp_path / "export" / "data" / f"BILLING_PERIOD={PERIOD}"
    plain = write_bill(tmp_path / "plain", [line("99")]).read_bytes()
    (parts / name).parent.mkdir(exist_ok=True)
    (parts / name).write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    with pytest.raises(BillError, match=rf"{name}: holds charges of account acct-1, period 2026-03.*no manifest names"):
        import_bill(warehouse, tmp_path / "export")
    assert _billed(warehouse) is None
    [made] = import_bill(warehouse, manifest)  # who names the manifest has chosen; what lies with its parts is told
    assert made.billed_total == 3
    assert [name in text for text in made.warnings] == ([True] if "/" not in name else [])


def test_of_two_exports_the_one_that_was_made_last_is_in_force_whenever_it_was_copied(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    older = azure_export(tmp_path / "a", [["1"]], submittedTime="2026-03-20T10:00:00.1234567Z")
    [newer] = import_bill(warehouse, azure_export(tmp_path / "b", [["2"]], submittedTime="2026-03-21T10:00:00Z"))
    (tmp_path / "a" / "part_0_0001.csv").touch()
    [late] = import_bill(warehouse, older)
    assert (late.took_over, late.behind) == (False, newer.delivery_id)
    assert late.received_at == datetime(2026, 3, 20, 10, 0, 0, 123456, tzinfo=UTC)
    run = data_export(tmp_path / "c", ["3"], run="2026-03-22T01:00:00.000Z-aa")  # its folder says when
    assert import_bill(warehouse, run)[0].received_at == datetime(2026, 3, 22, 1, tzinfo=UTC)
    assert _billed(warehouse) == 3
    import_bill(warehouse, older, received_at=datetime(2026, 3, 23, tzinfo=UTC))
    assert _billed(warehouse) == 1  # a person said so


def test_a_part_that_is_missing_is_named_and_the_bill_in_force_stays(warehouse: Warehouse, tmp_path: Path) -> None:
    data_export(tmp_path / "export", ["1", "2", "4"])
    import_bill(warehouse, tmp_path / "export")
    data_export(tmp_path / "export", ["10", "20", "40"])
    gone = tmp_path / "export" / "data" / f"BILLING_PERIOD={PERIOD}" / "costs-00002.csv.gz"
    gone.unlink()
    with pytest.raises(BillError, match=r"names s3://.*costs-00002\.csv\.gz, which is not there.*in force stays"):
        import_bill(warehouse, tmp_path / "export")
    assert _billed(warehouse) == Decimal(7)


def test_each_period_is_a_delivery_and_the_newest_execution_of_a_period_counts(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    data_export(tmp_path / "export", ["9"], run="2026-03-09T23:48:02.356Z-bb")
    data_export(tmp_path / "export", ["1", "2"], run="2026-03-10T01:00:00.000Z-aa")
    data_export(tmp_path / "export", ["5"], period="2026-02", run="2026-03-11T01:00:00.000Z-cc")
    older = tmp_path / "export" / "metadata" / f"BILLING_PERIOD={PERIOD}" / "2026-03-09T23:48:02.356Z-bb"
    (older / "costs-Manifest.json").touch()  # copied last: the time of a copy says nothing
    made = import_bill(warehouse, tmp_path / "export")
    assert sorted((one.period, one.billed_total) for one in made) == [("2026-02", Decimal(5)), (PERIOD, Decimal(3))]


def test_two_exports_of_one_period_side_by_side_are_both_read(warehouse: Warehouse, tmp_path: Path) -> None:
    data_export(tmp_path / "both" / "a", ["1"])
    said = json.loads(data_export(tmp_path / "both" / "b", ["2"], account="acct-2").read_text())
    _json(tmp_path / "both" / "b" / "metadata" / f"BILLING_PERIOD={PERIOD}" / "costs-Manifest.json",
          said | {"exportArn": f"{ARN}-other"})  # fmt: skip
    import_bill(warehouse, tmp_path / "both")
    assert (_billed(warehouse), _billed(warehouse, "acct-2")) == (Decimal(1), Decimal(2))


def test_of_the_assemblies_of_a_legacy_report_the_newest_counts(warehouse: Warehouse, tmp_path: Path) -> None:
    period = tmp_path / "report" / "costs" / "20260301-20260401"
    for assembly, cost in (("zz-old", 1.0), ("aa-new", 7.0)):
        write_legacy(period / assembly / "costs-1.csv.gz", [cur_line(cost)])
        keys = [f"report/costs/20260301-20260401/{assembly}/costs-1.csv.gz"]
        said = {"assemblyId": assembly, "reportName": "costs", "reportKeys": keys, "compression": "GZIP",
                "billingPeriod": {"start": "20260301T000000.000Z", "end": "20260401T000000.000Z"}}  # fmt: skip
        _json(period / assembly / "costs-Manifest.json", said)
        _json(period / "costs-Manifest.json", said)  # overwritten by every assembly
    (period / "zz-old" / "costs-Manifest.json").touch()
    [made] = import_bill(warehouse, tmp_path / "report", format="cur_legacy")
    assert (made.billed_total, made.account) == (Decimal(7), PAYER)


def test_the_newest_run_of_an_azure_export_counts_and_is_checked_against_its_manifest(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    azure_export(tmp_path / "runs" / "first", [["1"]])
    azure_export(tmp_path / "runs" / "second", [["2", "3"], ["4"]], submittedTime="2026-03-21T10:00:00Z")
    [made] = import_bill(warehouse, tmp_path / "runs")
    assert (made.billed_total, made.rows) == (Decimal(9), 3)
    part = tmp_path / "runs" / "second" / "part_1_0001.csv"
    part.write_bytes(part.read_bytes() + part.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(BillError, match=r"part_1_0001\.csv: has \d+ bytes, manifest\.json says \d+"):
        import_bill(warehouse, tmp_path / "runs")
    manifest = tmp_path / "runs" / "second" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["blobs"][1]["byteCount"] = part.stat().st_size
    with pytest.raises(BillError, match=r"part_1_0001\.csv: holds 2 charges, its manifest says 1"):
        import_bill(warehouse, _json(manifest, said))
    with pytest.raises(BillError, match="says it has 3 files and names 2"):
        import_bill(warehouse, _json(manifest, said | {"blobCount": 3}))
    assert _billed(warehouse) == Decimal(9)


def _csv(folder: Path, cost: str) -> Path:
    return write_bill(folder / "part-2.csv", [line(cost) for _ in range(30)])


def _gzip(folder: Path, cost: str) -> Path:
    plain = write_bill(folder / "plain", [line(cost) for _ in range(30)])
    packed = folder / "part-2.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    return packed


def _zip(folder: Path, cost: str) -> Path:
    plain = write_bill(folder / "plain", [line(cost) for _ in range(30)])
    with zipfile.ZipFile(folder / "part-2.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "part-2.csv")
    return folder / "part-2.csv.zip"


def _parquet(folder: Path, cost: str) -> Path:
    pq.write_table(pa.Table.from_pylist([line(cost) for _ in range(30)]), folder / "part-2.parquet")
    return folder / "part-2.parquet"


@pytest.mark.parametrize("write", [_csv, _gzip, _zip, _parquet])
def test_a_part_cut_off_anywhere_is_refused_by_name(
    warehouse: Warehouse, tmp_path: Path, write: Callable[[Path, str], Path]
) -> None:
    whole = write_bill(tmp_path / "export" / "part-1.csv", [line("1")])
    part = write(tmp_path / "export", "2")
    manifest = _json(tmp_path / "export" / "Manifest.json", {"dataFiles": [whole.name, part.name]})
    import_bill(warehouse, manifest)
    data = part.read_bytes()
    ends = data.rindex(b"\n", 0, -2) - 3 if part.suffix == ".csv" else len(data) - 1
    for size in (0, 3, len(data) // 3, len(data) // 2, ends):
        part.write_bytes(data[:size])
        with pytest.raises(BillError, match="part-2"):
            import_bill(warehouse, manifest)
    assert _billed(warehouse) == Decimal(61)


def test_a_zip_is_read_as_the_one_file_that_is_in_it(warehouse: Warehouse, tmp_path: Path) -> None:
    packed = _zip(tmp_path / "export", "2")
    assert detect_format(packed) == "focus"
    assert import_bill(warehouse, packed)[0].billed_total == 60
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("part-3.csv", "x")
    with pytest.raises(
        BillError, match=r"part-2\.csv\.zip: holds 2 files \(part-2\.csv, part-3\.csv\), expected one CSV"
    ):
        import_bill(warehouse, packed)
    data = bytearray(_zip(tmp_path / "export", "2").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the directory says that it is encrypted
    packed.write_bytes(data)
    with pytest.raises(BillError, match=r"part-2\.csv\.zip: is encrypted; unpack it"):
        import_bill(warehouse, packed)


def test_a_csv_without_the_end_of_its_last_line_is_read_and_what_cannot_be_seen_is_said(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    last = ["EffectiveCost", "BilledCost"]
    row = {name: value for name, value in line("12.50").items() if name not in last}
    bill = write_bill(tmp_path / "bill.csv", [row | dict.fromkeys(last, "12.50")] * 2)
    whole = bill.read_bytes()
    bill.write_bytes(whole[:-1])  # the line has its end
    assert import_bill(warehouse, bill)[0].warnings == ()
    bill.write_bytes(whole[:-2])
    [made] = import_bill(warehouse, bill)
    assert made.billed_total == 25
    assert re.match(
        r".*bill\.csv: its last line has no end; .* compare the total with that of your console", *made.warnings
    )
    for lost in (7, 8, 12, 20):  # its last cost is gone, or a field
        bill.write_bytes(whole[:-lost])
        with pytest.raises(BillError, match=r"bill\.csv"):
            import_bill(warehouse, bill)
    assert _billed(warehouse) == 25


def test_what_is_packed_or_has_its_size_in_a_manifest_needs_no_end_of_the_last_line(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    data = write_bill(tmp_path / "plain", [line("3")]).read_bytes()[:-2]
    (tmp_path / "bill.csv.gz").write_bytes(gzip.compress(data))
    assert import_bill(warehouse, tmp_path / "bill.csv.gz")[0].warnings == ()
    manifest = azure_export(tmp_path / "run", [["4"]])
    part = tmp_path / "run" / "part_0_0001.csv"
    part.write_bytes(part.read_bytes()[:-2])
    said = json.loads(manifest.read_text())
    said["blobs"][0]["byteCount"] = part.stat().st_size
    assert import_bill(warehouse, _json(manifest, said))[0].warnings == ()


@pytest.mark.parametrize("pack", [_gzip, _zip])
def test_what_unpacks_to_far_more_than_a_bill_is_refused(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[Path, str], Path]
) -> None:
    monkeypatch.setattr("mlcost_pipeline.cost.bills.files._UNPACKED", 1000)
    monkeypatch.setattr("mlcost_pipeline.cost.bills.files._MOST_PACKED", 5)
    with pytest.raises(BillError, match=r"part-2\.csv\.\w+: unpacks to more than 5 times its size"):
        import_bill(warehouse, pack(tmp_path / "export", "2"))


def test_no_name_of_a_manifest_leaves_the_folder_of_the_export(warehouse: Warehouse, tmp_path: Path) -> None:
    secret = write_bill(tmp_path / "secret" / "bill.csv", [line("1")])
    export = tmp_path / "export"
    export.mkdir()
    (export / "link.csv").symlink_to(secret)
    for name in ("../secret/bill.csv", "secret/bill.csv", str(secret), f"s3://b/{secret}", "link.csv", "a\0b.csv",
                 "x" * 5000 + ".csv", "/etc/passwd"):  # fmt: skip
        for place in (_json(export / "Manifest.json", {"dataFiles": [name]}), export):
            with pytest.raises(BillError, match=r"Manifest\.json"):
                import_bill(warehouse, place)
    assert _billed(warehouse) is None


@pytest.mark.parametrize(
    "said", [[], {}, {"dataFiles": []}, {"dataFiles": "a.csv"}, {"blobs": [{"size": 1}]}, {"dataFiles": [["a.csv"]]}]
)
def test_a_manifest_that_is_none_is_refused(warehouse: Warehouse, tmp_path: Path, said: Any) -> None:
    with pytest.raises(BillError, match=r"Manifest\.json"):
        import_bill(warehouse, _json(tmp_path / "Manifest.json", said))
    (tmp_path / "Manifest.json").write_text("[" * 100_000)
    with pytest.raises(BillError, match="no readable manifest"):
        import_bill(warehouse, tmp_path)


def test_a_data_export_of_cur2_copied_without_its_metadata_folder(warehouse: Warehouse, tmp_path: Path) -> None:
    write_parquet(tmp_path / "costs-00001.snappy.parquet", [cur_line(2.5)])
    files = [f"s3://bucket/p/costs/data/BILLING_PERIOD={PERIOD}/costs-00001.snappy.parquet"]
    _json(tmp_path / "costs-Manifest.json", {"exportArn": ARN, "dataFiles": files})
    [made] = import_bill(warehouse, tmp_path, format="cur2")
    assert made.billed_total == Decimal("2.5")
    shutil.copy(tmp_path / "costs-00001.snappy.parquet", tmp_path / "costs.xlsx")
    with pytest.raises(BillError, match=r"costs\.xlsx.*expected files named"):
        import_bill(warehouse, _json(tmp_path / "costs-Manifest.json", {"dataFiles": ["costs.xlsx"]}), format="cur2")
