"""Public complaints about other cost tools, as input and right result: those that attribution has to answer."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest

from mlcost_pipeline.cost.slots import from_units
from tests.cost.billing import HOUR, NOON
from tests.cost.reference import Part, by_engine, charge, money
from tests.cost.test_attribution import known


def total(parts: list[Part], measure: int = 1) -> Decimal:
    return from_units(sum(part.amounts[measure] or 0 for part in parts))


def test_opencost_1815_two_runs_that_each_claim_a_whole_node_halve_it() -> None:
    found = by_engine([charge("s", 1)], known(("r1", 0, 1, 1000), ("r2", 0, 1, 1000)))
    assert money(found) == {"r1": Decimal("0.5"), "r2": Decimal("0.5")}


def test_opencost_1124_a_filter_comes_after_attribution_and_filtered_views_add_up() -> None:
    snap = known(("r1", 0, 0.28, 1000), ("r2", 0.28, 0.64, 1000), ("r3", 0.64, 0.82, 1000))
    found = by_engine([charge("s", 100)], snap)
    assert money(found) == {"r1": 28, "r2": 36, "r3": 18, "idle": 18}
    assert sum(total([p for p in found if p.run_id == run]) for run in ("r1", "r2", "r3", None)) == 100


def test_opencost_883_a_gpu_hour_without_a_run_is_27_idle_and_not_0() -> None:
    assert money(by_engine([charge("s", 27)], known())) == {"idle": 27}


def test_opencost_3393_a_credit_larger_than_the_charge_is_shared_and_not_clamped() -> None:
    found = by_engine([charge("s", 10), charge("c", -15, category="Credit")], known(("r1", 0, 0.5, 1000)))
    assert money(found) == {"r1": Decimal("-2.5"), "idle": Decimal("-2.5")}


def test_opencost_3839_effective_goes_to_the_run_and_billed_nets_on_the_commitment() -> None:
    bill = [
        charge("u", "1.10", billed=Decimal("3.06"), commitment_status="Used"),
        charge("n", 0, billed=Decimal("-3.06"), category="Adjustment", commitment_status="Negation"),
        charge("f", 0, billed=Decimal("1.10"), category="Purchase", commitment_status="Fee", resource_id=None),
    ]
    found = by_engine(bill, known(("r1", 0, 1, 1000)))
    assert money([p for p in found if p.run_id]) == {"r1": Decimal("1.10")}
    assert total([p for p in found if p.reason == "commitment"], 0) == Decimal("1.10")
    assert (total(found, 0), total(found, 1)) == (Decimal("1.10"), Decimal("1.10"))


def test_opencost_3900_cost_is_of_the_bill_however_busy_the_device_was() -> None:
    assert money(by_engine([charge("s", 12, charge_end=NOON + 4 * HOUR)], known(("r1", 0, 4, 1000)))) == {"r1": 12}


def test_opencost_3828_four_runs_at_a_quarter_of_a_gpu_cost_a_quarter_each() -> None:
    found = by_engine([charge("s", 4)], known(*((f"r{n}", 0, 1, 250) for n in range(4))))
    assert money(found) == {f"r{n}": 1 for n in range(4)}


@pytest.mark.parametrize("category", ["Fee", "Zorble"])
def test_opencost_4022_a_kind_that_nobody_knows_is_kept_and_named(category: str) -> None:
    found = by_engine([charge("s", 5, category=category)], known(("r1", 0, 1, 1000)))
    assert [(p.method, p.reason, total([p])) for p in found] == [("unattributed", "charge_type", 5)]


def test_opencost_954_usage_less_its_discount_is_80_and_the_discount_is_taken_once() -> None:
    bill = [charge("u", 100), charge("d", -20, category="Adjustment", resource_id=None)]
    found = by_engine(bill, known(("r1", 0, 1, 1000)))
    assert money(found) == {"r1": 80}
    assert [(p.method, p.reason, p.base) for p in found] == [
        ("derived", "discount", "occupancy"),
        ("occupancy", None, None),
    ]
    assert money(by_engine([charge("u", 80)], known(("r1", 0, 1, 1000)))) == {"r1": 80}


def test_koku_2962_two_months_of_the_same_resource_stay_apart() -> None:
    april = NOON + timedelta(days=31)
    months = [charge("s", 10)], [charge("s", 10, charge_start=april, charge_end=april + HOUR, period="2026-04")]
    assert [money(by_engine(month, known())) for month in months] == [{"idle": 10}, {"idle": 10}]


def test_koku_5252_negations_of_covered_hours_take_no_hour_of_usage_away() -> None:
    bill = [charge(f"{kind}{n:03d}", 0 if kind == "n" else 1, billed=Decimal(-1 if kind == "n" else 1),
                   category="Adjustment" if kind == "n" else "Usage", charge_start=NOON + n * HOUR,
                   commitment_status="Negation" if kind == "n" else "Used", charge_end=NOON + (n + 1) * HOUR)
            for kind in ("u", "n") for n in range(109)]  # fmt: skip
    found = by_engine(bill, known(("r1", 0, 109, 1000)))
    assert money([p for p in found if p.run_id]) == {"r1": 109}
    assert total(found, 0) == 0


def test_professional_services_420_two_labels_do_not_double_the_total() -> None:
    found = by_engine([charge("s", 10, tag_run="tagged", tag_model="fraud")], known())
    assert [(p.method, p.run_id, total([p])) for p in found] == [("direct", "tagged", 10)]


def test_kubefin_47_ten_seconds_of_a_node_at_3_60_an_hour_cost_a_cent() -> None:
    found = by_engine(
        [charge("s", "3.6"), charge("unseen", 2, resource_id="node-2")], known(("r1", 0, 10 / 3600, 1000))
    )
    assert money(found) == {"r1": Decimal("0.01"), "idle": Decimal("3.59"), "unknown_resource": 2}


def test_dagster_23337_the_time_before_the_tag_is_found_by_occupancy() -> None:
    minutes = timedelta(minutes=5)
    bill = [charge("a", 1, charge_end=NOON + minutes), charge("b", 11, charge_start=NOON + minutes, tag_run="r1")]
    found = by_engine(bill, known(("r1", 0, 1, 1000)))
    assert Counter((p.method, p.run_id) for p in found) == {("occupancy", "r1"): 1, ("direct", "r1"): 1}
    assert total(found) == 12


def test_kubecost_1521_components_with_adjustments_add_up_to_the_total() -> None:
    bill = [charge("u", 10), charge("a", -1, category="Adjustment"),
            charge("t", "0.9", category="Tax", resource_id=None),
            charge("s", "0.45", service="Support", resource_id=None, category="Usage")]  # fmt: skip
    found = by_engine(bill, known(("r1", 0, 0.5, 1000)))
    assert sum(money(found).values()) == total(found) == Decimal("10.35")
    assert total([p for p in found if p.method == "derived"]) == Decimal("1.35")
