"""The ladder on single cases: input, and the right result to the last unit."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mlcost_pipeline.cost.attribution import ATTRIBUTED, METHODS, REASONS, attributing
from mlcost_pipeline.cost.slots import from_units
from mlcost_pipeline.cost.snapshot import Snapshot, build, digest_of
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import ChargeMatch, Rule
from mlcost_pipeline.tables import TABLES
from tests.cost.billing import HOUR, NOON
from tests.cost.reference import Part, by_engine, by_reference, charge, money

JOB = "arn:aws:sagemaker:eu-west-1:123456789012:{}/j1"
Hold = tuple[str, float, float | None, int]  # run, from and to in hours after noon, milli-share


def known(
    *holds: Hold, resource: str = "gpu-1", capacity: int | None = 1000, kind: str = "gpu", rules: tuple[Rule, ...] = ()
) -> Snapshot:
    occupancy = [
        {"run_id": run, "resource_id": resource, "start": NOON + a * HOUR, "share_milli": share,
         "end": None if b is None else NOON + b * HOUR} for run, a, b, share in holds
    ]  # fmt: skip
    rooms = [room(capacity, NOON - timedelta(days=9), resource, kind)] if capacity is not None else []
    runs = [{"run_id": run, "model": "fraud", "stage": "training"} for run in sorted({hold[0] for hold in holds})]
    runs.append({"run_id": "tagged", "model": "recs", "stage": "serving"})
    return build(runs, occupancy, rooms, ["fraud", "recs"], rules)


def room(capacity: int, since: Any, resource: str = "gpu-1", kind: str = "gpu") -> dict[str, Any]:
    return {"resource_id": resource, "valid_from": since, "valid_to": None, "kind": kind, "capacity_milli": capacity,
            "capacity_unit": "gpu"}  # fmt: skip


def told(found: list[Part]) -> list[tuple[str, str | None, Decimal]]:
    """(method, run or model or reason, effective money) of every part."""
    return [(p.method, p.run_id or p.model or p.reason, from_units(p.amounts[1])) for p in found]


def parts(snap: Snapshot, *slots: dict[str, Any]) -> list[tuple[str, str | None, Decimal]]:
    found = by_engine(slots, snap)
    assert found == by_reference(slots, snap)
    return told(found)


def test_a_daily_charge_is_shared_by_all_runs_of_the_day() -> None:
    snap = known(("r1", 0, 6, 1000), ("r2", 10, 16, 500))
    found = parts(snap, charge("s", 24, charge_end=NOON + 24 * HOUR))
    assert found == [("occupancy", "r1", 6), ("occupancy", "r2", 3), ("idle", None, 15)]


def test_a_month_whose_amount_does_not_fit_microseconds_counts_in_coarser_steps() -> None:
    snap = known(("r1", 0, 372, 1000), ("r2", 0, 744, 1000), capacity=8000)
    found = parts(snap, charge("s", 10**6, charge_end=NOON + 744 * HOUR))
    assert found[0] == ("occupancy", "r1", Decimal(10**6) / 16)
    assert sum(amount for *_, amount in found) == 10**6


def test_an_amount_beyond_128_bits_is_refused_by_the_name_of_its_slot() -> None:
    with pytest.raises(BillError, match=r"slot big: .* exceeds 128 bits"):
        by_engine([charge("fine", 1), charge("big", 10**15, charge_end=NOON + 744 * HOUR)], known(("r1", 0, 1, 1000)))
    with pytest.raises(BillError, match=r"slot tax: .* is refused"):
        by_engine([charge("s", 1), charge("tax", 10**15, category="Tax", resource_id=None)], known())


def test_a_run_still_going_holds_its_resource_to_the_end_of_the_charge() -> None:
    assert parts(known(("r1", 0.5, None, 1000)), charge("s", 1)) == [
        ("occupancy", "r1", Decimal("0.5")), ("idle", None, Decimal("0.5")),
    ]  # fmt: skip


def test_a_run_that_moved_pays_for_each_stretch_where_it_was() -> None:
    snap = known(("r1", 0, 0.25, 1000), ("r1", 0.75, 1, 1000), ("r2", 0.25, 0.75, 1000))
    assert parts(snap, charge("s", 1)) == [
        ("occupancy", "r1", Decimal("0.5")), ("occupancy", "r2", Decimal("0.5")),
    ]  # fmt: skip


def test_a_capacity_that_changes_within_the_charge_counts_for_its_time() -> None:
    snap = known(("r1", 0, 1, 1000))
    rooms = [*snap.resources.to_pylist(), room(3000, NOON + HOUR / 2)]
    wider = build(snap.runs.to_pylist(), snap.holds.to_pylist(), rooms, snap.models)
    assert parts(wider, charge("s", 2)) == [("occupancy", "r1", 1), ("idle", None, 1)]


@pytest.mark.parametrize("kind", ["training-job", "processing-job", "transform-job"])
def test_all_that_a_job_of_its_own_costs_is_its_runs_from_provisioning_on(kind: str) -> None:
    name = JOB.format(kind)
    snap = known(("r1", 0.25, 0.5, 1000), resource=name, capacity=None)
    assert parts(snap, charge("s", 1, resource_id=name)) == [("direct", "r1", 1)]


def test_the_time_a_warm_pool_is_kept_is_idle_and_not_the_next_runs() -> None:
    snap = known(("r1", 0, 0.5, 1000), ("r2", 1, 2, 1000), resource="warm-pool")
    found = parts(snap, charge("s", 2, resource_id="warm-pool"))
    assert found == [("occupancy", "r1", 1), ("idle", None, 1)]


def test_a_registered_job_of_two_runs_is_shared_by_their_time() -> None:
    snap = known(("r1", 0, 0.5, 1000), ("r2", 0.5, 1, 1000), kind="job")
    assert [who for _, who, _ in parts(snap, charge("s", 1))] == ["r1", "r2"]


@pytest.mark.parametrize("end", [NOON, NOON - HOUR])
def test_a_charge_of_no_time_keeps_its_money(end: Any) -> None:
    assert parts(known(("r1", 0, 1, 1000)), charge("s", 5, charge_end=end)) == [("idle", None, 5)]


def test_a_run_tag_wins_over_occupancy_and_a_model_tag_does_not() -> None:
    snap = known(("r1", 0, 1, 1000))
    found = parts(snap, charge("a", 1, tag_run="tagged"), charge("b", 1, tag_model="recs"))
    assert found == [("direct", "tagged", 1), ("occupancy", "r1", 1)]


def test_model_and_stage_tags_come_before_rules_and_rules_before_giving_up() -> None:
    rule = Rule(name="logs", when=ChargeMatch(service="logs", tags={"team": "x"}), model="recs", stage="serving")
    logs = {"service": "Logs", "resource_id": None, "tags_text": '{"user:Team":"X"}'}
    found = by_engine([charge("a", 1, tag_model="fraud", tag_stage="cooking", **logs), charge("b", 1, **logs),
                       charge("c", 1, **{**logs, "tags_text": "{}"})], known(rules=(rule,)))  # fmt: skip
    assert [(p.method, p.reason, p.model, p.stage) for p in found] == [
        ("tag", None, "fraud", None), ("rule", "logs", "recs", "serving"),
        ("unattributed", "no_resource_id", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"resource_id": None}, "no_resource_id"),
        ({"resource_id": None, "tag_model": "foreign", "category": "Credit"}, "no_resource_id"),
        ({"resource_id": "strange"}, "unknown_resource"),
        ({"charge_start": NOON + 9 * HOUR, "charge_end": NOON + 10 * HOUR}, "no_run_at_that_time"),
        ({"resource_id": "x", "tag_run": "never-heard-of"}, "orphan_run_tag"),
        ({"category": "Purchase"}, "charge_type"),
        ({"category": "Purchase", "commitment_status": "Used"}, "commitment"),
        ({"commitment_status": "Unused"}, "commitment_unused"),
    ],
)
def test_what_is_not_attributed_says_why(more: dict[str, Any], reason: str) -> None:
    snap = known(("r1", 0, 1, 1000), ("r2", 0, 1, 1000), capacity=None)
    found = by_engine([charge("s", 1, **more)], snap)
    assert {(p.method, p.reason) for p in found} <= {("unattributed", reason), ("unattributed", "commitment")}
    assert found[0].reason == reason and reason in REASONS


def test_a_tag_activated_in_mid_month_names_the_charges_before_it() -> None:
    late = charge(
        "b", 4, resource_id="endpoint", charge_start=NOON + HOUR, charge_end=NOON + 2 * HOUR, tag_run="tagged"
    )
    assert parts(known(), charge("a", 3, resource_id="endpoint"), late) == [
        ("unattributed", "tag_not_active", 3), ("direct", "tagged", 4),
    ]  # fmt: skip


def test_a_tax_follows_its_own_invoice_in_proportion_and_each_measure_its_own_base() -> None:
    snap = known(("r1", 0, 0.75, 1000))
    bill = [charge("a", 4, invoice_id="i1"), charge("b", 100, invoice_id="i2", resource_id=None),
            charge("t", 1, category="Tax", resource_id=None, invoice_id="i1")]  # fmt: skip
    tax = [part for part in by_engine(bill, snap) if part.slot_id == "t"]
    assert by_engine(bill, snap) == by_reference(bill, snap)
    assert [(p.method, p.reason, p.base, p.run_id, p.model, from_units(p.amounts[1])) for p in tax] == [
        ("derived", "tax", "occupancy", "r1", "fraud", Decimal("0.75")),
        ("derived", "tax", "idle", None, None, Decimal("0.25")),
    ]  # fmt: skip


def test_a_charge_on_charges_without_any_is_kept_as_its_kind() -> None:
    assert parts(known(), charge("t", 7, category="Tax", resource_id=None)) == [("unattributed", "charge_type", 7)]


def test_an_hour_of_a_device_counts_once_however_many_charges_it_has() -> None:
    bill = [charge("a", 4), charge("b", 1, service="Disk"), charge("c", -1, category="Credit")]
    table = pa.Table.from_pylist(bill, schema=TABLES["billing_slots"].schema)
    with attributing(table, known(("r1", 0, 0.5, 2000), capacity=2000)) as made:
        assert sum(batch.num_rows for batch in made.parts()) == 6
        rows = made.device_time().to_pylist()
    assert {(row["method"], row["run_id"], row["billed_seconds"]) for row in rows} == {
        ("idle", None, 3600.0), ("occupancy", "r1", 3600.0),
    }  # fmt: skip


def test_the_snapshots_digest_is_that_of_what_it_says_in_any_order() -> None:
    snap = known(("r1", 0, 1, 1000), ("r2", 0, 1, 1000))
    turned = build(snap.runs.to_pylist()[::-1], snap.holds.to_pylist()[::-1], snap.resources.to_pylist(), snap.models)
    assert digest_of(turned) == digest_of(snap) != digest_of(known(("r1", 0, 1, 999), ("r2", 0, 1, 1000)))


def test_methods_are_those_of_the_ladder() -> None:
    assert METHODS == ("direct", "occupancy", "idle", "tag", "rule", "derived", "unattributed")
    assert set(ATTRIBUTED) < set(METHODS)
    assert money(by_engine([charge("s", 1)], known())) == {"idle": 1}
