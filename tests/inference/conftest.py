"""A small shop: three weeks of purchases by eighty users, and a matrix factorisation in production."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evaluation.versions import register
from mlcost_pipeline.models.features import build_features
from mlcost_pipeline.models.registry import family
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.training.contract import describe_files
from mlcost_pipeline.warehouse import Warehouse

MODEL = "shop"
FIRST_DAY = date(2025, 3, 1)
DAY = date(2025, 3, 20)
CUT = datetime(2025, 3, 21, tzinfo=UTC)


class Shop:
    """A warehouse with its settings and clock, and short ways to make things happen in it."""

    model, day, cut = MODEL, DAY, CUT

    def __init__(self, root: Path, serving: dict[str, Any] | None = None) -> None:
        self.warehouse = Warehouse(root)
        self.settings = settings_with(serving or {})
        self.clock = Clock.fixed_origin(CUT + timedelta(hours=1))

    def purchase(self, user: str | None, item: str, at: datetime) -> None:
        event = f"{user}-{item}-{at.isoformat()}"
        row = {"event_id": event, "user_id": user, "item_id": item, "kind": "purchase", "happened_at": at}
        self.warehouse.append("interactions", [row])

    def withdraw(self, item: str, at: datetime) -> None:
        born = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) - timedelta(days=1)
        self.warehouse.append("items", [{"item_id": item, "valid_from": born, "valid_to": at}])

    def train(self, job: str = "job-1", seed: int = 0, as_of: date = DAY) -> str:
        """Train on the features of a day and put the version into production."""
        features = build_features(self.warehouse, self.settings, MODEL, as_of)
        folder = self.warehouse.folder(MODEL, "jobs", job, "attempts", "1", "artefact")
        trainer = family("als")({"factors": 8, "iterations": 4}, seed)
        trainer.start(features.folder, features.cuts.training_cut)
        for step in range(trainer.epochs):
            trainer.step(np.zeros(1, dtype=np.int64), step)
        trainer.save(folder)
        (folder.parent / "result.json").write_text(json.dumps({"artefact": describe_files(folder)}))
        version = register(
            self.warehouse,
            model=MODEL,
            family="als",
            job_id=job,
            attempt=1,
            artefact=folder,
            training_cut=features.cuts.training_cut,
        )
        self.warehouse.state.update(f"models/{MODEL}", lambda value: {**(value or {}), "incumbent": version})
        return version


def settings_with(serving: dict[str, Any]) -> Settings:
    """Settings of the shop; nobody is held out unless a test asks for it."""
    block = {
        "task": "recommendation",
        "first_day": FIRST_DAY,
        "trainer": {"family": "als"},
        "baseline": {"family": "als"},
        "windows": {"training_days": 18, "holdout_days": 2},
        "outcome": {"unit": "added_clicks"},
        "holdout_share": serving.pop("holdout_share", 0.0),
        "serving": {"list_length": 4, "stored_length": 10, "max_age_hours": 48, "popular_days": 7, **serving},
    }
    pools = [{"name": "here", "market": "on_demand", "price_per_hour": "1"}]
    return Settings.model_validate(
        {"version": 1, "name": "shop", "models": {MODEL: block}, "capacity": {"pools": pools}}
    )


def purchases(users: Sequence[str], items: Sequence[str], days: int = 20, seed: int = 1) -> list[dict[str, Any]]:
    """Users who like items of their own kind (three kinds), a few purchases each; days are half open."""
    rng = np.random.default_rng(seed)
    start = datetime.combine(FIRST_DAY, datetime.min.time(), UTC)
    rows = []
    for number, user in enumerate(users):
        for n in range(3 + number % 5):
            kind = number % 3 if rng.random() < 0.8 else int(rng.integers(3))
            item = items[int(kind + 3 * rng.integers(len(items) // 3))]
            at = start + timedelta(seconds=int(rng.integers(days * 86400)))
            rows.append(
                {"event_id": f"{user}/{n}", "user_id": user, "item_id": item, "kind": "purchase", "happened_at": at}
            )
    return rows


ITEMS = [f"item{n:02d}" for n in range(30)]


def open_shop(root: Path, users: Sequence[str], serving: dict[str, Any] | None = None) -> Shop:
    """Fill and train a new shop."""
    shop = Shop(root, serving)
    shop.warehouse.append("interactions", purchases(users, ITEMS))
    born = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) - timedelta(days=1)
    shop.warehouse.append("items", [{"item_id": item, "valid_from": born} for item in ITEMS])
    shop.train()
    return shop


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a filled and trained shop, to be copied and never touched."""
    root = tmp_path_factory.mktemp("trained") / "warehouse"
    open_shop(root, [f"u{n}" for n in range(80)])
    return root


@pytest.fixture(scope="session")
def copy_shop(trained: Path) -> Callable[..., Shop]:
    """Copies the trained shop to a place of its own."""

    def copy(root: Path, **serving: Any) -> Shop:
        shutil.copytree(trained, root)
        return Shop(root, serving)

    return copy


@pytest.fixture
def make_shop(tmp_path: Path, copy_shop: Callable[..., Shop]) -> Callable[..., Shop]:
    """Builds a shop with a trained model; keyword arguments change ``serving`` (and ``holdout_share``)."""

    def make(name: str = "warehouse", *, users: Sequence[str] = (), **serving: Any) -> Shop:
        if users:
            return open_shop(tmp_path / name, users, serving)
        return copy_shop(tmp_path / name, **serving)

    return make


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """The shop with its defaults."""
    return make_shop()
