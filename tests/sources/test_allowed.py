"""What a row about a run or a machine may say: a wrong one is named by file, row and column, and nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcost_pipeline.cost.orphan_holds import orphan_holds
from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.sources.reader import seen_files
from mlcost_pipeline.triggers import mark_read, newest_day, records
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import two_models

RUNS = "run_id,model,stage,purpose,started_at,ended_at,status,attempt,job_id,busy_seconds,busy_coverage\n"
HOLDS = "run_id,resource_id,start,end,share_milli\n"
RESOURCES = "resource_id,valid_from,valid_to,kind,capacity_milli,capacity_unit\n"
FROM, TO = "2025-06-01T02:00:00Z", "2025-06-01T03:00:00Z"
GOOD = {
    "run_records": f"{RUNS}r0,fraud,training,retrain,{FROM},{TO},succeeded,1,j,1800,1.0\n",
    "occupancy": f"{HOLDS}r0,i-1,{FROM},{TO},1000\n",
    "resources": f"{RESOURCES}i-1,{FROM},{TO},gpu,8000,milli-gpu\n",
}


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Warehouse, Settings]:
    """Each table is read from a folder of its name, in which a good file lies."""
    for table, text in GOOD.items():
        (tmp_path / table).mkdir()
        (tmp_path / table / "0.csv").write_text(text)
    sources = {table: [{"path": str(tmp_path / table)}] for table in GOOD}
    return Warehouse(tmp_path / "warehouse"), two_models(sources=sources, base=tmp_path)


@pytest.mark.parametrize(
    ("table", "right", "wrong", "says"),
    [
        ("run_records", ",fraud,", ",fruad,", "'model': model 'fruad' is not in mlcost.yaml; did you mean 'fraud'"),
        ("run_records", ",training,", ",train,", "'stage': stage 'train' is unknown; did you mean 'training'"),
        ("run_records", ",retrain,", ",foo,", r"'purpose': purpose 'foo' is unknown \(allowed: retrain"),
        ("run_records", ",succeeded,", ",ok,", "'status': status 'ok' is unknown"),
        ("run_records", TO, "2025-05-01T00:00:00Z", "'ended_at': 2025-05-01T00:00:00Z lies before started_at"),
        ("run_records", TO, "", "'ended_at': is empty, and a run that is succeeded has ended"),
        ("run_records", ",1,j,", ",0,j,", "'attempt': must be 1 or more, found 0"),
        ("run_records", ",1800,", ",-1,", "'busy_seconds': must be 0 or more, found -1.0"),
        ("run_records", ",1800,", ",inf,", "'busy_seconds': must be 0 or more, found inf"),
        ("run_records", ",1.0\n", ",1.5\n", "'busy_coverage': must be from 0 to 1, found 1.5"),
        ("occupancy", ",1000\n", ",-1000\n", "'share_milli': must be 1 or more, found -1000"),
        ("occupancy", f"{FROM},{TO}", f"{TO},{FROM}", "'end': 2025-06-01T02:00:00Z lies before start"),
        ("resources", ",8000,", ",0,", "'capacity_milli': must be 1 or more, found 0"),
    ],
)
def test_a_value_that_nobody_can_mean_is_refused_by_file_row_and_column(
    tables: tuple[Warehouse, Settings], tmp_path: Path, table: str, right: str, wrong: str, says: str
) -> None:
    header, row = GOOD[table].splitlines(keepends=True)
    assert right in row
    bad = tmp_path / table / "1.csv"
    bad.write_text(header + row + row.replace(right, wrong))
    with pytest.raises(SourceError, match=rf"1\.csv, row 2, column {says}"):
        ingest(*tables, table)
    assert tables[0].rows(table) == []
    bad.unlink()
    assert ingest(*tables, table).rows_new == 1


def test_a_file_that_is_corrected_the_same_day_is_read_the_same_day(
    tables: tuple[Warehouse, Settings], tmp_path: Path
) -> None:
    def read() -> None:
        for table in GOOD:
            seen = seen_files(settings, table)
            ingest(warehouse, settings, table)
            mark_read(warehouse, table, newest_day(warehouse, settings), seen)

    warehouse, settings = tables
    [first] = records(warehouse, settings).requests
    assert "are not read yet" in first.reason
    read()
    assert records(warehouse, settings).reason.endswith("and no file has changed since")
    late = GOOD["run_records"].replace("succeeded", "failed")
    (tmp_path / "run_records" / "1-corrected.csv").write_text(late)
    [again] = records(warehouse, settings).requests
    assert (again.reason, again.key != first.key) == ("files of run_records are new or have changed", True)
    read()
    assert [row["status"] for row in warehouse.rows("run_records")] == ["failed"]
    assert not records(warehouse, settings).requests


def test_a_hold_of_a_run_that_nobody_recorded_is_told(tables: tuple[Warehouse, Settings]) -> None:
    warehouse, settings = tables
    ingest(warehouse, settings, "occupancy")
    assert orphan_holds(warehouse) == (
        "1 row of occupancy names a run that no run record tells of (r0): what they held is nobody's; "
        "add the runs to run_records."
    )
    ingest(warehouse, settings, "run_records")
    assert orphan_holds(warehouse) is None
