"""The ladder on single cases: input, and the right result to the last unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from mlcost_pipeline.cost.apportion import LIMIT, split
from mlcost_pipeline.cost.attribution import attribute
from mlcost_pipeline.cost.slots import Slot
from mlcost_pipeline.cost.snapshot import Owner, Snapshot, build
from mlcost_pipeline.errors import BillError
from tests.cost.billing import HOUR, NOON

UNIT = 10**18
Hold = tuple[str, float, float, int]  # run, from and to in hours after noon, milli-share


def snapshot(*holds: Hold, resource: str = "gpu-1", capacity: int | None = 1000, kind: str = "gpu") -> Snapshot:
    occupancy = [
        {"run_id": run, "resource_id": resource, "start": NOON + a * HOUR, "end": NOON + b * HOUR, "share_milli": share}
        for run, a, b, share in holds
    ]
    resources: list[dict[str, Any]] = []
    if capacity is not None:
        first = NOON - timedelta(days=9)
        resources = [
            {"resource_id": resource, "valid_from": first, "valid_to": None, "kind": kind, "capacity_milli": capacity}
        ]
    owners = {run: Owner("fraud", "training") for run, *_ in holds} | {"r9": Owner("recs", "serving")}
    return build(owners, occupancy, resources, ["fraud", "recs"])


def slot(
    amount: int,
    *,
    resource: str | None = "gpu-1",
    tags: Mapping[str, str] | None = None,
    category: str = "Usage",
    start: datetime = NOON,
    hours: float = 1,
    name: str = "s",
) -> Slot:
    return Slot(name, resource, start, start + hours * HOUR, category, tags or {}, amount, amount)


def parts(snap: Snapshot, *slots: Slot) -> list[tuple[str, str | None, int]]:
    """(method, run or model or reason, effective units) of every part."""
    return [
        (part.method, part.run_id or part.model or part.reason, part.amounts["effective"])
        for _, found in attribute(slots, snap)
        for part in found
    ]


def test_two_runs_that_each_claim_a_whole_gpu_share_it_and_never_double_it() -> None:
    snap = snapshot(("r1", 0, 1, 1000), ("r2", 0, 1, 1000))
    assert parts(snap, slot(UNIT)) == [("occupancy", "r1", UNIT // 2), ("occupancy", "r2", UNIT // 2)]


def test_a_gpu_hour_without_a_run_is_idle_and_not_nothing() -> None:
    assert parts(snapshot(), slot(27 * UNIT)) == [("idle", None, 27 * UNIT)]


def test_a_credit_larger_than_the_charge_is_shared_and_not_clamped() -> None:
    snap = snapshot(("r1", 0, 0.5, 1000))
    found = parts(snap, slot(10 * UNIT), slot(-15 * UNIT, category="Credit"))
    assert sum(amount for _, who, amount in found if who == "r1") == -2.5 * UNIT
    assert sum(amount for method, _, amount in found if method == "idle") == -2.5 * UNIT


def test_four_quarters_of_a_gpu_cost_a_quarter_each() -> None:
    snap = snapshot(*((f"r{i}", 0, 1, 250) for i in range(4)))
    assert parts(snap, slot(4 * UNIT)) == [("occupancy", f"r{i}", UNIT) for i in range(4)]


def test_a_run_of_ten_seconds_on_a_node_of_3_60_an_hour_costs_a_cent() -> None:
    snap = snapshot(("r1", 0, 10 / 3600, 1000))
    assert parts(snap, slot(36 * UNIT // 10))[0] == ("occupancy", "r1", UNIT // 100)


@pytest.mark.parametrize("category", ["Fee", "Zorble", "Tax", "Purchase"])
def test_charges_of_other_kinds_are_kept_and_named(category: str) -> None:
    snap = snapshot(("r1", 0, 1, 1000))
    assert parts(snap, slot(5 * UNIT, category=category)) == [("unattributed", "charge_type", 5 * UNIT)]


def test_the_part_tagged_late_is_direct_and_the_rest_found_by_occupancy() -> None:
    snap = snapshot(("r1", 0, 1, 1000), ("r2", 1, 2, 1000))
    tagged = slot(2 * UNIT, tags={"user:mlcost_run": "r2"}, start=NOON + HOUR, name="b")
    assert parts(snap, slot(UNIT), tagged) == [("occupancy", "r1", UNIT), ("direct", "r2", 2 * UNIT)]


def test_all_that_a_job_of_its_own_costs_is_its_runs() -> None:
    """Billing starts at provisioning, before the run does."""
    job = snapshot(("r1", 0.25, 0.5, 1000), kind="job")
    assert parts(job, slot(UNIT)) == [("direct", "r1", UNIT)]
    unregistered = snapshot(("r1", 0.25, 0.5, 1000), capacity=None)
    assert parts(unregistered, slot(UNIT), slot(7, category="Tax")) == [
        ("direct", "r1", UNIT),
        ("unattributed", "charge_type", 7),
    ]


def test_a_daily_line_is_shared_by_all_runs_of_the_day() -> None:
    snap = snapshot(("r1", 0, 6, 1000), ("r2", 10, 16, 500))
    found = parts(snap, slot(24 * UNIT, hours=24))
    assert found == [("occupancy", "r1", 6 * UNIT), ("occupancy", "r2", 3 * UNIT), ("idle", None, 15 * UNIT)]


def test_a_run_still_going_holds_its_resource_to_the_end_of_the_charge() -> None:
    snap = build(
        {"r1": Owner("fraud", "training"), "r2": Owner("fraud", "training")},
        [
            {"run_id": "r1", "resource_id": "gpu-1", "start": NOON + HOUR / 2, "end": None, "share_milli": 1000},
            {"run_id": "r2", "resource_id": "gpu-1", "start": NOON, "end": NOON + HOUR / 2, "share_milli": 1000},
        ],
        [],
        [],
    )
    assert parts(snap, slot(UNIT)) == [("occupancy", "r1", UNIT // 2), ("occupancy", "r2", UNIT // 2)]


def test_a_capacity_that_changes_within_the_charge_counts_for_its_time() -> None:
    resources = [
        {"resource_id": "gpu-1", "valid_from": NOON - HOUR, "valid_to": None, "kind": "gpu", "capacity_milli": 1000},
        {
            "resource_id": "gpu-1",
            "valid_from": NOON + HOUR / 2,
            "valid_to": None,
            "kind": "gpu",
            "capacity_milli": 3000,
        },
    ]
    hold = {"run_id": "r1", "resource_id": "gpu-1", "start": NOON, "end": NOON + HOUR, "share_milli": 1000}
    snap = build({"r1": Owner("fraud", "training")}, [hold], resources, [])
    assert parts(snap, slot(2 * UNIT)) == [("occupancy", "r1", UNIT), ("idle", None, UNIT)]


def test_model_and_stage_tags_come_after_runs_and_before_giving_up() -> None:
    snap = snapshot(("r1", 0, 1, 1000))
    mine = slot(UNIT, resource="bucket", tags={"mlcost_model": "recs", "stage": "serving"})
    strange = slot(UNIT, resource="bucket-2", tags={"model": "somebody-elses"})
    tax = slot(UNIT, resource=None, tags={"model": "fraud", "stage": "cooking"}, category="Tax")
    [(_, [first]), (_, [second]), (_, [third])] = attribute([mine, strange, tax], snap)
    assert (first.method, first.model, first.stage) == ("tag", "recs", "serving")
    assert (second.method, second.reason) == ("unattributed", "unknown_resource")
    assert (third.method, third.model, third.stage) == ("tag", "fraud", None)


@pytest.mark.parametrize(
    ("charge", "reason"),
    [
        (slot(1, resource=None), "no_resource_id"),
        (slot(1, resource="vm-of-strangers"), "unknown_resource"),
        (slot(1, start=NOON + 9 * HOUR), "no_run_at_that_time"),
        (slot(1, resource="x", tags={"mlcost_run": "never-heard-of"}), "orphan_run_tag"),
    ],
)
def test_what_is_not_attributed_says_why(charge: Slot, reason: str) -> None:
    snap = snapshot(("r1", 0, 1, 1000), ("r2", 0, 1, 1000), capacity=None)
    assert parts(snap, charge) == [("unattributed", reason, 1)]


def test_a_tag_activated_in_mid_month_names_the_charges_before_it() -> None:
    before = slot(3, resource="endpoint", name="a")
    after = slot(4, resource="endpoint", start=NOON + HOUR, tags={"mlcost_run": "r9"}, name="b")
    assert parts(snapshot(), before, after) == [("unattributed", "tag_not_active", 3), ("direct", "r9", 4)]


def test_long_charges_of_large_amounts_count_in_coarser_steps_of_time() -> None:
    snap = snapshot(("r1", 0, 372, 1000), ("r2", 0, 744, 1000), capacity=8000)
    amount = 10**6 * UNIT  # a million for a month: in microseconds this would not fit 128 bits
    found = parts(snap, slot(amount, hours=744))
    assert sum(part for *_, part in found) == amount
    assert found[0] == ("occupancy", "r1", amount // 16)


def test_what_does_not_fit_128_bits_is_refused_and_never_wraps() -> None:
    with pytest.raises(BillError, match="exceeds 128 bits"):
        split(LIMIT, [1], 2)
    with pytest.raises(BillError, match="exceeds 128 bits"):
        parts(snapshot(("r1", 0, 1, 1000)), slot(10**33, hours=744))


def test_parts_of_a_cent_amount_never_lose_a_unit() -> None:
    assert split(97, [1, 1, 1], 0) == ([32, 32, 33], 0)
    assert split(-97, [1, 1, 1], 0) == ([-33, -32, -32], 0)
    assert split(5, [], 0) == ([], 5)
