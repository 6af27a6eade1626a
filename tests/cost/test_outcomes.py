"""Outcomes: added clicks against the holdout, fraud cases as labels come in, hits as a proxy."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.clicks import estimate
from mlcost_pipeline.cost.counted import counted, counted_by_month
from mlcost_pipeline.cost.coverage import Covered, covered_by_month
from mlcost_pipeline.cost.outcomes import count_outcomes, measure_outcomes, months
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import NOON, past_run

DAY = NOON.date()
TOMORROW = DAY + timedelta(days=1)
LATER = NOON + timedelta(days=30)
MINUTE = timedelta(minutes=1)
MONTH_END = datetime(2026, 3, 31, 22, tzinfo=UTC)


def lookup(name: str, user: str | None, arm: str, *, at: datetime = NOON, items: tuple[str, ...] = ("i1", "i2"),
           version: str | None = "lists-1") -> dict[str, Any]:  # fmt: skip
    return {
        "request_id": name, "looked_up_at": at, "user_id": user, "arm": arm, "tier": "fresh", "reason": "ok",
        "version": version, "items": list(items), "age_seconds": 1.0, "latency_seconds": 0.001,
    }  # fmt: skip


def click(name: str, user: str | None, item: str = "i1", *, at: datetime = NOON + MINUTE, request: str | None = None,
          kind: str = "click") -> dict[str, Any]:  # fmt: skip
    return {"event_id": name, "user_id": user, "item_id": item, "kind": kind, "happened_at": at, "request_id": request}


def added(warehouse: Warehouse, settings: Settings, day: date = DAY, name: str = "all") -> float | None:
    rows = measure_outcomes(warehouse, settings, "recs", day, day + timedelta(days=1), now=LATER)
    return next((row["count"] for row in rows if row["slice"] == name), None)


def test_clicks_are_added_beyond_the_rate_of_the_holdout(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("lookups", [lookup(f"t{i}", f"t{i}", "treated") for i in range(10)])
    warehouse.append("lookups", [lookup(f"h{i}", f"h{i}", "holdout") for i in range(5)])
    warehouse.append("interactions", [click(f"c{i}", f"t{i}") for i in range(6)] + [click("ch", "h1")])
    [row] = measure_outcomes(warehouse, settings, "recs", DAY, TOMORROW, now=LATER)
    assert row["count"] == 6 - 10 * 1 / 5
    assert row["low"] < row["count"] < row["high"]
    assert (row["unit"], row["state"]) == ("added_clicks", "measured")
    again = measure_outcomes(warehouse, settings, "recs", DAY, TOMORROW, now=LATER)
    assert again == [row]
    assert len(warehouse.rows("outcomes")) == 1


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (click("c", "t0"), True),
        (click("c", "t0", at=NOON + timedelta(hours=23, minutes=59)), True),
        (click("c", "t0", at=NOON + timedelta(hours=24)), False),  # too late
        (click("c", "t0", at=NOON - MINUTE), False),  # before the lookup
        (click("c", "t0", item="i9"), False),  # not shown
        (click("c", "t0", kind="view"), False),
        (click("c", "somebody"), False),
        (click("c", None), False),  # anonymous
    ],
)
def test_what_counts_as_a_click_of_a_lookup(
    warehouse: Warehouse, settings: Settings, event: dict[str, Any], counts: bool
) -> None:
    warehouse.append("lookups", [lookup("t0", "t0", "treated"), lookup("h0", "h0", "holdout"),
                                 lookup("none", None, "treated")])  # fmt: skip
    warehouse.append("interactions", [event])
    assert added(warehouse, settings) == float(counts)


def test_a_click_counts_for_one_lookup_only_the_latest_or_the_one_it_names(
    warehouse: Warehouse, settings: Settings
) -> None:
    midnight = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC) + timedelta(days=1)
    today, tomorrow = midnight - 2 * MINUTE, midnight + 2 * MINUTE
    warehouse.append("lookups", [lookup("a", "u", "treated", at=today), lookup("b", "u", "treated", at=tomorrow)])
    for day, name in ((today, "h1"), (tomorrow, "h2")):
        warehouse.append("lookups", [lookup(name, "h", "holdout", at=day)])
    warehouse.append("interactions", [click("late", "u", at=tomorrow + MINUTE)])
    assert (added(warehouse, settings), added(warehouse, settings, TOMORROW)) == (0.0, 1.0)
    warehouse.append("interactions", [click("named", "u", at=tomorrow + MINUTE, request="a")])
    assert (added(warehouse, settings), added(warehouse, settings, TOMORROW)) == (1.0, 1.0)


def test_segments_are_slices_and_an_arm_without_lookups_measures_nothing(
    warehouse: Warehouse, settings: Settings
) -> None:
    users = [{"user_id": name, "valid_from": NOON - timedelta(days=5), "segment": segment}
             for name, segment in (("t1", "new"), ("h1", "new"), ("t2", "old"))]  # fmt: skip
    warehouse.append("users", users)
    warehouse.append("lookups", [lookup("1", "t1", "treated"), lookup("2", "t2", "treated")])
    assert measure_outcomes(warehouse, settings, "recs", DAY, TOMORROW, now=LATER) == []
    warehouse.append("lookups", [lookup("3", "h1", "holdout")])
    rows = measure_outcomes(warehouse, settings, "recs", DAY, TOMORROW, now=NOON + timedelta(days=1))
    assert [row["slice"] for row in rows] == ["all", "segment=new"]
    assert {row["state"] for row in rows} == {"provisional"}  # clicks may still come in for a day


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for trial in range(120):
        eager = rng.gamma(2.0, 0.05, size=400)
        arms = np.where(rng.random(400) < 0.25, "holdout", "treated")
        lookups = rng.integers(1, 12, size=400)
        rates = eager * np.where(arms == "treated", 1.5, 1.0)
        users = [
            {"arm": arm, "lookups": int(n), "clicks": int(rng.poisson(n * rate))}
            for arm, n, rate in zip(arms, lookups, rates, strict=True)
        ]
        truth = float((lookups * eager * 0.5)[arms == "treated"].sum())
        found = estimate(users, seed=trial, resamples=300)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.88 <= covered / 120 <= 1.0


def test_the_order_of_users_does_not_move_a_bound() -> None:
    users = [{"arm": "treated" if i % 3 else "holdout", "lookups": i % 5 + 1, "clicks": i % 2} for i in range(60)]
    assert estimate(users, seed=1) == estimate(users[::-1], seed=1) != estimate(users, seed=2)


def payment(name: str, *, at: datetime = NOON, category: str = "food") -> dict[str, Any]:
    return {
        "transaction_id": name, "happened_at": at, "merchant_category": category, "amount": Decimal(5),
        "currency": "USD",
    }  # fmt: skip


def said(name: str, alerted: bool, *, at: datetime = NOON, version: str = "v1",
         run: str | None = None) -> dict[str, Any]:  # fmt: skip
    return {
        "model": "fraud", "model_version": version, "entity_id": name, "predicted_at": at, "score": 0.9,
        "threshold": 0.5, "alerted": alerted, "run_id": run,
    }  # fmt: skip


def test_fraud_cases_grow_as_labels_come_in_and_settle_when_they_have_matured(
    warehouse: Warehouse, settings: Settings
) -> None:
    warehouse.append("transactions", [payment("p1"), payment("p2", category="travel"), payment("p3"), payment("p4")])
    warehouse.append("predictions", [said("p1", True), said("p2", True), said("p3", True), said("p4", False)])
    fraud = {"p1": 2, "p2": 4, "p4": 1}
    warehouse.append("labels", [
        {"transaction_id": name, "known_at": NOON + timedelta(days=days), "is_fraud": True}
        for name, days in fraud.items()
    ] + [{"transaction_id": "p3", "known_at": NOON + timedelta(days=5), "is_fraud": False}])  # fmt: skip

    def known(days: int) -> dict[str, tuple[float, float, str]]:
        rows = measure_outcomes(warehouse, settings, "fraud", DAY, TOMORROW, now=NOON + timedelta(days=days))
        return {row["slice"]: (row["count"], row["high"], row["state"]) for row in rows}

    assert known(1)["all"] == (0, 3, "provisional")
    assert known(3)["all"] == (1, 3, "provisional")
    assert known(4)["merchant_category=travel"] == (1, 1, "measured")
    assert known(9) == {
        "all": (2, 2, "measured"),
        "merchant_category=food": (1, 1, "measured"),
        "merchant_category=travel": (1, 1, "measured"),
    }
    assert len(warehouse.rows("outcomes", where="slice = 'all'")) == 1


def test_a_payment_scored_twice_is_caught_by_the_alert_that_came_first(
    warehouse: Warehouse, settings: Settings
) -> None:
    warehouse.append("transactions", [payment("p1")])
    warehouse.append("predictions", [said("p1", False), said("p1", True, at=NOON + MINUTE, version="v2")])
    warehouse.append("labels", [{"transaction_id": "p1", "known_at": NOON, "is_fraud": True}])
    rows = measure_outcomes(warehouse, settings, "fraud", DAY, TOMORROW, now=LATER)
    assert [(row["model_version"], row["count"]) for row in rows if row["slice"] == "all"] == [("v1", 0.0)]


def test_an_alert_made_after_the_label_was_known_caught_nothing(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "in time", stage="serving", start=NOON + timedelta(days=1))
    past_run(warehouse, "weeks late", stage="serving", start=NOON + timedelta(days=20))
    names = {"p1": "in time", "p2": "weeks late", "p3": None}
    warehouse.append("transactions", [payment(name) for name in names])
    warehouse.append("predictions", [said(name, True, run=run) for name, run in names.items()])
    label = {"known_at": NOON + timedelta(days=5), "is_fraud": True}
    warehouse.append("labels", [{**label, "transaction_id": name} for name in names])
    again = {**label, "known_at": NOON + timedelta(days=25)}  # said once more: it was known before
    warehouse.append("labels", [{**again, "transaction_id": "p2"}])
    rows = measure_outcomes(warehouse, settings, "fraud", DAY, TOMORROW, now=LATER)
    assert [row["count"] for row in rows if row["slice"] == "all"] == [2.0]


def _covered(warehouse: Warehouse, settings: Settings, model: str, now: datetime) -> Covered | None:
    outcomes = counted_by_month(warehouse, settings, model)
    return covered_by_month(warehouse, settings.model(model), model, outcomes, now).get("2026-03")


def test_days_that_were_not_scored_are_said(warehouse: Warehouse, settings: Settings) -> None:
    days = [NOON + timedelta(days=n) for n in range(4)]
    warehouse.append("transactions", [payment(f"p{n}", at=day) for n, day in enumerate(days)])
    assert _covered(warehouse, settings, "fraud", days[3]) == Covered(0, 3)  # the fourth is not over
    ends = [datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) for day in days[:2]]
    warehouse.append("predictions", [said(f"p{n}", True, at=end) for n, end in enumerate(ends)])
    assert _covered(warehouse, settings, "fraud", days[3]) == Covered(0, 3)  # nobody counted yet
    measure_outcomes(warehouse, settings, "fraud", DAY, TOMORROW, now=LATER)
    assert _covered(warehouse, settings, "fraud", days[3]) == Covered(1, 3)  # only the first day was counted
    measure_outcomes(warehouse, settings, "fraud", date(2026, 3, 1), date(2026, 3, 20), now=LATER)
    found = _covered(warehouse, settings, "fraud", days[3])
    assert found is not None and not found.whole and found.reason == "only 2 of 3 days were scored"


def test_days_on_which_nobody_was_served_are_said(warehouse: Warehouse, settings: Settings) -> None:
    days = [NOON + timedelta(days=n) for n in range(3)]
    warehouse.append("interactions", [click(f"c{n}", "u", at=day, kind="view") for n, day in enumerate(days)])
    warehouse.append("lookups", [lookup("t", "t", "treated"), lookup("h", "h", "holdout"),
                                 lookup("h2", "h", "holdout", at=days[1])])  # fmt: skip
    measure_outcomes(warehouse, settings, "recs", date(2026, 3, 1), date(2026, 4, 1), now=LATER)
    found = _covered(warehouse, settings, "recs", LATER)
    assert found == Covered(1, 3, "served") and found.reason == "only 1 of 3 days were served"


def test_hits_are_kept_day_by_day_when_their_lists_are_gone(warehouse: Warehouse, settings: Settings) -> None:
    hits, morning = _hits_settings(settings), datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    warehouse.append("interactions", [
        click(f"b{n}", "u", at=NOON + timedelta(days=n), kind="purchase") for n in range(3)
    ])  # fmt: skip
    for n in range(2):
        version, cut = f"lists-{n}", morning + timedelta(days=n)
        place = {"version": version, "user_id": "u", "rank": 1, "item_id": "i1", "score": 1.0}
        warehouse.write_version("recommendations", "recs", version, [place])
        warehouse.append("publications", [{
            "version": version, "model": "recs", "model_version": "m1", "validation": "{}", "users": 1,
            "data_cut": cut, "published_at": cut,
        }])  # fmt: skip
        clock = Clock.fixed_origin(cut + timedelta(days=1, hours=3))
        [month] = count_outcomes(warehouse, hits, clock, "recs")
        assert (month["count"], month["start"].day, month["end"]) == (n + 1, 1, cut + timedelta(days=1))
        warehouse.drop_version("recommendations", "recs", version)
    found = counted(warehouse, hits, "recs", "2026-03")
    assert found is not None and found.count == 2 and len(found.windows) == 2
    assert _covered(warehouse, hits, "recs", LATER) == Covered(2, 3, "counted")


def test_a_month_is_counted_again_while_any_slice_of_it_is_open(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("transactions", [payment("p1"), payment("p2", at=MONTH_END, category="travel")])
    warehouse.append("predictions", [said("p1", True), said("p2", True)])
    labels = [{"transaction_id": name, "known_at": NOON + timedelta(days=days), "is_fraud": True}
              for name, days in (("p1", 1), ("p2", 24))]  # fmt: skip
    warehouse.append("labels", labels)
    for day, caught, state in ((2, 1.0, "provisional"), (20, 2.0, "measured")):
        clock = Clock.fixed_origin(datetime(2026, 4, day, tzinfo=UTC))
        rows = count_outcomes(warehouse, settings, clock, "fraud")
        assert [(row["count"], row["state"]) for row in rows if row["slice"] == "all"] == [(caught, state)]


def _hits_settings(settings: Settings) -> Settings:
    block = settings.models["recs"]
    outcome = block.outcome.model_copy(update={"unit": "hits", "hits_at": 2})
    return settings.model_copy(update={"models": {"recs": block.model_copy(update={"outcome": outcome})}})


def test_hits_are_purchases_in_the_list_of_that_morning_and_named_a_proxy(
    warehouse: Warehouse, settings: Settings
) -> None:
    hits = _hits_settings(settings)
    morning = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    assert measure_outcomes(warehouse, hits, "recs", DAY, TOMORROW, now=LATER) == []
    places = [{"user_id": "u", "rank": rank, "item_id": f"i{rank}", "score": 1.0 / rank} for rank in (1, 2, 3)]
    for version, cut in (("old", -1), ("new", 0), ("next", 1)):
        warehouse.write_version("recommendations", "recs", version, [{"version": version, **row} for row in places])
        warehouse.append("publications", [{
            "version": version, "model": "recs", "model_version": f"m-{version}", "validation": "{}", "users": 1,
            "data_cut": morning + timedelta(days=cut), "published_at": morning + timedelta(days=cut, hours=1),
        }])  # fmt: skip
    buys = [("b1", "u", "i1"), ("b2", "u", "i1"), ("b3", "u", "i3"), ("b4", "nobody", "i1")]
    warehouse.append("interactions", [click(name, user, item, kind="purchase") for name, user, item in buys])
    [row] = measure_outcomes(warehouse, hits, "recs", DAY, TOMORROW, now=LATER)
    assert (row["count"], row["state"], row["model_version"]) == (1.0, "proxy", "m-new")
    assert row["source"].startswith("proxy: 2 purchases")


def test_months_are_counted_up_to_the_last_complete_day_and_settled_ones_once(
    warehouse: Warehouse, settings: Settings
) -> None:
    warehouse.append("transactions", [payment("p1")])
    warehouse.append("predictions", [said("p1", True)])
    warehouse.append("labels", [{"transaction_id": "p1", "known_at": NOON, "is_fraud": True}])
    clock = Clock.fixed_origin(datetime(2026, 4, 20, 3, tzinfo=UTC))
    for _ in range(2):
        rows = count_outcomes(warehouse, settings, clock, "fraud")
        assert [(row["start"].date(), row["end"].date(), row["count"]) for row in rows if row["slice"] == "all"] == [
            (date(2026, 3, 1), date(2026, 4, 1), 1.0)
        ]
    assert list(months(date(2026, 3, 9), date(2026, 4, 20))) == [
        (date(2026, 3, 1), date(2026, 4, 1)),
        (date(2026, 4, 1), date(2026, 4, 20)),
    ]
