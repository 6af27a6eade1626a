"""How many users have a fresh list, and which tier serves the rest.

Every known user is looked up once, without a trace in the log, as of now on the model's clock, so that a pipeline that
stands still reads stale: the same rules answer here that answer a user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow.compute as pc

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.inference import pointer
from mlcost_pipeline.inference.lookup import Lookup
from mlcost_pipeline.inference.served import served
from mlcost_pipeline.reports.document import Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, dressed, listed, share_of
from mlcost_pipeline.reports.pictures import bars
from mlcost_pipeline.reports.stages.serving import lookups_table
from mlcost_pipeline.reports.values import Cell, Quantity, show, show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "Who has fresh recommendations"
TIERS = ("fresh", "filtered", "folded_in", "segment", "popular", "static")
DAYS = 7


@dataclass(frozen=True)
class Standing:
    """What every known user of a model would be served at a moment; `users` by (tier, reason)."""

    model: str
    at: datetime
    data_cut: datetime
    version: str
    users: Counter[tuple[str, str]]

    @property
    def known(self) -> int:
        return self.users.total()

    def of_tier(self, tier: str) -> int:
        """Users served from one tier."""
        return sum(count for (name, _), count in self.users.items() if name == tier)

    @property
    def tiers(self) -> list[str]:
        """Tiers that serve somebody, best first."""
        found = {name for name, _ in self.users}
        return [tier for tier in TIERS if tier in found] + sorted(found - set(TIERS))


def freshness(warehouse: Warehouse, settings: Settings) -> Document:
    """One line a recommendation model, its tiers as a picture, and the lookups of the last week."""
    models = [name for name, block in settings.models.items() if block.task == "recommendation"]
    newest = {model: _last_lookup(warehouse, model) for model in models}
    standings = {model: _standing(warehouse, settings, model, newest[model]) for model in models}
    found = [standing for standing in standings.values() if standing is not None]
    sentences = [_sentence(model, standing) for model, standing in standings.items()]
    doc = Document(
        title=TITLE,
        summary=listed(sentences, "No model makes recommendations, so nobody needs a list") + ".",
        numbers=_numbers(found),
        tables=[_tiers(found), *_lookups(warehouse, settings, newest)],
        pictures=[_picture(standing) for standing in found],
        ids={"version": found[0].version} if len(found) == 1 else {},
    )
    return dressed(doc, settings)


def _standing(warehouse: Warehouse, settings: Settings, model: str, newest: datetime | None) -> Standing | None:
    live = pointer.live(warehouse, model)
    if live is None:
        return None
    now = model_clock(warehouse, settings, model).now().replace(second=0, microsecond=0)
    at = max(moment for moment in (live.published_at, newest, now) if moment is not None)
    lookup = Lookup(warehouse, settings, model, pointer_seconds=3600)
    users: Counter[tuple[str, str]] = Counter()
    for user in _known_users(warehouse, model):
        answer = lookup.recommend(user, at=at, request_id="report", log=False)
        users[answer.tier, answer.reason] += 1
    lookup.close()
    return Standing(model, at, live.data_cut, live.version, users)


def _known_users(warehouse: Warehouse, model: str) -> list[str]:
    """Everybody with a list in the version in force, and every user on record who was not forgotten."""
    named = set(pc.unique(warehouse.read_version("recommendations", model).column("user_id")).to_pylist())
    rows = warehouse.rows("users", columns=["user_id", "forgotten_at"])
    forgotten = {row["user_id"] for row in rows if row["forgotten_at"] is not None}
    return sorted((named | {row["user_id"] for row in rows}) - forgotten)


def _last_lookup(warehouse: Warehouse, model: str) -> datetime | None:
    """The newest lookup of this model's lists; logs of before there were several models name none."""
    sql = "SELECT max(looked_up_at) AS at FROM lookups WHERE model IS NULL OR model = ?"
    found = warehouse.query(sql, [model], tables=["lookups"]).to_pylist()[0]["at"]
    assert found is None or isinstance(found, datetime)
    return found


def _sentence(model: str, standing: Standing | None) -> str:
    if standing is None:
        return f"{model}: nobody has a list, because no version was published yet"
    fresh = standing.of_tier("fresh")
    rest = [f"{t} ({show_number(standing.of_tier(t))})" for t in standing.tiers if t != "fresh"]
    share = show_number(share_of(fresh, standing.known), "share")
    others = f"the rest are served from {', '.join(rest)}" if rest else "nobody needs a fallback"
    known = counted(standing.known, "known user")
    when = f"as of {show(standing.at)} UTC"
    return f"{model}: {show_number(fresh)} of {known} ({share}) have a fresh list {when}, {others}"


def _numbers(found: Sequence[Standing]) -> list[Number]:
    known = sum(standing.known for standing in found)
    fresh = sum(standing.of_tier("fresh") for standing in found)
    oldest = max(((s.at - s.data_cut).total_seconds() for s in found), default=None)
    return [
        Number("users_known", "known users", known if found else None),
        Number("users_fresh", "with a fresh list", fresh if found else None),
        Number("share_fresh", "share of known users", share_of(fresh, known), "share"),
        Number("users_fallback", "served by another tier", known - fresh if found else None),
        Number("list_age_seconds", "age of the lists", oldest, "s"),
    ]


def _tiers(found: Sequence[Standing]) -> Table:
    rows: list[list[Cell]] = []
    for standing in found:
        for tier in standing.tiers:
            reasons = sorted(((r, n) for (t, r), n in standing.users.items() if t == tier), key=lambda e: (-e[1], e[0]))
            for reason, count in reasons:
                share = Quantity(share_of(count, standing.known), "share")
                rows.append([standing.model, tier, reason.replace("_", " "), count, share])
    columns = ["model", "tier", "why", "users", "of known users"]
    return Table("What each known user would be served now", columns, rows, empty="no version was published yet")


def _lookups(warehouse: Warehouse, settings: Settings, newest: Mapping[str, datetime | None]) -> list[Table]:
    title = f"Lookups of the last {DAYS} days"
    if not any(newest.values()):
        return [Table(title, [], [], empty="nobody looked anything up yet, or the log was not rolled into its table")]
    ends = {model: at.date() + timedelta(days=1) for model, at in newest.items() if at is not None}
    return [
        lookups_table(served(warehouse, settings, model, end - timedelta(days=DAYS), end), title=f"{title}, {model}")
        for model, end in ends.items()
    ]


def _picture(standing: Standing) -> Picture:
    entries = [(tier, standing.of_tier(tier)) for tier in standing.tiers]
    return bars(f"Users of {standing.model} by tier", entries, columns=("tier", "users"))
