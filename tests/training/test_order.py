from __future__ import annotations

import numpy as np
import pytest

from mlcost_pipeline.errors import CheckpointError
from mlcost_pipeline.training.order import Cursor, Order, permutation, step_seed


def walk(order: Order, cursor: Cursor) -> tuple[list[np.ndarray], Cursor]:
    batches = []
    while not order.finished(cursor):
        batches.append(order.indices(cursor))
        cursor = order.after(cursor)
    return batches, cursor


def test_every_sample_is_seen_once_an_epoch_and_counted() -> None:
    order = Order(seed=3, samples=25, batch_size=10, epochs=2)
    batches, end = walk(order, Cursor())
    assert [len(batch) for batch in batches] == [10, 10, 5, 10, 10, 5]
    assert sorted(np.concatenate(batches[:3])) == list(range(25))
    assert not np.array_equal(np.concatenate(batches[:3]), np.concatenate(batches[3:]))
    assert end == Cursor(2, 0, 50, 6)
    assert end.samples_seen == order.expected_samples and end.steps == order.total_steps


@pytest.mark.parametrize("stop", range(7))
def test_from_any_cursor_the_rest_is_the_rest(stop: int) -> None:
    order = Order(seed=3, samples=25, batch_size=10, epochs=2)
    whole, _ = walk(order, Cursor())
    cursor = Cursor()
    for _ in range(stop):
        cursor = order.after(cursor)
    rest, _ = walk(order, order.cursor_from(cursor.as_dict()))
    assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in whole[stop:]]


def test_the_order_is_fixed_for_all_versions() -> None:
    assert permutation(7, 0, 8).tolist() == [6, 3, 4, 0, 2, 7, 5, 1]
    assert step_seed(7, 0, 0) == 6965791079571754027
    assert step_seed(7, 0, 0) != step_seed(7, 0, 1) != step_seed(7, 1, 0)


def test_an_epoch_boundary_has_one_form() -> None:
    order = Order(seed=3, samples=20, batch_size=10, epochs=2)
    with pytest.raises(CheckpointError, match="does not fit"):
        order.cursor_from({"epoch": 0, "batch": 2, "samples_seen": 20, "steps": 2})


def test_a_cursor_of_other_data_is_refused() -> None:
    taken = Order(seed=3, samples=20, batch_size=10, epochs=2).after(Cursor(1, 0, 20, 2))
    with pytest.raises(CheckpointError, match="samples=30"):
        Order(seed=3, samples=30, batch_size=10, epochs=2).cursor_from(taken.as_dict())
