"""Metrics against results worked by hand, ties and padding included."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation.metrics import (
    EMPTY,
    alerted_at_capacity,
    average_precision,
    ranked_metrics,
    recall_at_capacity,
    top_k,
)

NEVER = -np.inf


def test_of_equal_scores_the_earlier_column_wins() -> None:
    scores = np.array([[1, 3, 3, 2, 3], [5, 5, 5, 5, 5], [0, 1, 2, 3, 4]], dtype=np.float32)
    assert top_k(scores, 2).tolist() == [[1, 2], [0, 1], [4, 3]]
    assert top_k(scores, 4).tolist() == [[1, 2, 4, 3], [0, 1, 2, 3], [4, 3, 2, 1]]


def test_what_is_not_eligible_is_never_listed() -> None:
    scores = np.array([[NEVER, 2, NEVER, 1], [NEVER, NEVER, NEVER, NEVER]], dtype=np.float32)
    assert top_k(scores, 3).tolist() == [[1, 3, EMPTY], [EMPTY] * 3]


def test_a_list_longer_than_the_catalogue_is_padded() -> None:
    assert top_k(np.array([[1, 2]], dtype=np.float32), 4).tolist() == [[1, 0, EMPTY, EMPTY]]


def test_top_k_is_the_full_sort_cut_off() -> None:
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 6, size=(200, 40)).astype(np.float32)  # full of ties
    whole = np.argsort(-scores, axis=1, kind="stable")
    assert (top_k(scores, 7) == whole[:, :7]).all()


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="not finite"):
        top_k(np.array([[1, np.nan]], dtype=np.float32), 1)


def test_hits_and_ndcg_by_hand() -> None:
    lists = np.array([[4, 7, 1], [2, 3, EMPTY], [5, 6, 8]])
    user = np.array([0, 0, 1, 2])
    item = np.array([7, 9, 3, 0])  # user 0 wants 7 (second place) and 9 (missed), user 1 wants 3, user 2 misses
    found = ranked_metrics(lists, user, item)
    assert found.hits.tolist() == [1, 1, 0]
    assert found.hit.tolist() == [True, True, False]
    second, ideal_of_two = 1 / math.log2(3), 1 + 1 / math.log2(3)
    assert found.ndcg == pytest.approx([second / ideal_of_two, second, 0.0])


def test_padding_and_unknown_targets_never_hit() -> None:
    found = ranked_metrics(np.array([[EMPTY, EMPTY]]), np.array([0]), np.array([-1]))
    assert not found.hit.any() and found.ndcg.tolist() == [0.0]


def test_alerts_of_a_day_by_score_then_id() -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.1, 0.2, 0.3])
    days = np.array([1, 1, 1, 1, 2, 2])
    ids = np.array(["b", "z", "a", "c", "d", "e"])
    assert alerted_at_capacity(scores, days, ids, 2).tolist() == [True, False, True, False, True, True]


def test_alerts_do_not_depend_on_the_order_of_rows() -> None:
    rng = np.random.default_rng(2)
    scores, days = rng.integers(0, 4, 60).astype(float), rng.integers(0, 5, 60)
    ids = np.array([f"t{i:03d}" for i in range(60)])
    alerted = set(ids[alerted_at_capacity(scores, days, ids, 3)])
    order = rng.permutation(60)
    assert set(ids[order][alerted_at_capacity(scores[order], days[order], ids[order], 3)]) == alerted


def test_recall_by_hand() -> None:
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    fraud = np.array([True, False, True, False, True])
    days = np.array([1, 1, 1, 2, 2])
    ids = np.array(list("abcde"))
    assert recall_at_capacity(scores, fraud, days, ids, 1) == pytest.approx(1 / 3)
    assert recall_at_capacity(scores, fraud, days, ids, 2) == pytest.approx(2 / 3)


def test_nothing_to_catch_is_not_a_recall_of_anything() -> None:
    nothing = np.zeros(2, dtype=np.bool_)
    with pytest.raises(NothingCompared):
        recall_at_capacity(np.ones(2), nothing, np.ones(2, dtype=np.int64), np.array(["a", "b"]), 1)
    with pytest.raises(NothingCompared):
        average_precision(np.ones(2), nothing)


def test_average_precision_by_hand_with_a_tie() -> None:
    # .9 fraud; .8 fraud and not, together; .1 fraud: 1/3·1 + 1/3·2/3 + 1/3·3/4
    scores = np.array([0.9, 0.8, 0.8, 0.1])
    fraud = np.array([True, False, True, True])
    expected = (1 + 2 / 3 + 3 / 4) / 3
    assert average_precision(scores, fraud) == pytest.approx(expected)
    assert average_precision(scores[::-1], fraud[::-1]) == pytest.approx(expected)


def test_average_precision_agrees_with_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(3)
    scores, fraud = rng.integers(0, 20, 300).astype(float), rng.random(300) < 0.2
    assert average_precision(scores, fraud) == pytest.approx(average_precision_score(fraud, scores))
