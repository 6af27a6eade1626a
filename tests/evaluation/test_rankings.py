"""Recommenders on held-out days: the same question for everybody, whatever order items, users and rows come in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation import rankings
from mlcost_pipeline.evaluation.rankings import PopularList, last_new_question, question, rank

CUT = datetime(2025, 6, 10, tzinfo=UTC)
END = CUT + timedelta(days=7)
ITEMS = [f"{n:05d}" for n in range(30)]  # ids with leading zeros stay text


class Nearest:
    """A recommender with fixed vectors; a user is the mean of the items bought."""

    def __init__(self, items: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self.items, self.item_vectors = list(items), vectors

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        assert all(len(history) for history in histories)
        return np.stack([self.item_vectors[history].mean(axis=0) for history in histories])


def write(folder: Path, rows: Sequence[dict[str, Any]], withdrawn: Sequence[str] = ()) -> Path:
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    at = table.schema.get_field_index("happened_at")
    table = table.set_column(at, "happened_at", table["happened_at"].cast(pa.timestamp("us", tz="UTC")))
    pq.write_table(table, folder / "events.parquet")
    items = [{"item_id": item, "withdrawn": item in withdrawn} for item in ITEMS]
    pq.write_table(pa.Table.from_pylist(items), folder / "items.parquet")
    return folder


def bought(user: str, item: str, at: datetime, event: str) -> dict[str, Any]:
    return {"user_id": user, "item_id": item, "happened_at": at, "event_id": event}


def some_events(seed: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        bought(f"u{rng.integers(40):02d}", ITEMS[rng.integers(30)], CUT + timedelta(hours=int(rng.integers(-400, 160))),
               f"e{n:04d}")
        for n in range(700)
    ]  # fmt: skip


def some_model(seed: int = 2) -> Nearest:
    rng = np.random.default_rng(seed)
    return Nearest(ITEMS, rng.integers(-2, 3, (30, 4)).astype(np.float32))  # small integers: ties in plenty


def test_the_popular_list_by_hand(tmp_path: Path) -> None:
    before, after = CUT - timedelta(days=3), CUT + timedelta(days=1)
    rows = [bought(f"u{n}", "00001", before, f"a{n}") for n in range(3)]
    rows += [bought(f"u{n}", "00002", before, f"b{n}") for n in range(2)]
    rows += [bought("u0", "00003", after, "c0"), bought("u2", "00002", after, "c2")]
    rows += [bought("new", "00001", after, "c3")]
    asked = question(write(tmp_path / "f", rows), CUT, END)
    assert asked.users == ["u0", "u2"]  # u1 buys nothing, `new` has no history
    popular = PopularList.of(asked)
    assert rank(popular, asked, 1).hit.tolist() == [False, True]  # u0 has both popular items and gets 00000
    assert rank(popular, asked, 2).hit.tolist() == [True, True]  # then 00003: of equal counts the smaller id first


def test_the_popular_list_is_counted_on_its_own_days(tmp_path: Path) -> None:
    rows = [bought(f"u{n}", "00001", CUT - timedelta(days=40), f"a{n}") for n in range(5)]
    rows += [bought("u9", "00002", CUT - timedelta(days=3), "b"), bought("u0", "00002", CUT, "c")]
    asked = question(write(tmp_path / "f", rows), CUT, END, popular_days=28)
    assert rank(PopularList.of(asked), asked, 1).hit.tolist() == [True]


def test_items_bought_before_count_only_where_they_may_be_recommended(tmp_path: Path) -> None:
    rows = [bought("u0", "00001", CUT - timedelta(days=2), "a"), bought("u0", "00001", CUT + timedelta(days=2), "b")]
    folder = write(tmp_path / "f", rows)
    with pytest.raises(NothingCompared, match="no user with purchases before"):
        question(folder, CUT, END)
    again = question(folder, CUT, END, repeats=True)
    assert rank(PopularList.of(again), again, 1).hit.tolist() == [True]


def test_an_item_the_model_never_met_is_missed_and_a_user_it_cannot_know_gets_the_popular_list(tmp_path: Path) -> None:
    before, after = CUT - timedelta(days=2), CUT + timedelta(days=2)
    rows = [
        bought("u0", "00001", before, "a"), bought("u0", "00009", after, "b"),  # 00009 is new to the model
        bought("u1", "00009", before, "c"), bought("u1", "00001", after, "d"),  # so is all that u1 has bought
    ]  # fmt: skip
    asked = question(write(tmp_path / "f", rows), CUT, END)
    old = Nearest(ITEMS[:5], np.eye(5, dtype=np.float32))
    assert rank(old, asked, 1).hit.tolist() == [False, True]


def test_withdrawn_items_and_padding_are_never_listed_or_wanted(tmp_path: Path) -> None:
    before, after = CUT - timedelta(days=2), CUT + timedelta(days=2)
    rows = [bought("u0", "00001", before, "a"), bought("u0", "00002", after, "b"), bought("u0", "00003", after, "c")]
    asked = question(write(tmp_path / "f", rows, withdrawn=["00002"]), CUT, END)
    assert asked.target_item.tolist() == [3]
    vectors = np.array([[9], [1], [5], [3]], dtype=np.float32)  # padding scores best, the withdrawn item second
    padded = Nearest(["", "00001", "00002", "00003"], vectors)
    assert rank(padded, asked, 1).hit.tolist() == [True]


def test_the_order_of_rows_and_items_does_not_matter(tmp_path: Path) -> None:
    rows, model = some_events(), some_model()
    first = question(write(tmp_path / "a", rows), CUT, END)
    shuffled = np.random.default_rng(3).permutation(len(rows))
    again = question(write(tmp_path / "b", [rows[n] for n in shuffled]), CUT, END)
    order = np.random.default_rng(4).permutation(len(ITEMS))
    other = Nearest([ITEMS[n] for n in order], model.item_vectors[order])
    found, same = rank(model, first, 5), rank(other, again, 5)
    assert first.users == again.users and found.hit.any() and not found.hit.all()
    assert found.ndcg.tolist() == same.ndcg.tolist()


def test_blocks_of_one_user_give_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, model = question(write(tmp_path / "f", some_events()), CUT, END), some_model()
    whole = rank(model, asked, 5)
    monkeypatch.setattr(rankings, "BLOCK_BYTES", 1)
    assert rank(model, asked, 5).ndcg.tolist() == whole.ndcg.tolist()


def test_scores_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    asked = question(write(tmp_path / "f", some_events()), CUT, END)
    broken = some_model()
    broken.item_vectors[3] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        rank(broken, asked, 5)


def test_ranking_agrees_with_a_plain_sort_of_everything(tmp_path: Path) -> None:
    asked, model = question(write(tmp_path / "f", some_events()), CUT, END), some_model()
    hit = []
    for row in range(len(asked.users)):
        history = asked.history_of(row)
        user = model.item_vectors[history].mean(axis=0)
        scores = {item: float(user @ model.item_vectors[n]) for n, item in enumerate(ITEMS)}
        best = sorted((i for n, i in enumerate(ITEMS) if n not in history), key=lambda i: (-scores[i], i))[:5]
        wanted = {ITEMS[n] for n in asked.target_item[asked.target_user == row]}
        hit.append(bool(wanted & set(best)))
    assert rank(model, asked, 5).hit.tolist() == hit


def test_the_last_new_item_as_in_published_comparisons(tmp_path: Path) -> None:
    at = CUT - timedelta(days=9)
    rows = [bought("u0", f"{n:05d}", at + timedelta(days=n), f"e{n}") for n in range(3)]
    asked = last_new_question(write(tmp_path / "f", [*rows, bought("u1", "00001", at, "z")]))
    assert asked.users == ["u0"] and asked.target_item.tolist() == [2] and asked.history.tolist() == [0, 1]
    with pytest.raises(NothingCompared):
        last_new_question(write(tmp_path / "g", rows[:1]))
