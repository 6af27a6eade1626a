"""What holds for every bill and every set of runs, however odd; a slow reference says what is right."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcost_pipeline.cost.slots import from_units
from mlcost_pipeline.cost.snapshot import Snapshot, build
from mlcost_pipeline.settings import ChargeMatch, Rule
from tests.cost.billing import HOUR, NOON
from tests.cost.reference import Part, by_engine, by_reference, charge, split

JOB = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/j1"
RESOURCES = [None, "a", "b", "c", JOB]
TAGS: list[dict[str, str]] = [
    {}, {}, {"tag_run": "run-1"}, {"tag_run": "gone"}, {"tag_model": "fraud"},
    {"tag_model": "fraud", "tag_stage": "serving"},
    {"tag_model": "foreign"},
]  # fmt: skip
CATEGORIES = ["Usage", "Usage", "Usage", "Credit", "Adjustment", "Tax", "Purchase", "Zorble"]
STATUSES = [None, None, None, "Used", "Unused", "Negation", "Fee"]
RULES = (Rule(name="logs", when=ChargeMatch(service="Logs"), model="recs", stage="serving"),)
units = st.integers(-(10**22), 10**22) | st.sampled_from([0, 1, -1, 97, -97, 10**25])
seconds = st.integers(0, 3600 * 30)
MANY, FEW = 14, 4  # of bills of up to 24 charges; each takes the engine a tenth of a second
few = settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@st.composite
def bills(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(1, 24))):
        start = NOON + timedelta(seconds=draw(seconds))
        length = timedelta(seconds=draw(st.sampled_from([0, 1, 3600, 3600, 86400, 86400 * 31])))
        listed = draw(st.none() | units)
        found.append(
            charge(
                f"s{number:02d}", from_units(draw(units)), billed=from_units(draw(units)),
                list=None if listed is None else from_units(listed), resource_id=draw(st.sampled_from(RESOURCES)),
                charge_start=start, charge_end=start + length, category=draw(st.sampled_from(CATEGORIES)),
                commitment_status=draw(st.sampled_from(STATUSES)),
                service=draw(st.sampled_from([None, "Logs", "Support"])),
                invoice_id=draw(st.sampled_from([None, "i1", "i2"])), **draw(st.sampled_from(TAGS)),
            )
        )  # fmt: skip
    return found


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    holds, rooms = [], []
    for _ in range(draw(st.integers(0, 8))):
        start = NOON + timedelta(seconds=draw(seconds), microseconds=draw(st.sampled_from([0, 1, 999_999])))
        end = None if draw(st.integers(0, 5)) == 0 else start + timedelta(seconds=draw(st.integers(0, 3600 * 40)))
        holds.append({"run_id": f"run-{draw(st.integers(0, 6))}", "resource_id": draw(st.sampled_from(RESOURCES[1:])),
                      "start": start, "end": end, "share_milli": draw(st.integers(1, 4000))})  # fmt: skip
    for name in draw(st.lists(st.sampled_from(["a", "b"]), unique=True)):
        for day in range(draw(st.integers(1, 2))):
            rooms.append({"resource_id": name, "valid_from": NOON + day * 12 * HOUR, "valid_to": None, "kind": "gpu",
                          "capacity_milli": draw(st.integers(1, 8000)), "capacity_unit": "gpu"})  # fmt: skip
    runs = [{"run_id": f"run-{n}", "model": "fraud", "stage": "training"} for n in range(6)]  # run-6 has no record
    return build(runs, holds, rooms, ["fraud", "recs"], RULES)


def _sums(parts: list[Part]) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        a, b, c = found.get(part.slot_id, (0, 0, 0))
        found[part.slot_id] = (a + part.amounts[0], b + part.amounts[1], c + (part.amounts[2] or 0))
    return found


@given(bills(), snapshots())
@settings(few, max_examples=MANY)
def test_the_engine_agrees_with_the_reference_and_keeps_every_slot_whole(
    bill: list[dict[str, Any]], known: Snapshot
) -> None:
    found = by_engine(bill, known)
    assert found == by_reference(bill, known)
    whole = {s["slot_id"]: tuple(from_units(u) for u in _sums(found)[s["slot_id"]]) for s in bill}
    assert whole == {s["slot_id"]: (s["billed"], s["effective"], s["list"] or Decimal(0)) for s in bill}


@given(bills(), snapshots(), st.randoms(use_true_random=False))
@settings(few, max_examples=FEW)
def test_order_buckets_and_a_second_time_change_nothing(bill: list[dict[str, Any]], known: Snapshot, dice: Any) -> None:
    """A resource stays in one bucket, as it does in every delivery."""
    bucket = {name: dice.randrange(3) for name in RESOURCES}
    other = [{**slot, "bucket": bucket[slot["resource_id"]]} for slot in bill]
    dice.shuffle(other)
    assert by_engine(other, known) == by_engine(bill, known)


@given(bills(), snapshots(), st.integers(0, 12))
@settings(few, max_examples=FEW)
def test_two_bills_together_are_attributed_as_each_by_itself(
    bill: list[dict[str, Any]], known: Snapshot, cut: int
) -> None:
    """But for derived charges, whose base is the whole bill, and the reason `tag_not_active`, which looks at it."""

    def alone(parts: list[Part]) -> Counter[object]:
        derived = {
            s["slot_id"] for s in bill if s["category"] in ("Tax", "Credit", "Adjustment") or s["service"] == "Support"
        }
        return Counter((p.slot_id, p.method, p.run_id, p.model, p.amounts) for p in parts if p.slot_id not in derived)

    apart = alone(by_engine(bill[:cut], known)) + alone(by_engine(bill[cut:], known))
    assert alone(by_engine(bill, known)) == apart


@given(bills(), snapshots())
@settings(few, max_examples=FEW)
def test_a_tag_backfill_changes_attribution_and_no_total(bill: list[dict[str, Any]], known: Snapshot) -> None:
    tagged = [{**slot, "tag_run": "run-1"} for slot in bill]
    assert _sums(by_engine(tagged, known)) == _sums(by_engine(bill, known))


@given(
    units, st.lists(st.tuples(st.integers(0, 59), st.integers(1, 60)), min_size=1, max_size=4), st.integers(4000, 9000)
)
@settings(few, max_examples=FEW)
def test_splitting_an_hour_into_halves_moves_no_run_by_more_than_a_unit_a_slot(
    amount: int, runs: list[tuple[int, int]], capacity: int
) -> None:
    """Where nobody claims more than there is; both halves cost the same."""
    minute = timedelta(minutes=1)
    holds = [{"run_id": f"run-{n}", "resource_id": "gpu-1", "start": NOON + a * minute, "end": NOON + (a + k) * minute,
              "share_milli": 1000} for n, (a, k) in enumerate(runs)]  # fmt: skip
    room = {
        "resource_id": "gpu-1",
        "valid_from": NOON,
        "kind": "gpu",
        "capacity_milli": capacity,
        "capacity_unit": "gpu",
    }
    known = build([{"run_id": f"run-{n}", "model": "m", "stage": "training"} for n in range(4)], holds, [room], ["m"])
    half = from_units(amount)
    halves = [
        charge(str(n), half, charge_start=NOON + n * HOUR / 2, charge_end=NOON + (n + 1) * HOUR / 2) for n in (0, 1)
    ]
    whole, split_up = (_by_run(by_engine(b, known)) for b in ([charge("h", 2 * half)], halves))
    for run in whole.keys() | split_up.keys():
        assert abs(whole[run] - split_up[run]) <= 3  # one unit for each of three slots


def _by_run(parts: list[Part]) -> Counter[str | None]:
    found: Counter[str | None] = Counter()
    for part in parts:
        found[part.run_id] += part.amounts[1]
    return found


@given(units, st.lists(st.integers(0, 10**9), max_size=6), st.integers(0, 10**10))
@settings(few, max_examples=100)
def test_the_reference_is_off_by_less_than_a_unit(amount: int, weights: list[int], capacity: int) -> None:
    parts, idle = split(amount, weights, capacity)
    assert sum(parts) + idle == amount
    whole = max(sum(weights), capacity)
    assert all(
        abs(part * whole - amount * weight) < whole for part, weight in zip(parts, weights, strict=True) if whole
    )
