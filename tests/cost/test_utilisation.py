"""The ladder of device time from billed to kept, and how busy what was billed has been."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.device_ladder import ladders
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.unit_cost import unit_cost
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, write_bill
from tests.cost.ledgers import part, write_ledger

APRIL = datetime(2026, 4, 1, tzinfo=UTC)


@pytest.mark.parametrize("sampled", [True, False])
def test_a_quarter_busy_costs_the_whole_and_no_samples_are_unknown(
    warehouse: Warehouse, settings: Settings, sampled: bool
) -> None:
    """4 GPU hours billed at 12, one of them active (opencost#3900, PR#3901)."""
    measured = {"busy_seconds": 3600.0, "busy_metric": "nvml", "busy_coverage": 1.0} if sampled else {}
    past_run(warehouse, "r1", hours=4, **measured)
    write_ledger(warehouse, part("12", run="r1", method="occupancy", hours=4))
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    [ladder] = found.ladders
    used = found.utilisation["training"]
    assert (found.total, ladder.billed, ladder.allocated) == (Decimal(12), 4 * 3600, 4 * 3600)
    assert (used.share, ladder.busy_high) == ((0.25, 0.25) if sampled else (None, None))
    assert (used.coverage, used.metrics) == ((1.0, ("nvml",)) if sampled else (0.0, ()))
    assert ladder.busy_low == (0.25 if sampled else 0.0)
    tail = "1.0 active (25%, nvml), 1.0 kept" if sampled else "active and kept unknown (nobody measured)"
    assert ladder.sentence == f"fraud, training, 2026-03: 4.0 device hours billed, 4.0 allocated, {tail}"


def test_a_bill_goes_all_the_way_to_a_share_of_busy_hours(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    """As above, from the export itself: two kinds of use of one hour are one hour, and half of the fourth is idle."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", NOON - HOUR)
    past_run(warehouse, "r1", hours=3.5, busy_seconds=3150.0, busy_metric="nvml", busy_coverage=1.0)
    hours = [line("3", start=NOON + n * HOUR) for n in range(4)]
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [*hours, line("0.5", ServiceName="Network")]))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (found.total, found.by_method) == (Decimal("11"), {"occupancy": Decimal("11")})
    whole, ours = ladders(warehouse, settings)
    assert (whole.billed, ours.billed, ours.active) == (4 * 3600, 3.5 * 3600, 3150)
    assert found.utilisation["training"].share == 0.25


def test_the_ladder_goes_down_from_billed_to_kept(warehouse: Warehouse, settings: Settings) -> None:
    measured = {"busy_metric": "nvml", "busy_coverage": 1.0}
    job = {"purpose": "retrain", "job_id": "j1"}
    past_run(warehouse, "j1/1", **job, attempt=1, status="interrupted", hours=2, busy_seconds=3600, **measured)
    past_run(warehouse, "j1/2", **job, attempt=2, hours=2, busy_seconds=7200, steps_done=4, steps_redone=1, **measured)
    past_run(warehouse, "trial", hours=1, busy_seconds=1800, status="failed", **measured)
    past_run(warehouse, "half seen", hours=2, busy_seconds=900, busy_metric="nvml", busy_coverage=0.5)
    write_ledger(
        warehouse, part("1", run="j1/1", hours=3), part("1", run="j1/2", hours=2), part("1", run="trial", hours=1),
        part("1", run="half seen", hours=2), part("1", method="tag", hours=4),
        part("1", method="idle", model=None, stage=None, hours=12),
    )  # fmt: skip
    whole, ours = ladders(warehouse, settings)
    assert (whole.model, whole.billed / 3600, whole.allocated / 3600, whole.active) == (None, 24, 7, ours.active)
    # billed 3 + 2 + 1 + 2 + 4 (nobody's run); held 2 + 2 + 1 + 2; busy 1 + 2 + 0.5 + 0.25
    assert (ours.billed / 3600, ours.allocated / 3600, ours.active / 3600) == (12, 7, 3.75)
    assert ours.measured / 3600 == 3 + 2 + 1 + 2 * 0.5
    # kept: the interrupted attempt's hour, which the next one went on from, three quarters of 2, and what half saw
    assert ours.kept / 3600 == 1 + 1.5 + 0.25
    assert not ours.complete and ours.busy_high is None
    assert ours.sentence.endswith("at least 2.8 kept; 58% of the billed time was measured")


def test_the_time_that_work_waited_for_data_is_named(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "says so", hours=2, data_wait_seconds=1800.0)
    past_run(warehouse, "does not", hours=2)
    write_ledger(warehouse, part("1", run="says so", hours=2), part("1", run="does not", hours=2))
    [ladder] = ladders(warehouse, settings, model="fraud")
    assert ladder.waiting == 1800
    assert "4.0 allocated (of it 0.5 waiting for data), active and kept unknown" in ladder.sentence


def test_a_run_that_two_months_bill_is_busy_once(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1", start=APRIL - HOUR, hours=4, busy_seconds=7200, busy_metric="nvml", busy_coverage=1.0)
    write_ledger(warehouse, part("1", run="r1", hours=1))
    write_ledger(warehouse, part("3", run="r1", hours=3), period="2026-04")
    march, april = ladders(warehouse, settings, model="fraud")
    assert (march.active, april.active) == (1800, 5400)
    assert ladders(warehouse, settings, model="fraud", period=PERIOD) == [march]


def test_cpu_time_beyond_a_runs_share_is_not_more_than_busy(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1", hours=0.5, busy_seconds=3000.0, busy_metric="process_cpu", busy_coverage=1.0)
    write_ledger(warehouse, part("1", run="r1", method="occupancy", hours=0.5))
    used = unit_cost(warehouse, settings, "fraud", PERIOD).utilisation["training"]
    assert (used.billed_hours, used.busy_hours, used.share) == (0.5, 0.5, 1.0)


def test_busy_time_of_which_nobody_says_how_much_was_sampled_is_in_no_share(
    warehouse: Warehouse, settings: Settings
) -> None:
    past_run(warehouse, "says nothing", hours=1, busy_seconds=3600.0, busy_metric="nvml")
    past_run(warehouse, "half busy", hours=1, busy_seconds=1800.0, busy_metric="nvml", busy_coverage=1.0)
    write_ledger(warehouse, part("1", run="says nothing", hours=1), part("1", run="half busy", hours=1))
    found = unit_cost(warehouse, settings, "fraud", PERIOD)
    assert (found.utilisation["training"].share, found.utilisation["training"].coverage) == (0.5, 0.5)
    [ladder] = found.ladders
    assert (ladder.measured, ladder.active, ladder.busy_high) == (3600, 1800, None)
