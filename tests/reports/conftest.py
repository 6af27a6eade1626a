"""A small project: a warehouse and settings of two models, written as a user would."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.warehouse import Warehouse

YAML = """
version: 1
name: corner-shop
simulated: true
proxy_note: Every figure is of a shop that does not exist.
warehouse: wh
models:
  recommendations:
    task: recommendation
    mode: act
    first_day: 2025-03-01
    trainer: {family: sasrec}
    baseline: {family: als}
    outcome: {unit: added_clicks}
  fraud:
    task: scoring
    first_day: 2025-03-01
    trainer: {family: mlp}
    baseline: {family: forest}
    outcome: {unit: fraud_caught}
    alerts_per_day: 20
capacity:
  pools:
    - {name: spot-a, market: spot, price_per_hour: 1.00}
    - {name: on-demand, market: on_demand, price_per_hour: 3.00}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "mlcost.yaml"
    file.write_text(YAML, encoding="utf-8")
    return load_settings(file)


@pytest.fixture
def warehouse(settings: Settings) -> Warehouse:
    return Warehouse(settings.path(settings.warehouse))
