"""Small worlds with known truths: payments with late labels, purchases, an incumbent verified at a level."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evaluation.versions import register
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.training.contract import AttemptFolder, describe_files, write_json
from mlcost_pipeline.warehouse import Warehouse

TOY = "tests.evaluation.toys:Toy"
FIRST = date(2025, 3, 3)  # a Monday
DAYS = 63
AS_OF = FIRST + timedelta(days=DAYS - 1)  # a Sunday
CUT = datetime.combine(FIRST + timedelta(days=DAYS), datetime.min.time(), tzinfo=UTC)
TRAINED_UP_TO = CUT - timedelta(days=21)
A_DAY = 40
FRAUDS_A_DAY = 6
DELAY = 7

Row = dict[str, Any]


def settings_of(warehouse: Path, **changes: Any) -> Settings:
    """Both models; `changes` go to the policy of both."""
    policy = {"min_new_rows": 200, "min_new_positives": 10, "min_window_rows": 200, **changes.pop("policy", {})}
    shared: Row = {
        "first_day": FIRST.isoformat(), "mode": "act", "trainer": {"family": TOY}, "baseline": {"family": TOY},
        "policy": policy, **changes,
    }  # fmt: skip
    windows = {"training_days": 28, "holdout_days": 7, "evidence_days": 7}
    fraud = {
        **shared, "task": "scoring", "outcome": {"unit": "fraud_caught"}, "alerts_per_day": 10,
        "features": ["amount", "merchant_category", "feature_speed"], "slices": ["merchant_category"],
        "windows": {**windows, "label_delay_days": DELAY},
    }  # fmt: skip
    shop = {**shared, "task": "recommendation", "outcome": {"unit": "hits", "hits_at": 1}, "windows": windows}
    return Settings.model_validate({
        "version": 1, "name": "worlds", "warehouse": str(warehouse), "models": {"fraud": fraud, "shop": shop},
        "capacity": {"pools": [{"name": "od", "market": "on_demand", "price_per_hour": "1"}]},
    })  # fmt: skip


def clock_at(day: date = AS_OF) -> Clock:
    """Half an hour after the end of `day`."""
    return Clock.fixed_origin(
        datetime.combine(day + timedelta(days=1), datetime.min.time(), tzinfo=UTC) + timedelta(minutes=30)
    )


def payments(change: Callable[[Row], Row | None] | None = None) -> list[Row]:
    """40 payments a day at 10 terminals; ``change`` may alter a payment or drop it."""
    changed = (dict(row) if change is None else change(dict(row)) for row in _payments())
    return [row for row in changed if row is not None]


@cache
def _payments() -> tuple[Row, ...]:
    generator = np.random.default_rng(5)
    rows: list[Row] = []
    for day in range(DAYS):
        for n in range(A_DAY):
            at = datetime.combine(FIRST, datetime.min.time(), tzinfo=UTC) + timedelta(
                days=day, seconds=float(generator.uniform(0, 86_399))
            )
            rows.append({
                "transaction_id": f"{day:03d}-{n:03d}", "happened_at": at, "currency": "EUR",
                "merchant_category": "abcd"[int(generator.integers(4))],
                "amount": Decimal(str(round(float(generator.lognormal(3, 0.6)), 2))),
                "customer_id": f"c{int(generator.integers(200))}", "terminal_id": f"t{int(generator.integers(10))}",
                "feature_speed": float(generator.normal()),
            })  # fmt: skip
    return tuple(rows)


def is_fraud(row: Row) -> bool:
    """The first six payments of a day are frauds."""
    return int(row["transaction_id"].split("-")[1]) < FRAUDS_A_DAY


def labels(rows: list[Row]) -> list[Row]:
    """Frauds are reported after two days, the rest is known to be harmless after a week."""
    found = []
    for row in rows:
        delay = timedelta(days=2) if is_fraud(row) else timedelta(days=DELAY - 1, hours=12)
        known = row["happened_at"] + delay
        found.append({"transaction_id": row["transaction_id"], "known_at": known, "is_fraud": is_fraud(row)})
    return found


def predictions(rows: list[Row], version: str, caught: Callable[[date], int]) -> list[Row]:
    """What `version` said of payments after its training cut: it catches ``caught(day)`` frauds of each day."""
    return [
        {
            "model": "fraud", "model_version": version, "entity_id": row["transaction_id"],
            "predicted_at": row["happened_at"] + timedelta(hours=1), "score": 0.5, "threshold": 0.4,
            "alerted": int(row["transaction_id"].split("-")[1]) < caught(row["happened_at"].date()), "run_id": None,
        }
        for row in rows if row["happened_at"] >= TRAINED_UP_TO
    ]  # fmt: skip


def put_incumbent(
    warehouse: Warehouse,
    model: str,
    *,
    level: float | None = 0.8,
    told: Row | None = None,
    units: int = 60,
    trained_up_to: datetime = TRAINED_UP_TO,
    job: str = "job0",
) -> str:
    """A model in force, whose gate verified `level` on `units` frauds or users."""
    place = AttemptFolder(warehouse.folder(model, "jobs", job), 1)
    place.artefact.mkdir(parents=True, exist_ok=True)
    (place.artefact / "toy.json").write_text(json.dumps(told or {"suspects": []}))
    write_json(place.result, {"job_id": job, "attempt": 1, "artefact": describe_files(place.artefact)})
    version = register(
        warehouse, model=model, family=TOY, job_id=job, attempt=1, artefact=place.artefact, training_cut=trained_up_to
    )
    unit = "frauds" if model == "fraud" else "users"
    gate = None if level is None else json.dumps({"candidate_level": level, "unit": unit, "metrics": {unit: units}})
    row = warehouse.rows("model_versions", where="version = ?", params=[version])[0]
    promoted = trained_up_to + timedelta(days=8)
    warehouse.append("model_versions", [{**row, "gate": gate, "gate_passed": True, "promoted_at": promoted}])
    warehouse.state.update(
        f"models/{model}",
        lambda now: {
            "open_job": None,
            "blocked": [],
            "cooldown_factor": 1,
            **(now or {}),
            "incumbent": version,
            "promoted_at": promoted.isoformat(),
        },
    )
    return version


def fraud_world(
    root: Path,
    change: Callable[[Row], Row | None] | None = None,
    *,
    caught: int | Callable[[date], int] = 5,
    level: float | None = 0.8,
    said: bool = True,
) -> Warehouse:
    """Nine weeks of payments; the incumbent was trained up to three weeks before the end."""
    if change is None and isinstance(caught, int):
        shutil.copytree(_ready_world(caught, level, said), root)
        return Warehouse(root)
    return _fraud_world(root, change, caught, level, said)


@cache
def _ready_world(caught: int, level: float | None, said: bool) -> Path:
    root = Path(tempfile.mkdtemp(prefix="world-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    _fraud_world(root, None, caught, level, said)
    return root


def _fraud_world(
    root: Path,
    change: Callable[[Row], Row | None] | None,
    caught: int | Callable[[date], int],
    level: float | None,
    said: bool,
) -> Warehouse:
    warehouse = Warehouse(root)
    rows = payments(change)
    warehouse.append("transactions", rows)
    warehouse.append("labels", labels(rows))
    version = put_incumbent(warehouse, "fraud", level=level)
    if said:
        of_day = caught if callable(caught) else lambda _: caught
        warehouse.append("predictions", predictions(rows, version, of_day))
    return warehouse


def shop_world(root: Path, *, hit: Callable[[int], bool], level: float = 0.5, users: int = 240) -> Warehouse:
    """Users who buy on most days; in the last week user n buys what the model says, if ``hit(n)``."""
    warehouse = Warehouse(root)
    generator = np.random.default_rng(11)
    start = datetime.combine(FIRST, datetime.min.time(), tzinfo=UTC)
    rows: list[Row] = []
    for user in range(users):
        bought = [(float(generator.uniform(0, DAYS)), f"i{int(generator.integers(30)):02d}") for _ in range(30)]
        bought.append((DAYS - 23.0 + user / users, f"m{user:03d}"))
        bought.append((DAYS - 6 + float(generator.uniform(0, 6)), f"{'t' if hit(user) else 'o'}{user:03d}"))
        rows += [
            {"event_id": f"{user:03d}-{n}", "user_id": f"u{user:03d}", "item_id": item, "kind": "purchase",
             "happened_at": start + timedelta(days=day)} for n, (day, item) in enumerate(bought)
        ]  # fmt: skip
    warehouse.append("interactions", rows)
    warehouse.append("users", [{"user_id": f"u{n:03d}", "valid_from": start} for n in range(users)])
    items = sorted({row["item_id"] for row in rows} | {f"t{n:03d}" for n in range(users)})
    warehouse.append("items", [{"item_id": item, "valid_from": start} for item in items])
    told = {"items": items, "follows": {f"m{n:03d}": f"t{n:03d}" for n in range(users)}}
    put_incumbent(warehouse, "shop", level=level, told=told, units=users)
    return warehouse


def take_alone(root: str) -> tuple[str, bool]:
    """Take the newest decision of the fraud model; for a process of its own."""
    from mlcost_pipeline.evidence.decision import take

    place = Path(root)
    found = take(Warehouse(place), settings_of(place), clock_at(), "fraud", AS_OF)
    return found.decision_id, found.job_open
