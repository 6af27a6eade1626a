"""Batch scoring: exact lists that depend on the model and the history alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.inference.batch import Scored, score_users, shard_of
from mlcost_pipeline.inference.histories import build_histories
from mlcost_pipeline.inference.ranking import Catalogue, rank_block


class Mean:
    """A recommender whose users are the mean of their items' vectors."""

    def __init__(self, items: list[str], vectors: NDArray[np.float32]) -> None:
        self.items, self.item_vectors = items, vectors
        self.calls: list[int] = []

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        self.calls.append(len(histories))
        return np.array([self.item_vectors[row].mean(axis=0) for row in histories], dtype=np.float32)


def table(pairs: Sequence[tuple[str, str]]) -> pa.Table:
    users, items = [user for user, _ in pairs], [item for _, item in pairs]
    return pa.table({"user_id": pa.array(users, pa.string()), "item_id": pa.array(items, pa.string())})


def lists(scored: Scored) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in scored.lists.to_pylist():
        found.setdefault(row["user_id"], []).append(row["item_id"])
        assert row["rank"] == len(found[row["user_id"]])
    return found


def shop(users: int = 60, items: int = 40, d: int = 8, seed: int = 3) -> tuple[Mean, pa.Table]:
    rng = np.random.default_rng(seed)
    names = [f"i{n}" for n in range(items)]
    pairs = [(f"u{u}", names[i]) for u in range(users) for i in rng.integers(0, items, 1 + u % 7)]
    return Mean(names, rng.normal(size=(items, d)).astype(np.float32)), table(pairs)


def test_the_lists_are_the_best_by_a_plain_float64_ranking() -> None:
    model, events = shop()
    scored = lists(score_users(model, build_histories(events, events, model.items), k=5))
    for user in ("u0", "u17", "u59"):
        history = [model.items.index(i) for u, i in zip(*events.to_pydict().values(), strict=True) if u == user]
        vector = model.item_vectors[history].mean(axis=0).astype(np.float64)
        exact = model.item_vectors.astype(np.float64) @ vector
        rest = sorted((i for i in range(40) if i not in history), key=lambda i: (-exact[i], model.items[i]))
        assert scored[user] == [model.items[i] for i in rest[:5]]


