"""Bad input, a team's own family, and two people at once: what the command line says and leaves."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlcost_pipeline.demo.shop import make_shop
from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.home import PROJECT
from mlcost_pipeline.warehouse import Warehouse
from tests.scenarios.conftest import environment, mlcost

OWN_FAMILY = """
from mlcost_pipeline.models.mlp import Mlp

class Ours(Mlp):
    name = "ours"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_shop(tmp_path / "shop", days=14, users=40, items=30, payments_per_day=100)
    return tmp_path / "shop"


def test_a_mistyped_value_is_told_with_file_row_and_column_and_stops_nobody_else(shop: Path) -> None:
    config = shop / "mlcost.yaml"
    config.write_text(config.read_text().replace("mode: act", "mode: observe"))
    file = sorted((shop / "data" / "payments").iterdir())[3]
    lines = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
    column = lines[0].rstrip().split(",").index("amount")
    cells = lines[2].split(",")
    cells[column] = "12x"
    file.write_bytes(gzip.compress("".join([*lines[:2], ",".join(cells), *lines[3:]]).encode()))
    failed = mlcost("tick", home=shop.parent, check=False)
    assert failed.returncode == 1
    said = " ".join(failed.stderr.split())
    assert "Traceback" not in said
    assert file.name in said and "row 2" in said and "'amount'" in said and "12x" in said, said
    warehouse = Warehouse(shop / "warehouse")
    assert warehouse.rows("transactions") == [], "nothing of that ingest is stored"
    assert warehouse.rows("decisions", where="model = 'recommendations'"), "the other model had its turn"


@pytest.mark.timeout(700)
def test_a_run_stopped_by_ctrl_c_and_then_two_at_once_train_each_decision_once_with_a_family_of_ones_own(
    shop: Path,
) -> None:
    (shop / "our_family.py").write_text(OWN_FAMILY)
    config = shop / "mlcost.yaml"
    config.write_text(config.read_text().replace("{family: mlp,", "{family: 'our_family:Ours',"))
    command = [sys.executable, "-m", "mlcost_pipeline.cli", "--home", str(shop.parent), "run"]
    _stopped_by_ctrl_c(command, Warehouse(shop / "warehouse"))
    both = [
        subprocess.Popen(
            command, cwd=PROJECT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=650)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(text[-2000:] for text in printed)
    warehouse = Warehouse(shop / "warehouse")
    for model, family in (("fraud", "our_family:Ours"), ("recommendations", "sasrec")):
        version = incumbent(warehouse, model)
        assert version is not None and version.family == family
    decisions = [row["decision_id"] for row in warehouse.rows("decisions") if row["verdict"] == "retrain"]
    assert sorted(row["job_id"] for row in warehouse.rows("jobs")) == sorted(decisions)
    assert len(warehouse.rows("model_versions")) == len(decisions) == 2


def _stopped_by_ctrl_c(command: list[str], warehouse: Warehouse) -> None:
    """A run to which a terminal's Ctrl-C comes, as it does to the whole process group, once a job has begun."""
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 240
    while not warehouse.rows("jobs") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    assert process.poll() is None and warehouse.rows("jobs"), "it ended, or no job began"
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "the next run takes up" in said, said[-2000:]
    traces = said.split("Traceback")[1:]  # the process by which Dagster watches its log files dies with one
    assert all("watch_orphans.py" in trace for trace in traces), said[-2000:]
