"""Whether a version of the lists may go live. It judges what was written, read back, against what it was made from.

A check that is not applicable says so and counts neither way; a version in which nothing could be compared fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.errors import NothingCompared

MIN_USERS = 50  # below this, distinctness and comparisons with the last version are not judged
DISTINCT_FLOOR = 0.02  # distinct lists per list
SAME_SCORE_BOUND = 0.95  # share of places whose score is the same for everybody: a model that ignores the user
COVERAGE_KEPT = 0.3  # share of the last version's catalogue coverage that must remain
POPULAR_RISE = 0.4  # rise of the popular items' share of all places that is still believed

State = Literal["passed", "failed", "not_judged"]


@dataclass(frozen=True)
class Check:
    """One check: what was found, and the bound it was held against."""

    name: str
    state: State
    sentence: str
    value: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Validation:
    """All checks of a version, the two figures the next version is compared with, and how many users have a list."""

    checks: tuple[Check, ...]
    coverage: float
    popular_share: float
    lists: int

    @property
    def passed(self) -> bool:
        return all(check.state != "failed" for check in self.checks)

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if check.state == "failed"]

    def as_json(self) -> str:
        """Canonical text for the table of publications."""
        data = {
            "passed": self.passed,
            "coverage": self.coverage,
            "popular_share": self.popular_share,
            "lists": self.lists,
            "checks": [asdict(check) for check in self.checks],
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"))


def validate(
    lists: pa.Table,
    *,
    known_users: Sequence[str],
    without_list: Sequence[str],
    withdrawn: frozenset[str],
    eligible_items: int,
    popular: Sequence[str],
    stored_length: int,
    last: Mapping[str, Any] | None,
) -> Validation:
    """Check a written version.

    Args:
        lists: user_id, rank, item_id, score as read back.
        known_users: everybody who should be accounted for; `without_list` are those who rightly have no row.
        eligible_items: how many items could have been recommended.
        last: ``coverage`` and ``popular_share`` of the version in force, or None.

    Raises:
        NothingCompared: there are no lists or no known users.
    """
    if not known_users or not lists.num_rows:
        raise NothingCompared(
            f"a version with {lists.num_rows} places for {len(known_users)} known users cannot be validated; "
            "nothing is published: check that events were ingested and that the model knows their items"
        )
    user, users = _codes(lists.column("user_id"))
    item, items = _codes(lists.column("item_id"))
    score = np.asarray(lists.column("score").to_numpy())
    covered = len(items) / max(1, eligible_items)
    head = set(popular[:10])
    popular_share = float(np.isin(item, [i for i, name in enumerate(items) if name in head]).mean())
    checks = (
        _count("users", set(known_users) ^ (set(users) | set(without_list)), "users missing or too many"),
        _count("list_or_reason", set(users) & set(without_list), "users with both a list and none"),
        _ranks(lists, user, stored_length),
        _repeats(user, item),
        _count("withdrawn", set(items) & withdrawn, "withdrawn items in lists"),
        _number("finite", int((~np.isfinite(score)).sum()), "scores that are not finite"),
        *_distinct(user, item, score, len(users)),
        *_against_last(last, covered, popular_share, len(users)),
    )
    return Validation(checks, round(covered, 6), round(popular_share, 6), len(users))


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    encoded = pc.dictionary_encode(column.cast(pa.string()).combine_chunks())
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64), encoded.dictionary.to_pylist()


def _number(name: str, found: int, what: str) -> Check:
    return Check(name, "failed" if found else "passed", f"{found} {what}", found, 0)


def _count(name: str, found: set[str] | frozenset[str], what: str) -> Check:
    check = _number(name, len(found), what)
    shown = ", ".join(repr(value) for value in sorted(found)[:3])
    return Check(name, check.state, check.sentence + (f", for example {shown}" if found else ""), len(found), 0)


def _ranks(lists: pa.Table, user: NDArray[np.int64], stored_length: int) -> Check:
    """Ranks of a user run from 1 without a gap and end at the stored length."""
    rank = np.asarray(lists.column("rank").to_numpy(), dtype=np.int64)
    length = np.bincount(user)
    longest = np.zeros(len(length), dtype=np.int64)
    np.maximum.at(longest, user, rank)
    pairs = len(np.unique(user * (int(rank.max()) + 1) + rank))
    wrong = (
        int((longest != length).sum())
        + (len(rank) - pairs)
        + int((rank < 1).sum())
        + int((length > stored_length).sum())
    )
    return _number("ranks", wrong, f"users or places whose ranks do not run from 1 to at most {stored_length}")


def _repeats(user: NDArray[np.int64], item: NDArray[np.int64]) -> Check:
    distinct = len(np.unique(user * (int(item.max()) + 1) + item))
    return _number("repeats", len(user) - distinct, "items repeated in a user's list")


def _distinct(user: NDArray[np.int64], item: NDArray[np.int64], score: NDArray[np.float64], users: int) -> list[Check]:
    if users < MIN_USERS:
        few = f"not judged: {users} users, {MIN_USERS} are needed"
        return [Check("distinct_lists", "not_judged", few), Check("personal_scores", "not_judged", few)]
    order = np.argsort(user, kind="stable")
    lists = np.split(item[order], np.flatnonzero(np.diff(user[order])) + 1)
    share = len({row.tobytes() for row in lists}) / users
    return [
        Check(
            "distinct_lists",
            "passed" if share >= DISTINCT_FLOOR else "failed",
            f"{share:.3f} distinct lists per user, at least {DISTINCT_FLOOR} expected",
            round(share, 6),
            DISTINCT_FLOOR,
        ),
        _personal(item, score),
    ]


def _personal(item: NDArray[np.int64], score: NDArray[np.float64]) -> Check:
    """How many places carry the score that is the most common one of their item."""
    order = np.lexsort((score, item))
    item, score = item[order], score[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(item) != 0) | (np.diff(score) != 0)]))
    sizes = np.diff(np.append(starts, len(item)))
    most = np.zeros(int(item.max()) + 1, dtype=np.int64)
    np.maximum.at(most, item[starts], sizes)
    listed_twice = np.bincount(item) >= 2
    total = int(np.bincount(item)[listed_twice].sum())
    if not total:
        return Check("personal_scores", "not_judged", "not judged: no item stands in two lists")
    share = float(most[listed_twice].sum() / total)
    return Check(
        "personal_scores",
        "passed" if share <= SAME_SCORE_BOUND else "failed",
        f"{share:.3f} of places have a score that is the same for everybody, at most {SAME_SCORE_BOUND} believed",
        round(share, 6),
        SAME_SCORE_BOUND,
    )


def _against_last(last: Mapping[str, Any] | None, coverage: float, popular_share: float, users: int) -> list[Check]:
    if last is None or users < MIN_USERS:
        why = "there is no version in force" if last is None else f"{users} users, {MIN_USERS} are needed"
        names = ("coverage", coverage), ("popular_share", popular_share)
        return [
            Check(name, "not_judged", f"{value:.3f}; not compared: {why}", round(value, 6)) for name, value in names
        ]
    floor = COVERAGE_KEPT * float(last["coverage"])
    ceiling = float(last["popular_share"]) + POPULAR_RISE
    return [
        Check(
            "coverage",
            "passed" if coverage >= floor else "failed",
            f"{coverage:.3f} of the catalogue is listed, at least {floor:.3f} expected after the last version",
            round(coverage, 6),
            round(floor, 6),
        ),
        Check(
            "popular_share",
            "passed" if popular_share <= ceiling else "failed",
            f"{popular_share:.3f} of places are popular items, at most {ceiling:.3f} expected after the last version",
            round(popular_share, 6),
            round(ceiling, 6),
        ),
    ]
