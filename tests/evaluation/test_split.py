"""Splits: the last new item, held-out days, equal times, and independence from the order of events."""

from __future__ import annotations

import numpy as np

from mlcost_pipeline.evaluation.split import Events, Split, held_out_days, leave_last_new


def events(*rows: tuple[int, int, int, str]) -> Events:
    """(user, item, time, event id)"""
    user, item, at, ids = zip(*rows, strict=True)
    return Events(np.array(user), np.array(item), np.array(at), np.array(ids))


def targets(split: Split) -> list[tuple[int, int]]:
    return list(zip(split.target_user.tolist(), split.target_item.tolist(), strict=True))


def test_the_last_new_item_is_the_target_and_later_repeats_are_left_out() -> None:
    split = leave_last_new(events((0, 1, 10, "a"), (0, 2, 20, "b"), (0, 1, 30, "c"), (1, 5, 10, "d"), (1, 5, 11, "e")))
    assert targets(split) == [(0, 2)]  # user 1 never meets a second item
    assert split.history.item.tolist() == [1]


def test_equal_times_are_ordered_by_event_id() -> None:
    forth = events((0, 1, 10, "a"), (0, 2, 10, "b"), (0, 3, 10, "c"))
    back = events((0, 3, 10, "c"), (0, 2, 10, "b"), (0, 1, 10, "a"))
    assert targets(leave_last_new(forth)) == targets(leave_last_new(back)) == [(0, 3)]
    assert leave_last_new(back).history.item.tolist() == [1, 2]


def test_held_out_days_are_half_open_and_only_new_items_of_known_users_count() -> None:
    log = events(
        (0, 1, 10, "a"), (0, 1, 20, "b"), (0, 2, 20, "c"), (0, 2, 25, "d"), (0, 3, 30, "e"), (1, 4, 20, "f"),
    )  # fmt: skip
    split = held_out_days(log, 20, 30)
    assert targets(split) == [(0, 2)]  # 1 is not new, 3 is too late, user 1 has no history
    assert targets(held_out_days(log, 20, 30, repeats=True)) == [(0, 1), (0, 2)]
    assert split.history.item.tolist() == [1]


def test_any_order_of_events_gives_the_same_split() -> None:
    rng = np.random.default_rng(4)
    rows = [(int(u), int(i), int(t), f"e{n:03d}") for n, (u, i, t) in enumerate(rng.integers(0, 9, (200, 3)))]
    for divide in (leave_last_new, lambda log: held_out_days(log, 5, 8)):
        first = divide(events(*rows))
        again = divide(events(*[rows[n] for n in rng.permutation(len(rows))]))
        assert targets(first) == targets(again)
        assert first.history.event_id.tolist() == again.history.event_id.tolist()


def test_nothing_in_nothing_out() -> None:
    empty = np.zeros(0, dtype=np.int64)
    none = Events(empty, empty, empty, empty)
    assert targets(leave_last_new(none)) == targets(held_out_days(none, 0, 1)) == []
