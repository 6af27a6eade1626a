"""The example on real data: orders of a wholesaler, card payments, and a bill of strangers, each with its own dates."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from mlcost_pipeline.cost.deliveries import bills_in_force, scope_of
from mlcost_pipeline.cost.reconciliation import require_reconciled
from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.home import PROJECT
from mlcost_pipeline.warehouse import Warehouse

DATA = Path(os.environ.get("MLCOST_DATA", PROJECT.parent / "shared" / "data"))

pytestmark = pytest.mark.skipif(
    not (DATA / "interactions" / "online_retail.parquet").exists(),
    reason=f"the real data are not at {DATA}; set MLCOST_DATA to the folder that holds interactions/, fraud/, billing/",
)


@pytest.fixture(scope="module")
def retail(tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, str]:
    home = tmp_path_factory.mktemp("retail")
    config = PROJECT / "examples" / "retail" / "mlcost.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "mlcost_pipeline.cli", "--config", str(config), "--home", str(home), "run"],
        capture_output=True, text=True, cwd=PROJECT, timeout=600,
        env={**os.environ, "MLCOST_DATA": str(DATA), "MLCOST_RETAIL_WAREHOUSE": str(home / "warehouse")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Warehouse(home / "warehouse"), done.stdout


def test_both_models_are_trained_judged_and_in_force(retail: tuple[Warehouse, str]) -> None:
    warehouse, _ = retail
    for model in ("recommendations", "fraud"):
        version = incumbent(warehouse, model)
        assert version is not None and version.gate_passed
    assert (
        len({row["user_id"] for row in warehouse.read_version("recommendations", "recommendations").to_pylist()}) > 3000
    )


def test_the_strangers_bill_reconciles_exactly_and_reads_unattributed_by_reason(retail: tuple[Warehouse, str]) -> None:
    warehouse, printed = retail
    billed = effective = Decimal(0)
    for account, period in bills_in_force(warehouse):
        require_reconciled(warehouse, account, period)
        for part in warehouse.read_version("cost_ledger", scope_of(account, period)).to_pylist():
            assert part["model"] is None and part["reason"], part
            billed, effective = billed + part["billed"], effective + part["effective"]
    assert (billed, effective) == (Decimal("20.52022672899"), Decimal("14.97651418586"))
    assert "unattributed by reason" in " ".join(printed.split())


def test_each_source_keeps_its_own_dates(retail: tuple[Warehouse, str]) -> None:
    warehouse, _ = retail
    days = {row["model"]: row["as_of"].isoformat() for row in warehouse.rows("decisions")}
    assert days == {"recommendations": "2011-12-09", "fraud": "2026-07-29"}
    assert {period for _, period in bills_in_force(warehouse)} <= {"2024-09", "2024-10"}


def test_work_done_here_is_priced_by_the_book_and_marked_an_estimate(retail: tuple[Warehouse, str]) -> None:
    warehouse, printed = retail
    report = (warehouse.root / "reports" / "report.html").read_text()
    assert "ESTIMATE" in report
    assert "by the price book" in " ".join(printed.split())
