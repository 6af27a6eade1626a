"""Publication: whole or not at all, once, and never backwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import NothingCompared, PublicationError
from mlcost_pipeline.inference import pointer, publication
from mlcost_pipeline.inference.publication import Publication, make_version, prune, rollback
from mlcost_pipeline.inference.store import Store, store_folder, verify_store


def publish(shop: Any, days_ago: int = 0, **options: Any) -> Publication:
    as_of = shop.day - timedelta(days=days_ago)
    return make_version(shop.warehouse, shop.settings, shop.clock, shop.model, as_of=as_of, **options)


def listed(shop: Any, version: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in shop.warehouse.read_version("recommendations", shop.model, version).to_pylist():
        found.setdefault(row["user_id"], []).append(row["item_id"])
    return found


def test_a_version_goes_live_with_a_list_for_every_known_user(shop: Any) -> None:
    made = publish(shop)
    assert (made.live, made.reason, made.users) == (True, "published", 80)
    assert made.validation["passed"]
    assert shop.warehouse.current("recommendations", shop.model) == made.version
    store = Store(store_folder(shop.warehouse, shop.model, made.version))
    lists = listed(shop, made.version)
    assert len(lists) == 80
    for user, items in lists.items():
        entry = store.get(user)
        assert entry is not None and entry.items == items
        assert entry.seen.isdisjoint(items) and entry.seen
    row = shop.warehouse.rows("publications")[0]
    assert row["published_at"] == made.published_at and row["data_cut"] == shop.cut


def test_again_is_the_same_version_and_changes_nothing(shop: Any) -> None:
    first = publish(shop)
    state = shop.warehouse.state.get(f"publications/{shop.model}")
    again = publish(shop)
    assert again.version == first.version and again.reason == "already_live"
    assert again.published_at == first.published_at
    assert shop.warehouse.state.get(f"publications/{shop.model}") == state
    assert len(shop.warehouse.rows("publications")) == 1


def test_shards_do_not_change_the_lists(make_shop: Callable[..., Any]) -> None:
    one, four = make_shop("one"), make_shop("four")
    first, second = publish(one), publish(four, shards=4)
    assert first.version == second.version
    files = [verify_store(store_folder(s.warehouse, s.model, first.version)).sha256 for s in (one, four)]
    assert files[0] == files[1]
    assert listed(one, first.version) == listed(four, first.version)


@pytest.fixture(scope="module")
def undisturbed(copy_shop: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Publication]:
    """The same two publications in a shop where nothing went wrong."""
    calm = copy_shop(tmp_path_factory.mktemp("calm") / "warehouse")
    publish(calm, days_ago=1)
    return calm, publish(calm)


STEPS = ["score_users", "validate", "write_store", "verify_store", "pointer.move", "pointer.follow", "published row"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_between_any_two_writes_and_run_again(
    make_shop: Callable[..., Any],
    undisturbed: tuple[Any, Publication],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    calm, expected = undisturbed
    shop = make_shop("killed")
    before = publish(shop, days_ago=1)
    with monkeypatch.context() as patch:
        kill_at(patch, shop, step)
        with pytest.raises(KeyboardInterrupt):
            publish(shop)
    now = pointer.live(shop.warehouse, shop.model)
    assert now is not None
    moved = step in ("pointer.follow", "published row")
    assert now.version == (expected.version if moved else before.version)
    Store(store_folder(shop.warehouse, shop.model, now.version))
    after = publish(shop)
    assert after.live and after.version == expected.version
    assert shop.warehouse.current("recommendations", shop.model) == expected.version
    assert listed(shop, after.version) == listed(calm, expected.version)
    told = [{k: v for k, v in row.items() if k != "published_at"} for row in shop.warehouse.rows("publications")]
    assert told == [{k: v for k, v in r.items() if k != "published_at"} for r in calm.warehouse.rows("publications")]
    assert all(row["published_at"] for row in shop.warehouse.rows("publications"))


def kill_at(patch: pytest.MonkeyPatch, shop: Any, step: str) -> None:
    def die(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt(step)

    if step == "published row":
        append = shop.warehouse.append

        def die_on_published(table: str, rows: Any) -> Any:
            if table == "publications" and any(row.get("published_at") for row in rows):
                die()
            return append(table, rows)

        patch.setattr(shop.warehouse, "append", die_on_published)
    elif step == "write_store":  # after the file, before its manifest
        patch.setattr("mlcost_pipeline.inference.store._write_manifest", die)
    elif step == "verify_store":
        patch.setattr("mlcost_pipeline.inference.publication.verify_store", die)
    elif step.startswith("pointer."):
        patch.setattr(pointer, step.removeprefix("pointer."), die)
    else:
        patch.setattr(publication, step, die)


def test_an_old_day_never_moves_the_pointer_back(shop: Any) -> None:
    newest = publish(shop)
    old = publish(shop, days_ago=3)
    assert (old.live, old.reason) == (False, "earlier_data_cut")
    assert pointer.live(shop.warehouse, shop.model).version == newest.version  # type: ignore[union-attr]
    assert listed(shop, old.version), "the backfilled lists are there to be read, only not live"


def test_a_day_that_is_not_over_is_refused(shop: Any) -> None:
    shop.clock = Clock.fixed_origin(shop.cut - timedelta(hours=1))
    with pytest.raises(PublicationError, match="when it is over"):
        publish(shop)


def test_rollback_goes_to_the_version_before_and_is_on_record(shop: Any) -> None:
    old = publish(shop, days_ago=1)
    bad = publish(shop)
    for _ in range(2):  # naming the version makes the repeat harmless
        now = rollback(shop.warehouse, shop.clock, shop.model, "wrong prices", version=bad.version, who="anna")
        assert now == old.version
    assert shop.warehouse.current("recommendations", shop.model) == old.version
    acts = shop.warehouse.rows("acts")
    assert [(act["verb"], act["who"], act["reason"]) for act in acts] == [("rollback", "anna", "wrong prices")]
    row = shop.warehouse.rows("publications", where="version = ?", params=[bad.version])[0]
    assert row["rolled_back_at"] == acts[0]["at"]
    again = publish(shop)
    assert (again.live, again.reason) == (False, "rolled_back"), "what was rolled back does not come back by itself"
    with pytest.raises(PublicationError, match="no earlier version"):
        rollback(shop.warehouse, shop.clock, shop.model, "and again")


def test_only_the_last_versions_are_kept_and_never_less_than_the_live_one(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(keep_versions=2)
    made = [publish(shop, days_ago=days).version for days in (3, 2, 1, 0)]
    assert shop.warehouse.versions("recommendations", shop.model) == sorted(made[-2:])
    folders = {path.name for path in (shop.warehouse.root / "artefacts" / shop.model / "publications").iterdir()}
    assert folders == set(made[-2:])
    rollback(shop.warehouse, shop.clock, shop.model, "x")
    prune(shop.warehouse, shop.model, keep=1)
    assert pointer.live(shop.warehouse, shop.model).version == made[-2]  # type: ignore[union-attr]
    Store(store_folder(shop.warehouse, shop.model, made[-2]))


def test_a_rollback_skips_a_version_whose_file_is_damaged(shop: Any) -> None:
    first, middle, bad = (publish(shop, days_ago=days).version for days in (2, 1, 0))
    file = store_folder(shop.warehouse, shop.model, middle) / "lists.sqlite"
    file.write_bytes(file.read_bytes()[:-100])
    assert rollback(shop.warehouse, shop.clock, shop.model, "x", version=bad) == first


def test_two_publishers_of_one_day(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is about to move the pointer, another does all the work and moves it first."""
    move, others = pointer.move, []

    def second_first(*args: Any) -> Any:
        if not others:
            others.append(None)
            others.append(publish(shop))
        return move(*args)

    monkeypatch.setattr(pointer, "move", second_first)
    one = publish(shop)
    assert one.version == others[1].version
    assert (others[1].reason, one.reason) == ("published", "already_live")
    assert one.published_at == others[1].published_at
    assert len(shop.warehouse.rows("publications")) == 1


