"""What holds for every bill and every set of runs, however odd."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from mlcost_pipeline.cost.apportion import split
from mlcost_pipeline.cost.attribution import Part, attribute
from mlcost_pipeline.cost.slots import Slot
from mlcost_pipeline.cost.snapshot import Owner, Snapshot, build
from tests.cost.billing import HOUR, NOON

RESOURCES = ["a", "b", "c"]
TAGS = [{}, {"mlcost_run": "run-1"}, {"mlcost_run": "gone"}, {"model": "fraud"}, {"model": "fraud", "stage": "serving"}]
CATEGORIES = ["Usage", "Usage", "Usage", "Credit", "Tax", "Zorble"]
amounts = st.integers(-(10**22), 10**22)
minutes = st.integers(0, 60 * 30)

slot = st.builds(
    lambda number, resource, begin, length, category, tags, billed, effective, listed: Slot(
        f"s{number:06d}",
        resource,
        NOON + timedelta(minutes=begin),
        NOON + timedelta(minutes=begin + length),
        category,
        tags,
        billed,
        effective,
        listed,
    ),
    st.integers(0, 10**6),
    st.sampled_from([None, *RESOURCES]),
    minutes,
    st.integers(0, 60 * 40),
    st.sampled_from(CATEGORIES),
    st.sampled_from(TAGS),
    amounts,
    amounts,
    st.none() | amounts,
)
slots = st.lists(slot, max_size=8, unique_by=lambda s: s.slot_id)
hold = st.tuples(st.integers(0, 5), st.sampled_from(RESOURCES), minutes, st.integers(1, 900), st.integers(1, 4000))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    holds = draw(st.lists(hold, max_size=8))
    occupancy = [
        {
            "run_id": f"run-{run}",
            "resource_id": resource,
            "start": NOON + timedelta(minutes=begin),
            "end": NOON + timedelta(minutes=begin + length),
            "share_milli": share,
        }
        for run, resource, begin, length, share in holds
    ]
    known = draw(st.lists(st.tuples(st.sampled_from(RESOURCES), st.integers(1, 8000)), unique_by=lambda r: r[0]))
    resources = [
        {"resource_id": name, "valid_from": NOON, "valid_to": None, "kind": "gpu", "capacity_milli": capacity}
        for name, capacity in known
    ]
    return build({f"run-{i}": Owner("fraud", "training") for i in range(6)}, occupancy, resources, ["fraud"])


def _added(parts: list[Part], measure: str) -> int:
    return sum(part.amounts[measure] for part in parts)


@given(slots, snapshots())
@settings(max_examples=150, deadline=None)
def test_every_slot_is_conserved_in_every_measure(charges: list[Slot], snap: Snapshot) -> None:
    for charge, parts in attribute(charges, snap):
        assert parts
        for measure, amount in charge.amounts.items():
            assert _added(parts, measure) == amount
        assert all(part.amounts.keys() == charge.amounts.keys() for part in parts)


@given(slots, snapshots(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_lines_and_their_split_over_files_change_nothing(
    charges: list[Slot], snap: Snapshot, random: object
) -> None:
    whole = {charge.slot_id: parts for charge, parts in attribute(charges, snap)}
    shuffled = charges[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert {charge.slot_id: parts for charge, parts in attribute(shuffled, snap)} == whole


@given(slots, snapshots(), st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_money_of_two_bills_is_the_money_of_both_together(charges: list[Slot], snap: Snapshot, cut: int) -> None:
    """Each slot is taken by itself; only the reason `tag_not_active` looks at the rest of the bill."""

    def money(found: list[tuple[Slot, list[Part]]]) -> dict[str, list[tuple[str, str | None, object]]]:
        return {s.slot_id: [(p.method, p.run_id, p.amounts) for p in parts] for s, parts in found}

    apart = money(attribute(charges[:cut], snap)) | money(attribute(charges[cut:], snap))
    assert money(attribute(charges, snap)) == apart


@given(
    amounts,
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 60)), min_size=1, max_size=4),
    st.integers(4000, 9000),
)
@settings(max_examples=100, deadline=None)
def test_splitting_an_hour_into_halves_moves_no_run_by_more_than_a_unit_a_slot(
    amount: int, runs: list[tuple[int, int]], capacity: int
) -> None:
    """Where nobody claims more than there is; both halves cost the same."""
    occupancy = [
        {
            "run_id": f"run-{number}",
            "resource_id": "a",
            "start": NOON + timedelta(minutes=begin),
            "end": NOON + timedelta(minutes=begin + length),
            "share_milli": 1000,
        }
        for number, (begin, length) in enumerate(runs)
    ]
    resources = [{"resource_id": "a", "valid_from": NOON, "valid_to": None, "kind": "gpu", "capacity_milli": capacity}]
    snap = build({f"run-{i}": Owner("fraud", "training") for i in range(4)}, occupancy, resources, [])
    hour = [Slot("h", "a", NOON, NOON + HOUR, "Usage", {}, 2 * amount, 2 * amount)]
    halves = [
        Slot(f"h{i}", "a", NOON + i * HOUR / 2, NOON + (i + 1) * HOUR / 2, "Usage", {}, amount, amount) for i in (0, 1)
    ]
    whole, split_up = _by_run(hour, snap), _by_run(halves, snap)
    for run in whole.keys() | split_up.keys():
        assert abs(whole.get(run, 0) - split_up.get(run, 0)) <= 3


@given(amounts, st.lists(st.integers(0, 10**9), max_size=6), st.integers(0, 10**10))
@settings(max_examples=200, deadline=None)
def test_no_part_is_off_by_a_whole_unit(amount: int, weights: list[int], capacity: int) -> None:
    parts, idle = split(amount, weights, capacity)
    assert sum(parts) + idle == amount
    denominator = max(sum(weights), capacity)
    for part, weight in zip(parts, weights, strict=True):
        assert denominator == 0 or abs(part * denominator - amount * weight) < denominator
    if weights and 0 < sum(weights) >= capacity:
        assert idle == 0


@given(slots, snapshots())
@settings(max_examples=60, deadline=None)
def test_a_tag_backfill_changes_attribution_and_no_total(charges: list[Slot], snap: Snapshot) -> None:
    tagged = [Slot(**{**charge.__dict__, "tags": {"mlcost_run": "run-1"}}) for charge in charges]
    before = sum(_added(parts, "billed") for _, parts in attribute(charges, snap))
    after = sum(_added(parts, "billed") for _, parts in attribute(tagged, snap))
    assert before == after


def _by_run(charges: list[Slot], snap: Snapshot) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for _, parts in attribute(charges, snap):
        for part in parts:
            if part.run_id is not None:
                found[part.run_id] = found.get(part.run_id, 0) + part.amounts["billed"]
    return found
