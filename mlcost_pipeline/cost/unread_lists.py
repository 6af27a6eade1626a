"""Lists that nobody read: of each version of the lists, how many of them a lookup on record read while it was live.

Lookups are proof of reading. A version is unread only where lookups were noted while it was live; else nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import Ask
from mlcost_pipeline.cost.run_costs import RunCosts
from mlcost_pipeline.cost.slots import from_units, to_units

#: Tiers of a lookup that read the user's own list.
READ = ("fresh", "filtered")


@dataclass(frozen=True)
class UnreadLists:
    """A version of the lists: how many there are, and how many of them a lookup read; `read` None is unknown.

    `spent` is what making this version cost and `wasted` the part of it that went into lists that nobody read, both
    None where unknown. `state` is ``in_force`` (more may be read), ``replaced``, ``never_live`` (it failed its
    validation or came too late) or ``waiting``.
    """

    model: str
    version: str
    at: datetime
    lists: int
    read: int | None
    spent: Decimal | None
    wasted: Decimal | None
    state: str
    estimated: bool
    provisional: bool

    @property
    def over(self) -> bool:
        """Whether no lookup will read it any more."""
        return self.state in ("replaced", "never_live")


# A version that was rolled back is over when it was left, another when the next one went live that was not rolled
# back, for a rollback brings it back. Lookups of the model before a version went live and after it was left show that
# they were noted in between, also where none of them was of it.
_LISTS = """
WITH made AS (SELECT model, version, data_cut, published_at, rolled_back_at, run_id,
    coalesce(CAST(validation->>'$.lists' AS BIGINT), users) AS lists,
    coalesce(CAST(validation->>'$.passed' AS BOOLEAN), true) AS passed FROM publications),
lives AS (SELECT *, coalesce(rolled_back_at, lead(published_at) OVER (PARTITION BY model, published_at IS NULL,
      rolled_back_at IS NULL ORDER BY published_at)) AS left_at,
    max(data_cut) FILTER (published_at IS NOT NULL) OVER (PARTITION BY model) AS newest_cut,
    CASE WHEN run_id IS NULL THEN lists ELSE sum(lists) OVER (PARTITION BY run_id) END AS lists_of_run FROM made),
heard AS (SELECT m.model, min(l.looked_up_at) AS since, max(l.looked_up_at) AS until
  FROM (SELECT DISTINCT model FROM publications) m JOIN lookups l ON coalesce(l.model, m.model) = m.model GROUP BY ALL),
seen AS (SELECT version, count(DISTINCT user_id) FILTER (list_contains(?, tier)) AS readers FROM lookups
  WHERE version IS NOT NULL GROUP BY version)
SELECT v.model, v.version, coalesce(v.published_at, v.data_cut) AS moment, v.lists, v.lists_of_run, v.run_id,
  CASE WHEN v.published_at IS NOT NULL THEN CASE WHEN v.left_at IS NULL THEN 'in_force' ELSE 'replaced' END
    WHEN v.passed AND v.data_cut >= coalesce(v.newest_cut, v.data_cut) THEN 'waiting' ELSE 'never_live' END AS state,
  CASE WHEN v.published_at IS NULL THEN 0 WHEN s.version IS NOT NULL THEN least(s.readers, v.lists)
    WHEN h.since <= v.published_at AND h.until >= coalesce(v.left_at, v.published_at) THEN 0 END AS read
FROM lives v LEFT JOIN seen s USING (version) LEFT JOIN heard h ON h.model = v.model
ORDER BY v.model, moment DESC, v.version
"""


def unread_lists(ask: Ask, costs: RunCosts) -> tuple[UnreadLists, ...]:
    """Every version on record, of each model the newest first."""
    rows = ask(_LISTS, [list(READ)], ["publications", "lookups"]).to_pylist()
    return tuple(_lists(row, costs) for row in rows)


def _lists(row: Mapping[str, Any], costs: RunCosts) -> UnreadLists:
    paid = costs.of_runs([row["run_id"]] if row["run_id"] else [])
    lists, read = int(row["lists"]), None if row["read"] is None else int(row["read"])
    spent = _share(paid.amount, lists, row["lists_of_run"])
    wasted = None if read is None else _share(paid.amount, lists - read, row["lists_of_run"])
    return UnreadLists(
        row["model"], row["version"], row["moment"], lists, read, spent, wasted, row["state"], paid.estimated,
        paid.provisional,
    )  # fmt: skip


def _share(amount: Decimal | None, part: int, whole: int) -> Decimal | None:
    """Part ÷ whole of an amount, to the unit below: what is called wasted is never more than was spent."""
    return None if amount is None or not whole else from_units(to_units(amount) * part // int(whole))


def unknown_of(found: tuple[UnreadLists, ...]) -> Iterator[str]:
    """What is not known of them, in words."""
    over = [each for each in found if each.over]
    unheard = sum(each.read is None for each in over)
    if unheard:
        yield (
            f"Whether anybody read them is not known of {unheard} of {len(over)} versions of the lists: no lookup was "
            "noted while they were live."
        )
    unpaid = sum(each.read is not None and each.spent is None for each in over)
    if unpaid:
        yield (
            f"What they cost is in no bill and has no price for {unpaid} of {len(over)} versions of the lists; they "
            "are in no sum."
        )