@settings(max_examples=25, deadline=None)
@given(
    shards=st.integers(1, 7),
    block_bytes=st.integers(1, 40_000),
    users=st.integers(1, 40),
    items=st.integers(1, 60),
    k=st.integers(1, 70),
    ties=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_bit_equal_for_any_number_of_shards_and_any_block(
    shards: int, block_bytes: int, users: int, items: int, k: int, ties: bool, seed: int
) -> None:
    model, events = shop(users, items, seed=seed)
    if ties:  # many items with the very same vector: only the item id can decide
        model.item_vectors = np.round(model.item_vectors[:, :2] * 2).astype(np.float32)
    histories = build_histories(events, events, model.items)
    one = score_users(model, histories, k=k)
    many = score_users(model, histories, k=k, shards=shards, block_bytes=block_bytes)
    assert many.lists.equals(one.lists)
    assert many.owns_all == one.owns_all
    assert set(model.calls) == {64}, "the model is always asked for the same number of rows"


def test_a_user_scored_alone_gets_the_list_they_get_among_others() -> None:
    model, events = shop()
    histories = build_histories(events, events, model.items)
    alone = events.filter(pa.compute.equal(events.column("user_id"), "u8"))
    one = score_users(model, build_histories(alone, alone, model.items), k=7).lists
    whole = score_users(model, histories, k=7).lists
    assert one.equals(whole.filter(pa.compute.equal(whole.column("user_id"), "u8")))


def test_ids_come_out_as_the_text_they_came_in() -> None:
    ids = ["10", "20", "007", "7", "1000000000000", str(2**63 + 11), "Ünïcode ☃", ""]
    items = ["00", "0", str(2**64), "a,b", "c", "d", "e", "f", "g"]
    model = Mean(items, np.eye(9, 4, dtype=np.float32) + 0.1)
    pairs = table([(user, items[n]) for n, user in enumerate(ids)])
    scored = lists(score_users(model, build_histories(pairs, pairs, items), k=9))
    assert set(scored) == set(ids)
    for n, user in enumerate(ids):
        assert set(scored[user]) == set(items) - {items[n]}, "everything but their own item, nobody else's"


def test_fewer_eligible_items_than_asked_for_are_not_padded() -> None:
    items = ["a", "b", "c", "d", "e", "f"]
    model = Mean(items, np.eye(6, dtype=np.float32))
    pairs = table([("four", i) for i in "abcd"] + [("all", i) for i in items])
    scored = score_users(model, build_histories(pairs, pairs, items), k=4)
    assert lists(scored) == {"four": ["e", "f"]}
    assert scored.owns_all == ["all"]
    assert np.isfinite(scored.lists.column("score").to_numpy()).all()


def test_withdrawn_items_are_in_no_list_and_do_not_shorten_it() -> None:
    model, events = shop()
    gone = frozenset({"i1", "i2", "i3"})
    scored = lists(score_users(model, build_histories(events, events, model.items), k=10, withdrawn=gone))
    assert all(gone.isdisjoint(row) and len(row) == 10 for row in scored.values())
    nothing = score_users(model, build_histories(events, events, model.items), k=10, withdrawn=frozenset(model.items))
    assert nothing.lists.num_rows == 0


def test_seen_items_come_back_only_where_the_policy_says_so() -> None:
    items = ["a", "b", "c"]
    model = Mean(items, np.eye(3, dtype=np.float32))
    pairs = table([("u", "b")])
    histories = build_histories(pairs, pairs, items)
    assert lists(score_users(model, histories, k=3))["u"] == ["a", "c"]
    assert lists(score_users(model, histories, k=3, recommend_seen=True))["u"] == ["b", "a", "c"]


def test_repeated_events_bar_an_item_once_and_order_of_seen_does_not_matter() -> None:
    model, events = shop()
    doubled = pa.concat_tables([events, events]).take(pa.array(np.random.default_rng(1).permutation(2 * len(events))))
    plain = score_users(model, build_histories(events, events, model.items), k=5)
    assert plain.lists.equals(score_users(model, build_histories(events, doubled, model.items), k=5).lists)


def test_a_user_none_of_whose_items_the_model_knows_has_no_list() -> None:
    items = ["a", "b"]
    model = Mean(items, np.eye(2, dtype=np.float32))
    pairs = table([("old", "a"), ("new", "launched yesterday")])
    scored = score_users(model, build_histories(pairs, pairs, items), k=2)
    assert scored.no_history == ["new"]
    assert lists(scored) == {"old": ["b"]}


def test_candidates_that_the_first_pass_cannot_tell_apart_are_looked_at_again() -> None:
    """A thousand items within rounding of each other: the float32 product alone would order them wrongly."""
    rng = np.random.default_rng(0)
    items = [f"i{n:04d}" for n in range(1000)]
    vectors = (1000 + rng.normal(size=(1000, 16)) * 1e-3).astype(np.float32)
    user = np.ones((1, 16), dtype=np.float32)
    ranked = rank_block(user, Catalogue.of(items, vectors, frozenset()), [np.zeros(0, dtype=np.int64)], 5)
    exact = [float(sum(float(x) for x in row)) for row in vectors]
    assert ranked.places[0].tolist() == sorted(range(1000), key=lambda i: (-exact[i], items[i]))[:5]


def test_shards_are_stable_and_cover_everybody() -> None:
    assert [shard_of(user, 8) for user in ("10", "007", str(2**70))] == [4, 5, 1]
    sizes = np.bincount([shard_of(str(n), 4) for n in range(4000)])
    assert sizes.sum() == 4000 and sizes.min() > 900


@pytest.mark.parametrize(("items", "match"), [(["a", "a"], "twice"), (["a", "b", "c"], "3 items")])
def test_a_model_whose_items_do_not_fit_is_refused(items: list[str], match: str) -> None:
    pairs = table([("u", "a")])
    with pytest.raises(ModelError, match=match):
        model = Mean(items, np.eye(2, dtype=np.float32))
        score_users(model, build_histories(pairs, pairs, items), k=1)


def test_a_model_that_answers_with_nan_is_refused_by_user() -> None:
    model, events = shop(3, 5)
    model.represent = lambda histories: np.full((len(histories), 8), np.nan, dtype=np.float32)  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="'u0'"):
        score_users(model, build_histories(events, events, model.items), k=2)
