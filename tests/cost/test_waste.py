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
    assert (replica.resource_id, replica.models, replica.spent, replica.idle) == ("serve-1", ("fraud",), 24, 18)
    assert replica.provisional and found.of_replicas == 18


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


def test_where_nothing_is_known_nothing_is_called_waste(warehouse: Warehouse, settings: Settings) -> None:
    doc = section(warehouse, settings)
    assert doc.summary == "0 retrains never shipped (0.00 USD)."
