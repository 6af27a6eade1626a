"""A warehouse of its own for every test of the cost side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import two_models


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture(scope="session")
def settings() -> Settings:
    return two_models()


@pytest.fixture(scope="session")
def billing_data() -> Path:
    """The shared folder of published bills; tests that need it say why they are skipped."""
    folder = Path(os.environ.get("MLCOST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "billing"
    if not folder.is_dir():
        pytest.skip(f"no published bills in {folder}; set MLCOST_DATA to the folder that holds billing/")
    return folder
