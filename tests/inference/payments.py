"""A small bank: payments with planted frauds, a trained forest in production."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evaluation.versions import register
from mlcost_pipeline.models.features import build_features
from mlcost_pipeline.models.registry import family
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.training.contract import describe_files
from mlcost_pipeline.warehouse import Warehouse

MODEL = "fraud"
FIRST = date(2025, 5, 20)
DAYS = 20
A_DAY = 40


class Bank:
    """Payments from 20 May, one empty day (5 June), labels after a day."""

    model, empty_day = MODEL, date(2025, 6, 5)

    def __init__(self, root: Path, beside: dict[str, Any] | None = None) -> None:
        self.warehouse = Warehouse(root)
        block = {
            "task": "scoring",
            "first_day": FIRST,
            "trainer": {"family": "forest"},
            "baseline": {"family": "forest"},
            "features": ["amount", "merchant_category", "happened_at", "customer_id", "terminal_id"],
            "windows": {"training_days": 15, "holdout_days": 2, "label_delay_days": 2},
            "outcome": {"unit": "fraud_caught"},
            "alerts_per_day": 5,
        }
        pools = [{"name": "here", "market": "on_demand", "price_per_hour": "1"}]
        models = {MODEL: block, **(beside or {})}
        self.settings = Settings.model_validate(
            {"version": 1, "name": "bank", "models": models, "capacity": {"pools": pools}}
        )
        self.clock = Clock.fixed_origin(datetime(2025, 6, 9, 1, tzinfo=UTC))

    def fill(self) -> None:
        rng = np.random.default_rng(4)
        payments, labels = [], []
        for n in range(DAYS * A_DAY):
            at = datetime.combine(FIRST, datetime.min.time(), UTC) + timedelta(
                days=n // A_DAY, minutes=30 * (n % A_DAY)
            )
            if at.date() == self.empty_day:
                continue
            fraud = rng.random() < 0.1
            amount = Decimal(int(rng.integers(300, 500) if fraud else rng.integers(5, 330)))
            payment = {"transaction_id": f"{n:06d}", "happened_at": at, "amount": amount, "currency": "EUR"}
            place = {"customer_id": f"c{n % 17}", "terminal_id": f"t{n % 11}"}
            payments.append({**payment, **place, "merchant_category": "shoes" if n % 3 else "games"})
            known = at + timedelta(days=1)
            labels.append({"transaction_id": f"{n:06d}", "known_at": known, "is_fraud": bool(fraud)})
        self.warehouse.append("transactions", payments)
        self.warehouse.append("labels", labels)

    def train(self, job: str = "job-1", seed: int = 0) -> str:
        features = build_features(self.warehouse, self.settings, MODEL, date(2025, 6, 8))
        folder = self.warehouse.folder(MODEL, "jobs", job, "attempts", "1", "artefact")
        trainer = family("forest")({"trees": 10, "min_leaf_rows": 5}, seed)
        trainer.start(features.folder, features.cuts.training_cut)
        trainer.step(np.zeros(1, dtype=np.int64), 0)
        trainer.save(folder)
        (folder.parent / "result.json").write_text(json.dumps({"artefact": describe_files(folder)}))
        cut = features.cuts.training_cut
        version = register(
            self.warehouse, model=MODEL, family="forest", job_id=job, attempt=1, artefact=folder, training_cut=cut
        )
        self.warehouse.state.update(f"models/{MODEL}", lambda value: {**(value or {}), "incumbent": version})
        return version
