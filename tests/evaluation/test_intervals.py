"""Paired intervals: what they cover, what they refuse, and that a repeat gives the same bounds."""

from __future__ import annotations

import numpy as np
import pytest

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.evaluation.intervals import holm, loss_p_value, paired_difference


def test_the_difference_and_levels_are_means_over_units() -> None:
    found = paired_difference(np.array([1.0, 0, 1, 1]), np.array([1.0, 1, 0, 0]), np.arange(4))
    assert (found.candidate, found.reference, found.difference) == (0.75, 0.5, 0.25)
    assert found.low(0.8) < 0.25 < found.high(0.8)


def test_a_repeat_and_another_order_give_the_same_bounds() -> None:
    rng = np.random.default_rng(5)
    mine, theirs = rng.random(300), rng.random(300)
    days = rng.integers(0, 20, 300)
    first, again = paired_difference(mine, theirs, days), paired_difference(mine, theirs, days)
    assert (first.low(0.9), first.high(0.9)) == (again.low(0.9), again.high(0.9))
    order = rng.permutation(300)
    hits, others = (mine > 0.5).astype(float), (theirs > 0.5).astype(float)
    other = paired_difference(hits[order], others[order], days[order])
    same = paired_difference(hits, others, days)
    assert other.low(0.9) == same.low(0.9)


@pytest.mark.parametrize("blocks", [7, 60])
def test_one_sided_bounds_cover_as_often_as_they_say(blocks: int) -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(400):
        day = rng.normal(0, 1, blocks)  # rows of a day share its luck
        rows = np.repeat(np.arange(blocks), 5)
        change = day[rows] + rng.normal(0, 0.5, len(rows))
        covered += paired_difference(change, np.zeros(len(rows)), rows, replicates=500).low(0.8) <= 0
    assert 0.75 <= covered / 400 <= 0.87


def test_days_as_blocks_are_wider_than_rows_as_if_they_were_independent() -> None:
    rng = np.random.default_rng(7)
    days = np.repeat(np.arange(10), 50)
    change = rng.normal(0, 1, 10)[days]
    by_day = paired_difference(change, np.zeros(500), days)
    by_row = paired_difference(change, np.zeros(500), np.arange(500))
    assert by_day.high(0.9) - by_day.low(0.9) > 3 * (by_row.high(0.9) - by_row.low(0.9))


def test_nothing_and_one_block_are_refused() -> None:
    none = np.zeros(0)
    with pytest.raises(NothingCompared, match="no unit"):
        paired_difference(none, none, none.astype(np.int64))
    with pytest.raises(NothingCompared, match="one block"):
        paired_difference(np.ones(5), np.zeros(5), np.zeros(5, dtype=np.int64))
    with pytest.raises(NothingCompared, match="not pairs"):
        paired_difference(np.ones(5), np.zeros(4), np.zeros(5, dtype=np.int64))


def test_exact_mcnemar_by_hand() -> None:
    assert loss_p_value(0, 9) == 1.0
    assert loss_p_value(1, 0) == pytest.approx(1 / 2)
    assert loss_p_value(5, 0) == pytest.approx(1 / 32)
    assert loss_p_value(3, 1) == pytest.approx(5 / 16)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
