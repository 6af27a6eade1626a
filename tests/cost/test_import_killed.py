"""An import that is killed anywhere and repeated: one delivery, the same totals, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.deliveries import bills_in_force, delivery, import_bill
from mlcost_pipeline.cost.sorted_files import SortedFiles
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.state import StateStore
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, stored_lines, write_bill

WRITES: list[tuple[Any, str]] = [
    (SortedFiles, "add"), (SortedFiles, "close"), (Warehouse, "write_version_batches"), (Warehouse, "_link_aside"),
    (Warehouse, "append"), (StateStore, "update"), (pq.ParquetWriter, "write_table"),
    (pq.ParquetWriter, "close"), (os, "link"),
]  # fmt: skip


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


class _Killer:
    """Lets `survived` writes happen and dies at the next, before it or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, survived: int, *, after: bool) -> None:
        self._left, self._after, self.dead = survived, after, False
        for owner, name in WRITES:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, write: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            if self.dead:  # clean-up of the dying process writes nothing more
                return write(*args, **named)
            self._left -= 1
            if self._left >= 0:
                return write(*args, **named)
            if self._after:
                write(*args, **named)
            self.dead = True
            raise Killed

        return call


def _bill(path: Path, costs: list[str]) -> Path:
    april = {"BillingPeriodStart": "2026-04-01T00:00:00Z"}
    rows = [line(cost, start=NOON + number * HOUR) for number, cost in enumerate(costs)]
    return write_bill(path, [*rows, line("100", **april)])


def _billed(warehouse: Warehouse) -> dict[str, Decimal]:
    found = [delivery(warehouse, *pair) for pair in bills_in_force(warehouse)]
    return {one.period: one.billed_total for one in found if one is not None}


def test_killed_at_each_write_the_old_bill_or_the_new_is_in_force_and_a_repeat_finishes(tmp_path: Path) -> None:
    old, new = _bill(tmp_path / "old.csv", ["1", "2"]), _bill(tmp_path / "new.csv", ["4", "8", "16"])
    import_bill(Warehouse(tmp_path / "before"), old)
    killed, survived, alive = 0, -2, False
    while not alive:
        survived += 2
        shutil.copytree(tmp_path / "before", tmp_path / str(survived), copy_function=os.link)
        warehouse = Warehouse(tmp_path / str(survived))
        with pytest.MonkeyPatch.context() as monkeypatch:
            killer = _Killer(monkeypatch, survived, after=survived % 4 == 2)
            try:
                import_bill(warehouse, new)
            except Killed:
                killed += 1
        alive = not killer.dead
        assert _billed(warehouse)[PERIOD] in (Decimal(3), Decimal(28))
        import_bill(warehouse, new)
        assert _billed(warehouse) == {PERIOD: Decimal(28), "2026-04": Decimal(100)}
        assert len(warehouse.rows("bill_deliveries")) == 3  # two of March, and April once: it did not change
        assert len(stored_lines(warehouse)) == 2 + 3 + 1
        assert list((warehouse.root / "artefacts" / "imports").glob("staged-*")) == []
    assert killed >= 8


_CHILD = """
import os, sys, signal
from pathlib import Path
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.staging import Staging
from mlcost_pipeline.warehouse import Warehouse
if sys.argv[3] == "hang":
    def hang(self, key):
        print("staged", flush=True)
        signal.pause()
    Staging.lines = hang
import_bill(Warehouse(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def test_a_real_kill_leaves_what_was_in_force_and_its_folder_is_removed_by_the_next_import(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    import_bill(warehouse, _bill(tmp_path / "old.csv", ["1", "2"]))
    new = _bill(tmp_path / "new.csv", ["4", "8", "16"])
    command = [sys.executable, "-c", _CHILD, str(warehouse.root), str(new), "hang"]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as child:
        assert child.stdout is not None and child.stdout.readline().strip() == "staged"
        staged = list((warehouse.root / "artefacts" / "imports").glob("staged-*"))
        assert len(staged) == 1
        import_bill(warehouse, _bill(tmp_path / "other.csv", ["5"]))  # another process's import works beside it
        assert staged[0].is_dir()
        child.send_signal(signal.SIGKILL)
    assert staged[0].is_dir() and _billed(warehouse)[PERIOD] == Decimal(5)
    later = time.time() + 60
    os.utime(new, (later, later))
    import_bill(warehouse, new)
    assert not staged[0].exists()
    assert _billed(warehouse) == {PERIOD: Decimal(28), "2026-04": Decimal(100)}


def test_a_refused_import_leaves_no_folder(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(BillError):
        import_bill(warehouse, _bill(tmp_path / "bill.csv", ["1", "torn"]))
    assert list((warehouse.root / "artefacts" / "imports").glob("staged-*")) == []
    assert not (warehouse.root / "versions" / "billing_lines").exists()


def test_more_accounts_than_files_can_be_open_and_never_more_than_a_bill_has(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcost_pipeline.cost.sorted_files._OPEN_FILES", 2)
    rows = [line("1", BillingAccountId=f"a{number % 5}") for number in range(20)]
    made = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert [(one.account, one.rows, one.billed_total) for one in made] == [(f"a{n}", 4, Decimal(4)) for n in range(5)]
    monkeypatch.setattr("mlcost_pipeline.cost.staging._MOST_DELIVERIES", 3)
    with pytest.raises(BillError, match="more than 3 accounts and periods"):
        import_bill(warehouse, tmp_path / "bill.csv")


def test_lines_keep_their_order_over_buckets_and_batches(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcost_pipeline.cost.staging.LINES_OF_A_BUCKET", 10)
    rows = [line("1", resource=f"gpu-{number % 7}", start=NOON + number * HOUR) for number in range(60)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bill.parquet", row_group_size=25)
    [made] = import_bill(warehouse, tmp_path / "bill.parquet")
    file = warehouse.version_file("billing_slots", f"{ACCOUNT}|{PERIOD}", made.delivery_id)
    assert file is not None
    buckets = pq.read_table(file)["bucket"].to_pylist()
    assert buckets == sorted(buckets) and len(set(buckets)) > 1
    assert sorted(row["line"] for row in stored_lines(warehouse)) == list(range(2, 62))
    assert (made.rows, made.slots, made.billed_total) == (60, 60, Decimal(60))
