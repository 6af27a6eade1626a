"""The retail example over the real files, held against the facts that came with them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.warehouse import Warehouse

EXAMPLE = Path(__file__).parents[2] / "examples" / "retail" / "mlcost.yaml"
DATA = (EXAMPLE.parent / os.environ.get("MLCOST_DATA", "../../../shared/data")).resolve()
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}; set MLCOST_DATA")


def example() -> Settings:
    return load_settings(EXAMPLE)


def test_the_example_is_valid() -> None:
    settings = example()
    assert sorted(settings.models) == ["fraud", "recommendations"]
    assert "feature_scenario" in settings.model("fraud").never_features


@needs_data
def test_orders_of_known_customers_are_those_the_donor_counted(tmp_path: Path) -> None:
    warehouse, began = Warehouse(tmp_path), time.process_time()
    done = ingest(warehouse, example(), "interactions")
    assert time.process_time() - began < 15
    assert done.rows_dropped["duplicate"] > 5000
    (found,) = warehouse.query(
        "SELECT count(DISTINCT user_id) AS users, count(DISTINCT item_id) AS items, "
        "count(DISTINCT (user_id, item_id)) AS pairs FROM interactions WHERE kind = 'purchase' AND user_id IS NOT NULL",
        tables=["interactions"],
    ).to_pylist()
    assert found == {"users": 4335, "items": 3659, "pairs": 266_226}


@needs_data
def test_every_payment_has_exactly_one_label(tmp_path: Path) -> None:
    warehouse, settings = Warehouse(tmp_path), example()
    assert ingest(warehouse, settings, "transactions").rows_new == 234_869
    assert ingest(warehouse, settings, "labels").rows_new == 234_869
    (found,) = warehouse.query(
        "SELECT count(*) AS joined, count(*) FILTER (known_at <= happened_at) AS too_early "
        "FROM transactions JOIN labels USING (transaction_id)",
        tables=["transactions", "labels"],
    ).to_pylist()
    assert found == {"joined": 234_869, "too_early": 0}
