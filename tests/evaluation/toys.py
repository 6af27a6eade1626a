"""Models that say exactly what a test wants, and the tiny warehouses they are judged in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlcost_pipeline.evaluation.versions import register
from mlcost_pipeline.models.base import Recommender, Scorer, cuts
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.settings import ModelSettings, Settings
from mlcost_pipeline.training.contract import AttemptFolder, describe_files, write_json
from mlcost_pipeline.warehouse import Warehouse

DAY = date(2025, 6, 20)
MIDNIGHT = datetime(2025, 6, 21, tzinfo=UTC)  # the data cut of DAY
TOY = "tests.evaluation.toys:Toy"


class ToyRecommender:
    """After marker item ``m7`` it recommends what ``follows["m7"]`` says, then everything else by id."""

    def __init__(self, follows: Mapping[str, str], items: Sequence[str], *, slow: bool = False) -> None:
        self.items, self._slow = list(items), slow
        self.item_vectors = np.eye(len(items), dtype=np.float32)
        self._follows = {items.index(m): items.index(t) for m, t in follows.items() if m in items and t in items}

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        if self._slow:
            sum(math.sqrt(n) for n in range(2_000_000))
        users = np.zeros((len(histories), len(self.items)), dtype=np.float32)
        for row, history in enumerate(histories):
            for item in history.tolist():
                if item in self._follows:
                    users[row, self._follows[item]] = 1.0
        return users


class ToyScorer:
    """Suspects what it was told of, thinks little of what is fine (``ok-…``), and least of the rest."""

    def __init__(self, suspects: Sequence[str]) -> None:
        self._suspects = set(suspects)

    def score(self, rows: pa.Table) -> NDArray[np.float64]:
        assert "is_fraud" not in rows.column_names
        ids = rows["transaction_id"].to_pylist()
        return np.array([1.0 if i in self._suspects else 0.0 if i.startswith("ok-") else -1.0 for i in ids])


class Toy:
    """A family whose artefact is one JSON file; it trains in as many steps as it is told to."""

    name: ClassVar[str] = TOY
    stepped: ClassVar[bool] = False

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params, self.samples, self.batch_size, self.epochs = dict(params), 1, 1, 1

    def start(self, features: Path, training_cut: datetime) -> None:
        assert features.is_dir()

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        return 0.0

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None: ...

    def save(self, folder: Path) -> None:
        (folder / "toy.json").write_text(json.dumps(self.params))

    @classmethod
    def load(cls, folder: Path) -> Recommender | Scorer:
        told = json.loads((folder / "toy.json").read_text())
        if "items" not in told:
            return ToyScorer(told["suspects"])
        return ToyRecommender(told["follows"], told["items"], slow=told.get("slow", False))


class Simple(Toy):
    """Another family of the same kind, to stand in for a baseline."""

    name: ClassVar[str] = f"{TOY[:-3]}Simple"


def settings_of(warehouse: Path, **changes: Any) -> Settings:
    shared = {
        "first_day": "2025-05-01",
        "mode": "act",
        "trainer": {"family": TOY},
        "baseline": {"family": Simple.name},
        "windows": {"training_days": 20, "holdout_days": 8},
    }
    shop = {**shared, "task": "recommendation", "outcome": {"unit": "hits", "hits_at": 1}, **changes}
    fraud = {
        **shared, "task": "scoring", "outcome": {"unit": "fraud_caught"}, "alerts_per_day": 5,
        "slices": ["merchant_category"], "important_slices": {"merchant_category": ["travel"]},
    }  # fmt: skip
    return Settings.model_validate(
        {
            "version": 1,
            "name": "toys",
            "warehouse": str(warehouse),
            "models": {"shop": shop, "fraud": fraud},
            "capacity": {"pools": [{"name": "od", "market": "on_demand", "price_per_hour": "1"}]},
        }
    )


def trained(warehouse: Warehouse, model: str, job: str, told: Mapping[str, Any], *, attempt: int = 1) -> str:
    """Train a toy the way an attempt does, register it, and make it the open job's candidate."""
    place = AttemptFolder(warehouse.folder(model, "jobs", job), attempt)
    place.artefact.mkdir(parents=True, exist_ok=True)
    (place.artefact / "toy.json").write_text(json.dumps(told))
    write_json(place.result, {"job_id": job, "attempt": attempt, "artefact": describe_files(place.artefact)})
    version = register(
        warehouse, model=model, family=TOY, job_id=job, attempt=attempt, artefact=place.artefact,
        training_cut=MIDNIGHT - timedelta(days=8),
    )  # fmt: skip
    candidate = {"version": version, "attempt": attempt}
    deadline = MIDNIGHT + timedelta(days=1)
    opened = {
        "job_id": job, "model": model, "data_version": "d1", "state": "open", "candidate": candidate,
        "deadline": deadline.isoformat(),
    }  # fmt: skip
    warehouse.state.update(f"jobs/{job}/job", lambda _: opened)
    row = {"job_id": job, "model": model, "deadline": deadline, "state": "open"}
    warehouse.append("jobs", [row])
    warehouse.state.update(f"models/{model}", lambda now: {**(now or {}), "open_job": job})
    return version


