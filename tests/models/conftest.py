"""Features folders that every model test shares, made through the warehouse as training would find them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlcost_pipeline.models.features import FeatureSet, build_features
from mlcost_pipeline.warehouse import Warehouse
from tests.models.samples import AS_OF, events, payments, recommendation, scoring, settings_with


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture(scope="session")
def lists_features(tmp_path_factory: pytest.TempPathFactory) -> FeatureSet:
    """Features of a small shop."""
    store = Warehouse(tmp_path_factory.mktemp("lists"))
    store.append("interactions", events())
    return build_features(store, settings_with(lists=recommendation()), "lists", AS_OF)


@pytest.fixture(scope="session")
def fraud_features(tmp_path_factory: pytest.TempPathFactory) -> FeatureSet:
    """Features of small payments."""
    store = Warehouse(tmp_path_factory.mktemp("fraud"))
    rows, labels = payments()
    store.append("transactions", rows)
    store.append("labels", labels)
    model = scoring(features=["feature_online"])
    return build_features(store, settings_with(fraud=model), "fraud", AS_OF)


@pytest.fixture
def features_of(lists_features: FeatureSet, fraud_features: FeatureSet) -> Callable[[str], FeatureSet]:
    """The features that a family trains on."""
    return lambda name: lists_features if name in ("als", "sasrec") else fraud_features
