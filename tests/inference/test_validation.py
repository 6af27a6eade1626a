"""Validation: what must not go live is named, and a version that compares nothing fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.inference.validation import Validation, validate

USERS = [f"u{n:02d}" for n in range(60)]
ITEMS = [f"i{n:02d}" for n in range(40)]


def sound(seed: int = 0) -> list[dict[str, Any]]:
    """Five places for each user, every user with scores of their own."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in USERS:
        scores = np.sort(rng.random(5))[::-1]
        for rank, item in enumerate(rng.choice(ITEMS, 5, replace=False), start=1):
            rows.append({"user_id": user, "rank": rank, "item_id": str(item), "score": float(scores[rank - 1])})
    return rows


def judge(rows: list[dict[str, Any]], **changes: Any) -> Validation:
    given: dict[str, Any] = {"known_users": USERS, "without_list": [], "withdrawn": frozenset(), "eligible_items": 40}
    given |= {"popular": ITEMS, "stored_length": 5, "last": None, **changes}
    schema = pa.schema(
        [("user_id", pa.string()), ("rank", pa.int64()), ("item_id", pa.string()), ("score", pa.float64())]
    )
    return validate(pa.Table.from_pylist(rows, schema=schema), **given)


def failed(validation: Validation) -> set[str]:
    return {check.name for check in validation.failures}


def test_sound_lists_pass_and_say_what_was_not_judged() -> None:
    found = judge(sound())
    assert found.passed and found.coverage == 1.0
    assert {check.name for check in found.checks if check.state == "not_judged"} == {"coverage", "popular_share"}


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (lambda rows: rows[5:], "users"),
        (lambda rows: [*rows, {**rows[0], "user_id": "stranger"}], "users"),
        (lambda rows: [{**rows[0], "item_id": rows[1]["item_id"]}, *rows[1:]], "repeats"),
        (lambda rows: [*rows, rows[0]], "ranks"),
        (lambda rows: [{**rows[0], "rank": 0}, *rows[1:]], "ranks"),
        (lambda rows: [{**rows[4], "rank": 6}, *rows[:4], *rows[5:]], "ranks"),
        (lambda rows: [{**rows[0], "score": float("nan")}, *rows[1:]], "finite"),
        (lambda rows: [{**rows[0], "item_id": "i-gone"}, *rows[1:]], "withdrawn"),
        (lambda rows: [{**rows[n % 5], "user_id": row["user_id"]} for n, row in enumerate(rows)], "distinct_lists"),
        (lambda rows: [{**row, "score": float(ITEMS.index(row["item_id"]))} for row in rows], "personal_scores"),
    ],
)  # fmt: skip
def test_each_fault_is_found_by_name(fault: Any, name: str) -> None:
    found = judge(fault(sound()), withdrawn=frozenset({"i-gone"}))
    assert not found.passed and name in failed(found)


def test_a_user_may_be_without_a_list_only_for_a_reason() -> None:
    assert failed(judge(sound()[5:], without_list=["u00"])) == set()
    assert failed(judge(sound(), without_list=["u00"])) == {"list_or_reason"}


def test_a_collapse_against_the_last_version_is_refused() -> None:
    few = [{**row, "item_id": ITEMS[row["rank"] - 1]} for row in sound()]
    assert failed(judge(few, last={"coverage": 1.0, "popular_share": 0.25})) >= {"coverage", "popular_share"}
    assert judge(sound(1), last={"coverage": 1.0, "popular_share": 0.25}).passed


@pytest.mark.parametrize("changes", [{"known_users": []}, {"rows": []}])
def test_nothing_compared_is_no_pass(changes: dict[str, Any]) -> None:
    rows = changes.pop("rows", sound())
    with pytest.raises(NothingCompared):
        judge(rows, **changes)


def test_too_few_users_are_said_not_to_be_judged() -> None:
    found = judge(sound()[:15], known_users=USERS[:3])
    states = {check.name: check.state for check in found.checks}
    assert states["distinct_lists"] == states["personal_scores"] == "not_judged"
    assert found.passed
