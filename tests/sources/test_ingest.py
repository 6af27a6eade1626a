"""Once is once: files are read when new or changed, and an ingest that was killed is simply called again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.warehouse import Warehouse

HEADER = "id,user,item,action,at\n"
LINE = "{},u,x,view,2025-03-01T08:00:00Z\n"

YAML = """\
version: 1
name: t
sources:
  interactions:
    path: {path}
    {more}
    columns: {{event_id: id, user_id: user, item_id: item, kind: action, happened_at: at}}
models:
  m:
    task: recommendation
    first_day: 2025-03-01
    trainer: {{family: als}}
    baseline: {{family: als}}
    outcome: {{unit: hits}}
capacity:
  pools: [{{name: od, market: on_demand, price_per_hour: '3.06'}}]
"""


def settings(folder: Path, path: str = "in", more: str = "format: auto") -> Settings:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "mlcost.yaml").write_text(YAML.format(path=path, more=more))
    return load_settings(folder / "mlcost.yaml")


def test_a_file_is_read_once_and_again_when_it_changed(tmp_path: Path) -> None:
    config, warehouse = settings(tmp_path), Warehouse(tmp_path / "w")
    file = tmp_path / "in" / "a.csv"
    file.write_text(HEADER + LINE.format(1))
    assert ingest(warehouse, config, "interactions").rows_new == 1
    again = ingest(warehouse, config, "interactions")
    assert (again.files, again.files_known, again.rows_read) == (0, 1, 0)
    file.write_text(HEADER + LINE.format(1) + LINE.format(2))
    changed = ingest(warehouse, config, "interactions")
    assert (changed.files, changed.rows_new, changed.rows_dropped) == (1, 1, {"already_stored": 1})
    assert [row["event_id"] for row in warehouse.rows("interactions")] == ["1", "2"]


def test_killed_before_the_files_were_noted_nothing_is_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, warehouse = settings(tmp_path), Warehouse(tmp_path / "w")
    (tmp_path / "in" / "a.csv").write_text(HEADER + LINE.format(1))

    def killed(path: str, change: Callable[..., Any]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(warehouse.state, "update", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(warehouse, config, "interactions")
    assert len(warehouse.rows("interactions")) == 1
    done = ingest(warehouse, config, "interactions")
    assert (done.rows_read, done.rows_new, done.rows_dropped) == (1, 0, {"already_stored": 1})
    assert len(warehouse.rows("interactions")) == 1


def test_a_glob_names_files_and_unfinished_ones_are_left_alone(tmp_path: Path) -> None:
    config, warehouse = settings(tmp_path, path="in/day-*.csv"), Warehouse(tmp_path / "w")
    for number, name in enumerate(["day-1.csv", "day-2.csv", "other.csv", ".day-3.csv", "day-4.csv.tmp"]):
        (tmp_path / "in" / name).write_text(HEADER + LINE.format(number))
    done = ingest(warehouse, config, "interactions")
    assert (done.files, done.rows_new) == (2, 2)


def test_a_file_waits_for_its_marker(tmp_path: Path) -> None:
    config, warehouse = settings(tmp_path, more="complete_marker: .done"), Warehouse(tmp_path / "w")
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.csv").write_text(HEADER + LINE.format(number))
    (tmp_path / "in" / "1.csv.done").touch()
    done = ingest(warehouse, config, "interactions")
    assert (done.files, done.files_waiting, done.rows_new) == (1, 1, 1)
    (tmp_path / "in" / "2.csv.done").touch()
    assert ingest(warehouse, config, "interactions").rows_new == 1


def test_content_ids_outlive_a_column_that_is_added_later(tmp_path: Path) -> None:
    config, warehouse = settings(tmp_path), Warehouse(tmp_path / "w")
    source = config.sources["interactions"][0]
    columns = {name: column for name, column in source.columns.items() if name != "event_id"}
    unnamed = config.model_copy(
        update={"sources": {"interactions": [source.model_copy(update={"columns": columns})]}}
    )  # fmt: skip
    file = tmp_path / "in" / "a.csv"
    file.write_text("user,item,action,at\nu,x,view,2025-03-01T08:00:00Z\n")
    ingest(warehouse, unnamed, "interactions")
    file.write_text("user,item,action,at,extra\nu,x,view,2025-03-01T08:00:00Z,1\n")
    ingest(warehouse, unnamed, "interactions")
    assert len(warehouse.rows("interactions")) == 1


def test_every_file_read_is_reported(tmp_path: Path) -> None:
    config, warehouse = settings(tmp_path), Warehouse(tmp_path / "w")
    (tmp_path / "in" / "a.csv").write_text(HEADER + LINE.format(1))
    said: list[str] = []
    ingest(warehouse, config, "interactions", report=said.append)
    assert said == ["interactions: 1 rows from a.csv"]
