"""A file that cannot be taken whole is refused by name, row and column, and nothing of its ingest is stored."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.warehouse import Warehouse

GOOD = "id,user,item,action,at\n1,u,x,view,2025-03-01T08:00:00Z\n"


def shop(folder: Path, **source: object) -> tuple[Warehouse, Settings]:
    columns = {"event_id": "id", "user_id": "user", "item_id": "item", "kind": "action", "happened_at": "at"}
    model = {
        "task": "recommendation", "first_day": "2025-03-01", "trainer": {"family": "als"},
        "baseline": {"family": "als"}, "outcome": {"unit": "hits"},
    }  # fmt: skip
    pool = {"name": "od", "market": "on_demand", "price_per_hour": "3.06"}
    sources = {"interactions": {"path": "in", "columns": columns, **source}}
    settings = Settings.model_validate(
        {"version": 1, "name": "t", "models": {"m": model}, "capacity": {"pools": [pool]}, "sources": sources,
         "base": folder}
    )  # fmt: skip
    (folder / "in").mkdir(exist_ok=True)
    return Warehouse(folder / "warehouse"), settings


def refused(folder: Path, name: str, data: bytes, pattern: str, **source: object) -> None:
    """A good file and a bad one: the bad one is named, and not even the good one is stored."""
    warehouse, settings = shop(folder, **source)
    (folder / "in" / "0-good.csv").write_text(GOOD)
    (folder / "in" / name).write_bytes(data)
    with pytest.raises(SourceError, match=pattern) as caught:
        ingest(warehouse, settings, "interactions")
    assert name in str(caught.value)
    assert warehouse.rows("interactions") == []
    (folder / "in" / name).unlink()
    assert ingest(warehouse, settings, "interactions").rows_new == 1


def test_a_missing_column_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    data = GOOD.replace("action", "actions").encode()
    refused(tmp_path, "1.csv", data, r"column 'action' is missing; did you mean 'actions'\?")


def test_a_mistyped_value_is_found_among_good_ones(tmp_path: Path) -> None:
    lines = [f"{n},u,x,view,2025-03-01T08:00:{n % 60:02d}Z\n" for n in range(2, 400)]
    lines[250] = "252,u,x,view,yesterday\n"
    data = ("id,user,item,action,at\n" + "".join(lines)).encode()
    refused(tmp_path, "1.csv", data, r"row 251, column 'at' \(our happened_at\): expected a time .*found 'yesterday'")


def test_an_empty_required_value_is_refused(tmp_path: Path) -> None:
    data = (GOOD + "2,u,,view,2025-03-01T08:00:00Z\n").encode()
    refused(tmp_path, "1.csv", data, r"row 2, column 'item': is empty, and item_id must have a value")


@pytest.mark.parametrize(
    ("cut", "pattern"),
    [
        (GOOD + "2,u,x", r"line 3 ends in the middle \('2,u,x', no line end\)"),
        (GOOD + "2,u,x\n", r"Row #3: Expected 5 columns, got 3"),
        (GOOD + '2,u,"x', r"a quote that is opened is never closed"),
        (GOOD + '2,u,"x,view,2025-03-01T08:00:00Z\n', r"a quote that is opened is never closed"),
        (GOOD + "2,u,x,view,2025-03-01T08", r"ends in the middle"),
        ("", r"is empty, not even a header"),
    ],
)
def test_a_csv_that_is_cut_off(tmp_path: Path, cut: str, pattern: str) -> None:
    refused(tmp_path, "1.csv", cut.encode(), pattern)


@pytest.mark.parametrize("kept", [20, 60, -4])
def test_a_gzip_that_is_cut_off(tmp_path: Path, kept: int) -> None:
    data = gzip.compress((GOOD + "".join(f"{n},u,x,view,2025-03-01T08:00:00Z\n" for n in range(2, 99))).encode())
    refused(tmp_path, "1.csv.gz", data[:kept], r"gzip ends too early or is damaged")


@pytest.mark.parametrize("share", [0.3, 0.98])
def test_a_parquet_that_is_cut_off(tmp_path: Path, share: float) -> None:
    at = pa.array([datetime(2025, 3, 1)] * 500)
    names = [str(n) for n in range(500)]
    pq.write_table(pa.table({"id": names, "user": names, "item": names, "action": names, "at": at}), tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    refused(tmp_path, "1.parquet", data[: int(len(data) * share)], r"cut off or damaged")


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "1.csv", GOOD.encode() + "2,u,é,view,2025-03-01T08:00:00Z\n".encode("latin-1"), r"invalid UTF8")


def test_a_path_without_files_is_refused(tmp_path: Path) -> None:
    warehouse, settings = shop(tmp_path)
    with pytest.raises(SourceError, match=r"sources.interactions: .*names no file"):
        ingest(warehouse, settings, "interactions")


def test_a_table_without_source_is_refused(tmp_path: Path) -> None:
    warehouse, settings = shop(tmp_path)
    with pytest.raises(SourceError, match=r"has no sources.labels"):
        ingest(warehouse, settings, "labels")
