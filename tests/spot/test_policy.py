from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from mlcost_pipeline.spot.policy import PoolView, Situation, greedy, on_demand

SPOT = PoolView("a", "spot", True, Decimal("0.97"), 60, 600)
CHEAP = PoolView("b", "spot", True, Decimal("0.90"), 60, 600)
OD = PoolView("od", "on_demand", True, Decimal("3.06"), 60)
HOUR = 3600.0


def seen(left: float, work: float, *pools: PoolView, running: str | None = None) -> Situation:
    return Situation(left * HOUR, work * HOUR, 0.2 * HOUR, pools, running)


@pytest.mark.parametrize(
    ("situation", "pool"),
    [
        (seen(8, 4, SPOT, CHEAP, OD), "b"),
        (seen(8, 4, SPOT, replace(CHEAP, available=False), OD), "a"),
        (seen(8, 4, replace(SPOT, available=False), OD), None),
        (seen(4.39, 4, SPOT, OD), "od"),  # slack .39 h is below two changeovers
        (seen(4.41, 4, SPOT, OD), "a"),
        (seen(4.41, 4, replace(SPOT, available=False), OD), None),
        (seen(4.1, 4, SPOT, OD, running="a"), "a"),  # never leaves what runs
        (seen(-1, 1, SPOT, OD), "od"),
        (seen(1, 4, SPOT, replace(OD, available=False)), "a"),  # rather than nothing
        (seen(1, 4, replace(SPOT, available=False), replace(OD, available=False)), None),
    ],
)
def test_greedy(situation: Situation, pool: str | None) -> None:
    choice = greedy(situation)
    assert choice.pool == pool and choice.reason


def test_on_demand_takes_no_spot() -> None:
    assert on_demand(seen(8, 4, SPOT, OD)).pool == "od"
    assert on_demand(seen(8, 4, SPOT, OD, running="od")).pool == "od"
    assert on_demand(seen(8, 4, SPOT)).pool == "a"


def test_the_guarantee_is_lost_when_on_demand_could_not_finish() -> None:
    assert seen(4.2, 4, OD).guaranteed and not seen(4.19, 4, OD).guaranteed