def purchases(warehouse: Warehouse, settings: Settings, users: int) -> FeatureSet:
    """User n has bought marker ``mNNN`` before the cut, and buys ``tNNN`` after it."""
    before, after = MIDNIGHT - timedelta(days=10), MIDNIGHT - timedelta(days=2)
    names = [f"{n:03d}" for n in range(users)]
    events = [
        {"user_id": f"u{n}", "item_id": f"{kind}{n}", "happened_at": at, "event_id": f"{kind}{n}"}
        for n in names
        for kind, at in (("m", before), ("t", after))
    ]
    items = [{"item_id": f"{kind}{n}", "withdrawn": False} for kind in "mt" for n in names]
    return write_features(warehouse, settings.model("shop"), "shop", {"events": events, "items": items})


def shop_model(users: int, hit: Sequence[int]) -> dict[str, Any]:
    """A model that hits the users numbered in `hit`."""
    items = [f"{kind}{n:03d}" for kind in "mt" for n in range(users)]
    return {"items": items, "follows": {f"m{n:03d}": f"t{n:03d}" for n in hit}}


def payments(
    warehouse: Warehouse, settings: Settings, frauds: Mapping[str, int], *, days: int = 8, a_day: int = 40
) -> FeatureSet:
    """`frauds` of each merchant category spread over the held-out days, ids ``<category>-<n>``."""
    rows = []
    for n in range(days * a_day):
        at = MIDNIGHT - timedelta(days=1 + n % days) + timedelta(minutes=n // days)
        rows.append(_payment(f"ok-{n:04d}", at, "food", 10.0 + n % 7, False))
    for category, count in frauds.items():
        for n in range(count):
            at = MIDNIGHT - timedelta(days=1 + n % days) + timedelta(hours=12, minutes=n // days)
            rows.append(_payment(f"{category}-{n:03d}", at, category, 5.0, True))
    return write_features(warehouse, settings.model("fraud"), "fraud", {"rows": rows})


def _payment(name: str, at: datetime, category: str, amount: float, fraud: bool) -> dict[str, Any]:
    return {
        "transaction_id": name, "happened_at": at, "merchant_category": category, "amount": amount,
        "is_fraud": fraud, "known_at": at,
    }  # fmt: skip


def write_features(
    warehouse: Warehouse, config: ModelSettings, model: str, files: Mapping[str, list[dict[str, Any]]]
) -> FeatureSet:
    folder = warehouse.folder(model, "features", "d1")
    for name, rows in files.items():
        table = pa.Table.from_pylist(rows)
        if "happened_at" in table.column_names:
            place = table.schema.get_field_index("happened_at")
            table = table.set_column(place, "happened_at", table["happened_at"].cast(pa.timestamp("us", tz="UTC")))
        pq.write_table(table, folder / f"{name}.parquet")
    rows_in = sum(len(rows) for rows in files.values())
    moments = {name: value.isoformat() for name, value in vars(cuts(config, DAY)).items()}
    counts = {"rows": rows_in, "positives": None, "training_rows": rows_in, "dropped": {}}
    write_json(folder / "features.json", {"as_of": DAY.isoformat(), **moments, **counts})
    return FeatureSet(model, DAY, cuts(config, DAY), "d1", folder, rows_in, None, rows_in, {})
