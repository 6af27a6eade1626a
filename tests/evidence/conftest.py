"""One warehouse a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcost_pipeline.settings import Settings
from tests.evidence.worlds import settings_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path / "warehouse")