def test_a_publisher_that_was_overtaken_by_a_promotion_does_not_go_live(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = publication.write_store

    def promoted_meanwhile(*args: Any, **kwargs: Any) -> Any:
        if "job-2" not in json.dumps(shop.warehouse.state.get(f"models/{shop.model}").value):
            shop.train("job-2", seed=5)
        return write(*args, **kwargs)

    monkeypatch.setattr(publication, "write_store", promoted_meanwhile)
    late = publish(shop)
    assert (late.live, late.reason) == (False, "model_superseded")
    assert pointer.live(shop.warehouse, shop.model) is None


def test_disk_full_while_publishing_leaves_what_was_live(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = publish(shop, days_ago=1)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mlcost_pipeline.inference.store.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            publish(shop)
    assert pointer.live(shop.warehouse, shop.model).version == before.version  # type: ignore[union-attr]
    assert publish(shop).live


def test_without_a_model_or_anything_to_score_nothing_is_published(shop: Any) -> None:
    shop.warehouse.state.update(f"models/{shop.model}", lambda _: {"incumbent": None})
    with pytest.raises(PublicationError, match="no version is in production"):
        publish(shop)


def test_a_catalogue_that_is_withdrawn_whole_is_nothing_to_compare(shop: Any) -> None:
    for n in range(30):
        shop.withdraw(f"item{n:02d}", shop.cut - timedelta(hours=1))
    with pytest.raises(NothingCompared):
        publish(shop)


def test_withdrawn_before_the_cut_is_in_no_list_and_not_popular(shop: Any) -> None:
    shop.withdraw("item00", shop.cut - timedelta(microseconds=1))
    made = publish(shop)
    store = Store(store_folder(shop.warehouse, shop.model, made.version))
    assert all("item00" not in items for items in listed(shop, made.version).values())
    assert "item00" not in store.orders["popular"] + store.orders["static"]


def test_an_event_exactly_at_the_cut_belongs_to_the_next_day(shop: Any) -> None:
    shop.purchase("late", "item01", shop.cut)
    shop.purchase("early", "item01", shop.cut - timedelta(microseconds=1))
    lists = listed(shop, publish(shop).version)
    assert "early" in lists and "late" not in lists


def test_ids_survive_publication(make_shop: Callable[..., Any]) -> None:
    users = ["10", "20", "007", "7", str(2**63 + 5), "1000000000000", *(f"u{n}" for n in range(60))]
    shop = make_shop(users=users)
    made = publish(shop)
    store = Store(store_folder(shop.warehouse, shop.model, made.version))
    assert set(listed(shop, made.version)) == set(users)
    assert store.get("007").items == listed(shop, made.version)["007"]  # type: ignore[union-attr]
    assert store.get("07") is None and store.get("1e12") is None
