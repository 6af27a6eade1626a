"""Lookups: fresh while nothing happened, something sensible whatever did."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from mlcost_pipeline.inference import pointer
from mlcost_pipeline.inference.answer import Answer
from mlcost_pipeline.inference.arms import arm_of
from mlcost_pipeline.inference.lookup import Lookup
from mlcost_pipeline.inference.publication import Publication, make_version, rollback
from mlcost_pipeline.inference.store import Store, store_folder

HOUR = timedelta(hours=1)


def publish(shop: Any, days_ago: int = 0) -> Publication:
    as_of = shop.day - timedelta(days=days_ago)
    return make_version(shop.warehouse, shop.settings, shop.clock, shop.model, as_of=as_of)


def open_lookup(shop: Any) -> Lookup:
    return Lookup(shop.warehouse, shop.settings, shop.model)


def ask(shop: Any, user: str | None, at: datetime | None = None) -> Answer:
    return open_lookup(shop).recommend(user, at=at or shop.cut + HOUR, log=False)


def stored(shop: Any, version: str, user: str) -> list[str]:
    entry = Store(store_folder(shop.warehouse, shop.model, version)).get(user)
    assert entry is not None and entry.items is not None
    return entry.items


def test_a_quiet_user_is_served_their_own_list(shop: Any) -> None:
    made = publish(shop)
    answer = ask(shop, "u7", shop.cut + 2 * HOUR)
    assert (answer.tier, answer.reason, answer.version) == ("fresh", "current", made.version)
    assert answer.items == stored(shop, made.version, "u7")[:4]
    assert (answer.data_cut, answer.age_seconds) == (shop.cut, 7200)


@pytest.mark.parametrize(
    ("after", "tier"), [(timedelta(hours=48), "fresh"), (timedelta(hours=48, microseconds=1), "filtered")]
)
def test_a_list_exactly_as_old_as_allowed_is_fresh(shop: Any, after: timedelta, tier: str) -> None:
    publish(shop)
    answer = ask(shop, "u7", shop.cut + after)
    assert answer.tier == tier
    assert answer.reason == ("current" if tier == "fresh" else "too_old")
    assert answer.age_seconds == after.total_seconds()


@pytest.mark.parametrize("moment", [timedelta(0), timedelta(minutes=30)])
def test_what_was_bought_since_the_cut_is_taken_out_at_the_cut_too(shop: Any, moment: timedelta) -> None:
    made = publish(shop)
    best = stored(shop, made.version, "u7")
    shop.purchase("u7", best[0], shop.cut + moment)
    answer = ask(shop, "u7")
    assert (answer.tier, answer.reason) == ("filtered", "events_since_cut")
    assert answer.items == best[1:5]
    assert ask(shop, "u8").tier == "fresh", "staleness is judged per user"


def test_an_event_just_before_the_cut_is_in_the_list_already(shop: Any) -> None:
    shop.purchase("u7", "item29", shop.cut - timedelta(microseconds=1))
    made = publish(shop)
    assert "item29" not in stored(shop, made.version, "u7")
    assert ask(shop, "u7").tier == "fresh"


def test_events_after_the_time_asked_about_are_not_known_yet(shop: Any) -> None:
    made = publish(shop)
    shop.purchase("u7", stored(shop, made.version, "u7")[0], shop.cut + 3 * HOUR)
    assert ask(shop, "u7", shop.cut + 2 * HOUR).tier == "fresh"
    assert ask(shop, "u7", shop.cut + 3 * HOUR).tier == "filtered"


def test_an_item_withdrawn_since_is_taken_out(shop: Any) -> None:
    made = publish(shop)
    best = stored(shop, made.version, "u7")
    shop.withdraw(best[1], shop.cut + HOUR)
    assert ask(shop, "u7", shop.cut + HOUR - timedelta(seconds=1)).tier == "fresh"
    answer = ask(shop, "u7", shop.cut + HOUR)
    assert (answer.tier, answer.reason) == ("filtered", "withdrawn_items")
    assert answer.items == [best[0], *best[2:5]]


def test_too_few_left_falls_to_popular_without_what_was_seen(shop: Any) -> None:
    made = publish(shop)
    for item in stored(shop, made.version, "u7")[:7]:
        shop.purchase("u7", item, shop.cut)
    answer = ask(shop, "u7")
    assert (answer.tier, answer.reason) == ("popular", "events_since_cut_too_few_left")
    seen = shop.warehouse.rows("interactions", where="user_id = 'u7'")
    assert len(answer.items) == len(set(answer.items)) == 4
    assert not {row["item_id"] for row in seen} & set(answer.items)


def test_a_list_of_a_model_that_was_replaced_is_not_called_fresh(shop: Any) -> None:
    made = publish(shop)
    lookup = open_lookup(shop)
    assert lookup.recommend("u7", at=shop.cut, log=False).tier == "fresh"
    shop.train("job-2", seed=3)
    answer = lookup.recommend("u7", at=shop.cut, log=False)
    assert (answer.tier, answer.reason, answer.version) == ("filtered", "model_superseded", made.version)


@pytest.mark.parametrize(
    ("user", "reason"), [(None, "anonymous"), ("nobody", "unknown_user"), ("\ud800", "unknown_user")]
)
def test_strangers_are_served_what_is_popular(shop: Any, user: str | None, reason: str) -> None:
    made = publish(shop)
    answer = ask(shop, user)
    assert (answer.tier, answer.reason, answer.version) == ("popular", reason, made.version)
    assert answer.items == Store(store_folder(shop.warehouse, shop.model, made.version)).orders["popular"][:4]


def test_popular_is_what_most_people_bought_in_the_window_before_the_cut(shop: Any) -> None:
    for n in range(30):
        shop.purchase(f"u{n}", "item11", shop.cut - 2 * HOUR)
        shop.purchase(f"u{n}", "item12", shop.cut - timedelta(days=7, seconds=1))  # a second too old
        shop.purchase(f"u{n}", "item13", shop.cut)  # not before the cut
    for n in range(60):  # one bulk buyer is one user
        shop.purchase("u1", "item14", shop.cut - timedelta(hours=3, seconds=n))
    publish(shop)
    answer = ask(shop, None)
    assert answer.items[0] == "item11" and "item14" not in answer.items[:1]
    held = Store(store_folder(shop.warehouse, shop.model, pointer.live(shop.warehouse, shop.model).version))  # type: ignore[union-attr]
    assert held.orders["static"][:2] == ["item11", "item12"]


def test_who_owns_everything_is_not_left_with_an_empty_page(shop: Any) -> None:
    for n in range(30):
        shop.purchase("collector", f"item{n:02d}", shop.cut - timedelta(days=3, seconds=n))
    made = publish(shop)
    assert made.owns_all == 1
    answer = ask(shop, "collector")
    assert (answer.tier, answer.reason) == ("static", "owns_all_owns_everything")
    assert len(answer.items) == 4


def test_a_user_with_less_left_than_a_page_gets_exactly_that(shop: Any) -> None:
    for n in range(28):
        shop.purchase("almost", f"item{n:02d}", shop.cut - timedelta(days=3, seconds=n))
    publish(shop)
    answer = ask(shop, "almost")
    assert (answer.tier, sorted(answer.items)) == ("fresh", ["item28", "item29"])


def test_held_out_users_are_served_what_is_popular_for_good(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(holdout_share=0.3)
    publish(shop)
    lookup = open_lookup(shop)
    arms = {f"u{n}": lookup.recommend(f"u{n}", at=shop.cut, log=False) for n in range(80)}
    held = [user for user, answer in arms.items() if answer.arm == "holdout"]
    assert 12 <= len(held) <= 36
    assert all((arms[user].tier, arms[user].reason) == ("popular", "holdout") for user in held)
    assert all(answer.tier == "fresh" for answer in arms.values() if answer.arm == "treated")
    assert [user for user in arms if arm_of(shop.model, user, 0.3) == "holdout"] == held


def test_arms_of_two_models_are_drawn_apart_and_grow_with_the_share() -> None:
    users = [str(n) for n in range(4000)]
    small = {user for user in users if arm_of("a", user, 0.1) == "holdout"}
    assert small < {user for user in users if arm_of("a", user, 0.2) == "holdout"}
    assert 320 < len(small) < 480
    other = {user for user in users if arm_of("b", user, 0.1) == "holdout"}
    assert 15 < len(small & other) < 75, "independent draws meet in a tenth of a tenth"
    assert not any(arm_of("a", user, 0.0) == "holdout" for user in users)


def test_before_the_first_version_there_still_is_something_to_show(shop: Any) -> None:
    answer = ask(shop, "u7")
    assert (answer.tier, answer.reason, answer.version) == ("popular", "no_version", None)
    assert len(answer.items) == 4


def damage(shop: Any, version: str, how: str) -> None:
    file = store_folder(shop.warehouse, shop.model, version) / "lists.sqlite"
    data = bytearray(file.read_bytes())
    if how == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif how == "a byte flipped":
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    elif how == "not SQLite":
        file.write_bytes(b"x" * len(data))
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["truncated", "a byte flipped", "not SQLite", "missing"])
def test_a_damaged_store_falls_back_and_a_person_is_told_once(shop: Any, how: str) -> None:
    made = publish(shop)
    damage(shop, made.version, how)
    for _ in range(2):
        answer = ask(shop, "u7")
        assert (answer.tier, answer.reason) == ("popular", "store_unusable")
        assert len(answer.items) == 4
    notices = (shop.warehouse.root / "notices.jsonl").read_text().splitlines()
    assert len(notices) == 1 and made.version in json.loads(notices[0])["text"]
    publish(shop)  # publishing the version again mends its file
    assert ask(shop, "u7").tier == "fresh"


def test_a_new_version_and_a_rollback_are_picked_up_without_a_restart(shop: Any) -> None:
    lookup = open_lookup(shop)
    seen = [lookup.recommend("u7", at=shop.cut, log=False).version]
    old = publish(shop, days_ago=1)
    seen.append(lookup.recommend("u7", at=shop.cut, log=False).version)
    new = publish(shop)
    seen.append(lookup.recommend("u7", at=shop.cut, log=False).version)
    rollback(shop.warehouse, shop.clock, shop.model, "test")
    seen.append(lookup.recommend("u7", at=shop.cut, log=False).version)
    assert seen == [None, old.version, new.version, old.version]


def test_a_version_deleted_under_a_reader_is_read_to_the_end(shop: Any) -> None:
    made = publish(shop)
    lookup = open_lookup(shop)
    before = lookup.recommend("u7", at=shop.cut, log=False)
    damage(shop, made.version, "missing")
    assert lookup.recommend("u7", at=shop.cut, log=False).items == before.items


def test_the_newest_events_are_seen_after_a_refresh(shop: Any) -> None:
    made = publish(shop)
    lookup = open_lookup(shop)
    assert lookup.recommend("u7", at=shop.cut + HOUR, log=False).tier == "fresh"
    shop.purchase("u7", stored(shop, made.version, "u7")[0], shop.cut)
    lookup.refresh()
    assert lookup.recommend("u7", at=shop.cut + HOUR, log=False).tier == "filtered"


def test_seen_items_stay_where_the_policy_allows_them(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(recommend_seen=True)
    made = publish(shop)
    best = stored(shop, made.version, "u7")
    shop.purchase("u7", best[0], shop.cut)
    answer = ask(shop, "u7")
    assert (answer.tier, answer.items) == ("filtered", best[:4])


def test_nobody_sees_a_mixture_while_versions_change(shop: Any) -> None:
    """Threads ask while versions are published and rolled back; every answer is one version's own list."""
    versions = [publish(shop, days_ago=1).version, publish(shop).version]
    lists = {version: stored(shop, version, "u7")[:4] for version in versions}
    lookup, answers, stop = open_lookup(shop), [], threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            answers.append(lookup.recommend("u7", at=shop.cut, log=False))

    threads = [threading.Thread(target=keep_asking) for _ in range(3)]
    for thread in threads:
        thread.start()
    rollback(shop.warehouse, shop.clock, shop.model, "test")
    lookup.refresh()
    answers.append(lookup.recommend("u7", at=shop.cut, log=False))
    stop.set()
    for thread in threads:
        thread.join()
    assert answers[-1].version is not None and {answer.version for answer in answers} <= set(versions)
    assert any(answer.version == versions[0] for answer in answers)
    old = {answer.version for answer in answers if answer.items != lists[str(answer.version)]}
    assert old <= {versions[0]}, "only the older version may be filtered, by what was bought after its cut"


def test_an_answer_is_plain_values(shop: Any) -> None:
    publish(shop)
    told = json.loads(json.dumps(ask(shop, "u7").as_dict()))
    assert told["data_cut"] == "2025-03-21T00:00:00+00:00" and told["tier"] == "fresh"
