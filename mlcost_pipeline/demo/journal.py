"""The shop's files of events and lookups: ids longer than 64 bits, rows that come twice, anonymous visitors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from mlcost_pipeline.demo.files import write_csv, write_parquet
from mlcost_pipeline.demo.shown import Shown
from mlcost_pipeline.demo.visits import ANONYMOUS, DayVisits, World
from mlcost_pipeline.tables import TEXT, TEXTS, TIME

EVENT_COLUMNS = ("event", "visitor", "sku", "action", "happened", "lookup")
DUPLICATE_SHARE = 0.004
CLICK_SECONDS = 5


def write_events(
    shop: Path, world: World, visits: DayVisits, clicks: list[tuple[int, int, int]], requests: list[str]
) -> Path:
    """A day's events as CSV; `clicks` are (session, place, item). What was clicked renumbers no other event."""
    plan, day = world.plan, world.plan.day(visits.day)
    rows: list[tuple[int, str, str | None, str, str, str | None]] = []
    for number, (session, item, second, kind) in enumerate(visits.events):
        event = f"{day:%Y%m%d}{number:012d}"
        rows.append((second, event, _visitor(world, visits, session), world.catalogue.ids[item], kind, None))
    twice = plan.rng("twice", visits.day).random(len(rows)) < DUPLICATE_SHARE
    again = [row for row, double in zip(rows, twice.tolist(), strict=True) if double]
    for session, place, item in clicks:
        second = min(int(visits.start[session]) + CLICK_SECONDS + place, 86_399)
        event, sku = f"{day:%Y%m%d}9{session:08d}{place:03d}", world.catalogue.ids[item]
        rows.append((second, event, _visitor(world, visits, session), sku, "click", requests[session]))
    rows.sort(key=lambda row: (row[0], row[1]))
    midnight = plan.midnight(visits.day)
    lines = (
        (event, who, sku, kind, _stamp(midnight, second), lookup)
        for second, event, who, sku, kind, lookup in [*rows, *again]
    )
    return write_csv(shop / "data" / "events" / f"{day}.csv", EVENT_COLUMNS, lines)


def write_lookups(shop: Path, world: World, visits: DayVisits, shown: Shown) -> Path:
    """The lookup log of a day of the past."""
    midnight, count = world.plan.midnight(visits.day), len(visits.user)
    personal = [arm == "treated" and k != ANONYMOUS for arm, k in zip(shown.arm, visits.user.tolist(), strict=True)]
    reasons = [
        "current" if mine else "anonymous" if k == ANONYMOUS else "holdout"
        for mine, k in zip(personal, visits.user.tolist(), strict=True)
    ]
    names = [[world.catalogue.ids[item] for item in row] for row in shown.items.tolist()]
    took = 0.045 * world.plan.rng("latency", visits.day).lognormal(0, 0.3, count)
    at = [midnight + timedelta(seconds=second) for second in visits.start.tolist()]
    rows = pa.table(
        {
            "request_id": pa.array(shown.request_id, TEXT),
            "looked_up_at": pa.array(at, TIME),
            "user_id": pa.array([_visitor(world, visits, number) for number in range(count)], TEXT),
            "arm": pa.array(list(shown.arm), TEXT),
            "tier": pa.array(["fresh" if mine else "popular" for mine in personal], TEXT),
            "reason": pa.array(reasons, TEXT),
            "version": pa.array([f"past-{world.plan.day(visits.day)}"] * count, TEXT),
            "items": pa.array(names, TEXTS),
            "age_seconds": pa.array(visits.start.astype(float)),
            "latency_seconds": pa.array(took.round(6)),
        }
    )
    return write_parquet(shop / "data" / "lookups" / f"{world.plan.day(visits.day)}.parquet", rows)


def _visitor(world: World, visits: DayVisits, session: int) -> str | None:
    user = int(visits.user[session])
    return None if user == ANONYMOUS else world.people.ids[user]


def _stamp(midnight: datetime, second: int) -> str:
    return (midnight + timedelta(seconds=second)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
