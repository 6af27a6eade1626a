"""Small shops, made once: one of twelve days, one of three months (a month is restated two months later)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.demo.shop import make_shop
from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.sources.ingest import Ingested, ingest
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Shop:
    """A shop's folder, settings, right answers, and the warehouse that took its history in."""

    folder: Path
    settings: Settings
    truth: dict[str, Any]
    warehouse: Warehouse
    ingested: dict[str, Ingested]


def opened(folder: Path) -> Shop:
    settings = load_settings(folder / "mlcost.yaml")
    warehouse = Warehouse(folder / "warehouse")
    done = {table: ingest(warehouse, settings, table) for table in settings.sources}
    return Shop(folder, settings, json.loads((folder / "truth.json").read_text()), warehouse, done)


@pytest.fixture(scope="session")
def tiny_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Twelve days of forty users."""
    folder = tmp_path_factory.mktemp("tiny")
    make_shop(folder, days=12, users=40, items=60, payments_per_day=60)
    return opened(folder)


@pytest.fixture(scope="session")
def spring_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """March to early May, with few users."""
    folder = tmp_path_factory.mktemp("spring")
    make_shop(folder, days=64, users=30, items=60, payments_per_day=30)
    return opened(folder)
