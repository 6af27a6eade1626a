"""Money that bought nothing: what is known to have been of no use, to the last unit, and nothing that is not."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.waste import waste
from mlcost_pipeline.reports.sections.waste import waste as section
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import HOUR, NOON, past_run
from tests.cost.ledgers import part, write_ledger

LATER = NOON + timedelta(days=60)


def job(warehouse: Warehouse, name: str, state: str, *, low: float | None = None, reason: str | None = None) -> None:
    """A retraining job that is over after two attempts, promoted if its gate has a lower bound."""
    for attempt in (1, 2):
        past_run(warehouse, f"{name}/{attempt}", purpose="retrain", job_id=name, attempt=attempt, start=NOON)
    ended = {"job_id": name, "model": "fraud", "deadline": NOON, "state": state, "reason": reason, "ended_at": NOON}
    warehouse.append("jobs", [ended])
    if low is not None:
        gate = json.dumps({"low": low, "compared_with": "fraud-0"})
        warehouse.append("model_versions", [{
            "model": "fraud", "version": f"fraud-{name}", "family": "mlp", "job_id": name, "attempt": 2,
            "artefact": "-", "training_cut": NOON, "gate": gate, "promoted_at": NOON,
        }])  # fmt: skip


def lists(warehouse: Warehouse, version: str, at: datetime, users: int, readers: int, tier: str = "fresh") -> None:
    past_run(warehouse, f"batch-{version}", model="recs", stage="serving", purpose="batch", start=at)
    warehouse.append("publications", [{
        "version": version, "model": "recs", "model_version": "m", "data_cut": at, "validation": "{}",
        "published_at": at, "users": users, "run_id": f"batch-{version}",
    }])  # fmt: skip
    rows: list[dict[str, Any]] = [
        {
            "request_id": f"{version}-{n}", "looked_up_at": at + HOUR, "user_id": f"u{n % readers}", "arm": "treated",
            "tier": tier, "reason": "-", "version": version,
            "items": ["i"], "model": "recs", "latency_seconds": 0.001,
        }
        for n in range(2 * readers)
    ]  # fmt: skip
    warehouse.append("lookups", rows)


def test_a_retrain_that_never_shipped_cost_all_its_attempts(warehouse: Warehouse, settings: Settings) -> None:
    job(warehouse, "rejected", "rejected", reason="the candidate harms merchant_category=jewellery")
    job(warehouse, "good", "promoted", low=0.02)
    job(warehouse, "no-better", "promoted", low=-0.001)
    job(warehouse, "unpriced", "exhausted")
    write_ledger(
        warehouse, *(part(amount, run=run) for run, amount in {
            "rejected/1": "1.5", "rejected/2": "2.25", "good/1": "4", "good/2": "4", "no-better/1": "3",
            "no-better/2": "0.5", "unpriced/1": "7",
        }.items()),
    )  # fmt: skip
    found = waste(warehouse, settings, LATER)
    assert {each.job_id: (each.became, each.spent) for each in found.retrains} == {
        "rejected": ("never_shipped", Decimal("3.75")),
        "no-better": ("no_gain_shown", Decimal("3.5")),
        "unpriced": ("never_shipped", None),  # no bill has its second attempt, and no price is set for it
    }
    assert found.of_retrains == Decimal("3.75")
    told = {each.job_id: each.reason for each in found.retrains}
    assert told["rejected"] == "the candidate harms merchant_category=jewellery"
    assert told["no-better"] == "fraud-no-better was promoted, and not shown to be better than fraud-0"


def test_what_nobody_held_of_a_replica_is_idle_and_a_trainer_is_no_replica(
    warehouse: Warehouse, settings: Settings
) -> None:
    for resource in ("serve-1", "gpu-9"):
        register_resource(warehouse, resource, "gpu", 1000, "milli_gpu", NOON - timedelta(days=30))
    past_run(warehouse, "online", stage="serving", purpose="online", resource="serve-1")
    past_run(warehouse, "train", resource="gpu-9")
    write_ledger(
        warehouse, part("6", run="online", resource="serve-1", stage="serving", method="occupancy"),
        part("18", model=None, stage=None, method="idle", resource="serve-1"),
        part("5", model=None, stage=None, method="idle", resource="gpu-9"), state="open",
    )  # fmt: skip
    found = waste(warehouse, settings, LATER)
    [replica] = found.replicas
    assert (replica.resource_id, replica.models, replica.spent) == ("serve-1", ("fraud",), Decimal(24))
    assert (replica.unheld, replica.unused, replica.unmeasured) == (Decimal(18), None, Decimal(6))
    assert replica.provisional and found.of_replicas == 18
    [pool] = found.pools  # idle all the same, of what does not serve
    assert (pool.period, pool.resource_id, pool.idle, pool.provisional) == (f"{NOON:%Y-%m}", "gpu-9", Decimal(5), True)
    assert "no run held 5.00 USD of other capacity" in section(warehouse, settings).summary


def test_runs_that_came_to_nothing_are_told_once_with_what_they_cost(warehouse: Warehouse, settings: Settings) -> None:
    job(warehouse, "rejected", "rejected")
    past_run(warehouse, "broken", status="failed", stage="evaluation")
    past_run(warehouse, "unbilled", status="lost", stage="evaluation")
    past_run(warehouse, "of-use", stage="training")
    past_run(warehouse, "resumed", stage="training", steps_done=10, steps_redone=3)
    past_run(warehouse, "under-way", status="running", stage="training")
    write_ledger(
        warehouse, part("4", run="broken", stage="evaluation"), part("2", run="of-use"), part("5", run="resumed"),
        part("1", run="under-way"), part("7", run="rejected/1"), part("7", run="rejected/2"),
    )  # fmt: skip
    found = waste(warehouse, settings, LATER)
    assert {(each.stage, each.became): (each.runs, each.spent, each.unpriced) for each in found.runs} == {
        ("evaluation", "failed"): (1, Decimal(4), 0),
        ("evaluation", "lost"): (1, Decimal(0), 1),
        ("training", "redone"): (1, Decimal("1.5"), 0),
    }
    assert (found.of_retrains, found.of_runs) == (Decimal(14), Decimal("5.5"))
    doc = section(warehouse, settings)
    assert "3 other runs came to nothing or did work again (5.50 USD)" in doc.summary
    assert any("for 1 of 3 runs that came to nothing" in note for note in doc.notes)


def test_lists_that_no_lookup_read_wasted_their_part_of_the_batch(warehouse: Warehouse, settings: Settings) -> None:
    lists(warehouse, "v1", NOON, users=3, readers=1)
    lists(warehouse, "v2", NOON + timedelta(days=1), users=10, readers=4, tier="popular")  # the list was not used
    lists(warehouse, "v3", NOON + timedelta(days=2), users=10, readers=4)
    write_ledger(warehouse, *(part("1", run=f"batch-{v}", model="recs", stage="serving") for v in ("v1", "v2", "v3")))
    found = waste(warehouse, settings, LATER)
    assert [(each.version, each.read, each.wasted, each.over) for each in found.lists] == [
        ("v3", 4, Decimal("0.6"), False),  # in force: it may still be read
        ("v2", 0, Decimal(1), True),
        ("v1", 1, Decimal("0.666666666666666666"), True),
    ]
    assert found.of_lists == Decimal("1.666666666666666666")
    doc = section(warehouse, settings)
    assert "12 of 13 lists were never read (1.67 USD)" in doc.summary and not doc.marks


def version(warehouse: Warehouse, name: str, day: int, *, live: bool = True, **more: Any) -> None:
    at = NOON + timedelta(days=day)
    row = {"version": name, "model": "recs", "model_version": "m", "data_cut": at, "validation": "{}", "users": 10}
    warehouse.append("publications", [{**row, "published_at": at if live else None, **more}])


def looked_up(warehouse: Warehouse, name: str | None, day: int, user: str = "u1") -> None:
    warehouse.append("lookups", [{
        "request_id": f"{name}-{day}-{user}", "looked_up_at": NOON + timedelta(days=day, hours=1), "user_id": user,
        "arm": "treated", "tier": "fresh" if name else "static", "reason": "-", "version": name, "items": ["i"],
        "model": "recs", "latency_seconds": 0.1,
    }])  # fmt: skip


def test_lists_are_unread_only_where_lookups_were_noted(warehouse: Warehouse, settings: Settings) -> None:
    for day, name in enumerate(("unheard", "first", "quiet", "bad", "now")):
        past_run(warehouse, f"b-{name}", model="recs", stage="serving", start=NOON + timedelta(days=day))
        gone = NOON + timedelta(days=3, hours=2) if name == "bad" else None
        version(warehouse, name, day, run_id=f"b-{name}", rolled_back_at=gone)
    looked_up(warehouse, "first", 1)
    looked_up(warehouse, None, 2)  # somebody asked while "quiet" was live, and its lists were not read
    looked_up(warehouse, "now", 4)
    write_ledger(
        warehouse, *(part("1", run=f"b-{name}", model="recs") for name in ("unheard", "first", "quiet", "now"))
    )
    found = waste(warehouse, settings, LATER)
    assert [(each.version, each.state, each.read, each.wasted) for each in found.lists] == [
        ("now", "in_force", 1, Decimal("0.9")),
        ("bad", "replaced", 0, None),  # rolled back unread; neither a bill nor a price tells what it cost
        ("quiet", "replaced", 0, 1),
        ("first", "replaced", 1, Decimal("0.9")),
        ("unheard", "replaced", None, None),  # nothing was noted yet: perhaps everybody read them
    ]
    assert found.of_lists == Decimal("1.9")
    assert found.unknown == (
        "Whether anybody read them is not known of 1 of 4 versions of the lists: no lookup was noted while they were "
        "live.",
        "What they cost is in no bill and has no price for 1 of 4 versions of the lists; they are in no sum.",
    )


def test_a_version_that_a_rollback_brought_back_may_still_be_read(warehouse: Warehouse, settings: Settings) -> None:
    version(warehouse, "kept", 0)
    version(warehouse, "bad", 1, rolled_back_at=NOON + timedelta(days=2))
    looked_up(warehouse, "kept", 0)
    assert {each.version: each.state for each in waste(warehouse, settings, LATER).lists} == {
        "kept": "in_force", "bad": "replaced",
    }  # fmt: skip


def test_lists_that_never_went_live_wasted_all_and_users_without_a_list_none(
    warehouse: Warehouse, settings: Settings
) -> None:
    for name in ("live", "failed", "late", "waiting"):
        past_run(warehouse, f"b-{name}", model="recs", stage="serving")
    version(warehouse, "live", 5, run_id="b-live", validation='{"lists":8,"passed":true}')
    version(warehouse, "failed", 6, run_id="b-failed", live=False, validation='{"lists":8,"passed":false}')
    version(warehouse, "late", 4, run_id="b-late", live=False, validation='{"lists":8,"passed":true}')
    version(warehouse, "waiting", 7, run_id="b-waiting", live=False, validation='{"lists":8,"passed":true}')
    looked_up(warehouse, "live", 5)
    write_ledger(
        warehouse, *(part("4", run=f"b-{name}", model="recs") for name in ("live", "failed", "late", "waiting"))
    )
    found = waste(warehouse, settings, LATER)
    assert {each.version: (each.state, each.lists, each.wasted) for each in found.lists} == {
        "waiting": ("waiting", 8, 4),
        "failed": ("never_live", 8, 4),
        "live": ("in_force", 8, Decimal("3.5")),
        "late": ("never_live", 8, 4),
    }
    assert found.of_lists == 8


def test_two_versions_of_one_batch_share_its_cost(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "both", model="recs", stage="serving")
    for day, name in enumerate(("one", "two", "three")):
        version(warehouse, name, day, run_id="both" if day < 2 else None, users=10 + 10 * day)
        looked_up(warehouse, name, day)
    write_ledger(warehouse, part("3", run="both", model="recs"))
    found = {each.version: (each.spent, each.wasted) for each in waste(warehouse, settings, LATER).lists}
    assert found == {"one": (1, Decimal("0.9")), "two": (2, Decimal("1.9")), "three": (None, None)}


def test_a_service_that_still_runs_serves_in_every_month_since(warehouse: Warehouse, settings: Settings) -> None:
    start = NOON - timedelta(days=60)
    run = {"run_id": "on", "model": "fraud", "stage": "serving", "purpose": "online", "started_at": start}
    warehouse.append("run_records", [{**run, "status": "running"}])
    warehouse.append("occupancy", [{"run_id": "on", "resource_id": "serve-1", "start": start, "share_milli": 500}])
    past_run(warehouse, "ended", stage="serving", purpose="online", resource="serve-2", hours=0.5,
             start=datetime(2026, 2, 28, 23, 30, tzinfo=NOON.tzinfo))  # fmt: skip
    past_run(warehouse, "trained", resource="serve-2")
    write_ledger(
        warehouse, part("18", model=None, stage=None, method="idle", resource="serve-1"),
        part("5", run="trained", resource="serve-2"),  # it served until March, not in it
    )  # fmt: skip
    found = waste(warehouse, settings, NOON)
    assert [(each.period, each.resource_id, each.idle) for each in found.replicas] == [
        ("2026-03", "serve-1", Decimal(18))
    ]
    [unknown] = found.unknown  # January and February of the one, February of the other
    assert "3 of 4 months of a resource that served are in no ledger" in unknown


def test_a_replica_that_was_left_on_is_idle_until_other_work_takes_it(warehouse: Warehouse, settings: Settings) -> None:
    for name in ("left-on", "reused"):
        past_run(warehouse, name, model="recs", stage="serving", purpose="online", resource=name)
        write_ledger(warehouse, part("2", run=name, resource=name), account=name)
    past_run(warehouse, "trainer", resource="reused", start=NOON + timedelta(days=30))
    write_ledger(
        warehouse, part("5", model=None, stage=None, method="idle", resource="left-on"),
        part("4", model=None, stage=None, method="unattributed", reason="no_run_at_that_time", resource="left-on"),
        part("7", run="trainer", resource="reused"), part("3", model=None, method="idle", resource="reused"),
        period="2026-04",
    )  # fmt: skip
    found = waste(warehouse, settings, LATER)
    assert {(each.period, each.resource_id): (each.models, each.unheld) for each in found.replicas} == {
        ("2026-03", "left-on"): (("recs",), 0), ("2026-03", "reused"): (("recs",), 0),
        ("2026-04", "left-on"): (("recs",), 9),
    }  # fmt: skip
    assert found.of_replicas == 9


def test_what_a_service_held_and_left_idle_is_idle_as_far_as_it_was_measured(
    warehouse: Warehouse, settings: Settings
) -> None:
    def served(name: str, resource: str, **more: Any) -> None:
        past_run(warehouse, name, stage="serving", purpose="online", resource=resource, **more)

    served("busy-quarter", "whole", busy_seconds=900.0, busy_coverage=1.0)  # of an hour
    served("over", "cpu", busy_seconds=4000.0, busy_coverage=1.0)  # CPU time of several threads: all of it was busy
    served("half-seen", "part", busy_seconds=900.0, busy_coverage=0.5)
    served("unseen", "part", model="recs", share=500)
    served("unsure", "unsure", busy_seconds=900.0)  # nobody says how much of it was looked at
    past_run(warehouse, "trained", resource="whole")
    runs = {"busy-quarter": "whole", "trained": "whole", "over": "cpu", "half-seen": "part", "unsure": "unsure"}
    write_ledger(
        warehouse, *(part("8", run=name, stage="serving", resource=place) for name, place in runs.items()),
        part("3", run="unseen", model="recs", stage="serving", resource="part"),
        part("1", model=None, stage=None, method="idle", resource="PART"),
    )  # fmt: skip
    found = waste(warehouse, settings, LATER)
    told = {each.resource_id.lower(): (each.unheld, each.unused, each.unmeasured) for each in found.replicas}
    assert told == {
        "whole": (0, 6, 0), "cpu": (0, 0, 0), "part": (1, 2, 7), "unsure": (0, None, 8),
    }  # fmt: skip
    assert found.of_replicas == 9 and {each.models for each in found.replicas} == {("fraud",), ("fraud", "recs")}
    assert any("in 2 of 4 months of a resource that served" in each for each in found.unknown)


def test_what_a_retrain_brought_is_not_guessed(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "elsewhere/1", purpose="retrain", job_id="elsewhere")
    job(warehouse, "untold", "promoted", low=0.1)
    [row] = warehouse.rows("model_versions")
    warehouse.append("model_versions", [{**row, "gate": json.dumps({"reason": "nothing_compared"})}])
    past_run(warehouse, "still/1", purpose="retrain", job_id="still", status="running")
    found = waste(warehouse, settings, LATER)
    assert found.retrains == () and found.unknown == (
        "Whether it shipped is not on record for 1 of 2 retrains, which are in no sum.",
        "Whether it brought a gain is not known of 1 of 2 retrains: they shipped, and nothing was compared.",
    )
    assert set(found.unknown) <= set(section(warehouse, settings).notes)


def test_where_nothing_is_known_nothing_is_called_waste(warehouse: Warehouse, settings: Settings) -> None:
    doc = section(warehouse, settings)
    assert doc.summary == "0 retrains never shipped (0.00 USD)."
