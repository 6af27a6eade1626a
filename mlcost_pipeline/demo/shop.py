"""The simulated shop as a folder: its history as files, its mlcost.yaml, its cloud's price list and the right answers.

Deterministic for a seed, byte for byte. The bill is not made here: the biller makes it from what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mlcost_pipeline.demo.catalogue import write_items
from mlcost_pipeline.demo.files import write_atomically
from mlcost_pipeline.demo.journal import write_events, write_lookups
from mlcost_pipeline.demo.past_runs import past_runs, write_runs
from mlcost_pipeline.demo.payments import write_labels, write_payments
from mlcost_pipeline.demo.people import SEGMENTS, write_joined
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.shop_settings import shop_cloud, write_cloud, write_settings
from mlcost_pipeline.demo.shown import show
from mlcost_pipeline.demo.traffic import write_requests
from mlcost_pipeline.demo.truth import Tally, truth_of
from mlcost_pipeline.demo.visits import Memory, World, visits_of


def make_shop(
    folder: Path, *, seed: int = 7, days: int = 120, users: int = 900, items: int = 500,
    payments_per_day: int = 600, drift_day: int | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Plan:  # fmt: skip
    """Make the shop's history of `days` days in `folder`.

    Args:
        drift_day: day number from which frauds look different; by default 90, in a shorter history three quarters in.
        report: called with days done and days in all.

    Returns:
        the plan, also stored in the folder for the live days that follow.
    """
    plan = Plan(
        seed=seed, days=days, users=users, items=items, payments_per_day=payments_per_day,
        customers=max(50, payments_per_day * 10 // 3), terminals=max(30, payments_per_day // 4),
        drift_day=drift_day if drift_day is not None else (90 if days >= 120 else days * 3 // 4), empty_day=days // 3,
    )  # fmt: skip
    world, memory, tally = World.of(plan), Memory.fresh(plan), Tally()
    segment = {number: SEGMENTS[kind] for number, kind in enumerate(world.people.segment.tolist())}
    write_items(folder, plan, world.catalogue)
    runs = []
    for day in range(days):
        seen = memory.seen.copy()
        visits = visits_of(world, day, memory)
        shown = show(world, visits, seen)
        sessions, places = shown.clicked.nonzero()
        clicks = [(s, p, int(shown.items[s, p])) for s, p in zip(sessions.tolist(), places.tolist(), strict=True)]
        write_events(folder, world, visits, clicks, shown.request_id)
        write_lookups(folder, world, visits, shown)
        write_joined(folder, plan, world.people, day)
        write_payments(folder, plan, day)
        write_labels(folder, plan, day)
        write_requests(folder, plan, day)
        runs.append(past_runs(plan, day))
        write_runs(folder, plan, day, runs[-1])
        tally.add(plan, visits, shown, segment)
        report(day + 1, days)
    memory.save(folder, days - 1)
    truth = truth_of(plan, world.catalogue, shop_cloud(), runs, tally)
    write_atomically(folder / "truth.json", json.dumps(truth, indent=1, sort_keys=True).encode() + b"\n")
    write_cloud(folder)
    write_settings(folder, plan)
    plan.save(folder)
    return plan
