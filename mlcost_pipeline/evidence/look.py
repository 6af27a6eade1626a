"""One look at a model's data as of a day: what is held against what, and the identity of the evidence it gives.

The identity is made of what was looked at (model, incumbent, day, data, detector and policy with its constants) and
of nothing measured, so the same data looked at ten times is one piece of evidence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from mlcost_pipeline.evaluation.versions import ModelVersion, incumbent
from mlcost_pipeline.evidence.values import canonical
from mlcost_pipeline.models.base import Cuts, cuts
from mlcost_pipeline.models.features import FeatureSet, build_features, load_features
from mlcost_pipeline.settings import ModelSettings, Settings, digest
from mlcost_pipeline.warehouse import Warehouse

DETECTOR_VERSION = "1"
POLICY_VERSION = "1"


@dataclass(frozen=True)
class Look:
    """Everything a measurement needs to know about when, what and against whom."""

    model: str
    as_of: date
    settings: ModelSettings
    incumbent: ModelVersion | None
    features: FeatureSet
    cuts: Cuts
    policy_version: str
    evidence_id: str

    @property
    def data_version(self) -> str:
        return self.features.data_version

    @property
    def window_start(self) -> datetime:
        """Start of the evidence window, which ends at the data cut."""
        return self.cuts.data_cut - timedelta(days=self.settings.windows.evidence_days)

    @property
    def table(self) -> str:
        """The table that the model learns from."""
        return "transactions" if self.settings.task == "scoring" else "interactions"


def policy_version(model: ModelSettings) -> str:
    """The version of the rules together with a digest of the constants they were applied with."""
    constants = [model.policy.model_dump(mode="json"), model.windows.model_dump(mode="json")]
    return f"{POLICY_VERSION}-{digest(constants, length=8)}"


def look_at(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> Look:
    """Fix what is looked at. Features are built if they are not there yet.

    Evidence that quarantined rows keeps standing for its day: features rebuilt without these rows are its
    consequence, not new data.
    """
    chosen = settings.model(model)
    current = incumbent(warehouse, model)
    name = None if current is None else current.version
    version = policy_version(chosen)
    standing = _standing(warehouse, model, name, as_of, version)
    if standing is None:
        features = build_features(warehouse, settings, model, as_of)
    else:
        features = load_features(warehouse, model, standing)
    identity = digest(model, name, as_of.isoformat(), features.data_version, DETECTOR_VERSION, version)
    return Look(model, as_of, chosen, current, features, cuts(chosen, as_of), version, identity)


def _standing(warehouse: Warehouse, model: str, name: str | None, as_of: date, version: str) -> str | None:
    rows = warehouse.rows(
        "evidence",
        where="model = ? AND as_of = ? AND incumbent IS NOT DISTINCT FROM ? AND detector_version = ?",
        params=[model, as_of, name, DETECTOR_VERSION],
    )
    for row in rows:
        values = json.loads(row["values"])
        if values["policy_version"] == version and values["quarantined_rows"]:
            return str(row["data_version"])
    return None


def reference_features(warehouse: Warehouse, look: Look) -> FeatureSet:
    """The features that the incumbent was trained on, as far as its job still tells; else those of this look."""
    if look.incumbent is not None:
        stored = warehouse.state.get(f"jobs/{look.incumbent.job_id}/job")
        version = None if stored is None else stored.value.get("data_version")
        if version is not None:
            return load_features(warehouse, look.model, str(version))
    return look.features


def part(warehouse: Warehouse, look: Look, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One measurement of a look: read if it was made before, else made and kept."""
    file = part_file(warehouse, look, name)
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_bytes())
        return found
    text = canonical(measure())
    warehouse.write_file(file, text.encode())
    made: dict[str, Any] = json.loads(text)
    return made


def part_file(warehouse: Warehouse, look: Look, name: str) -> Path:
    """Where one measurement of a look is kept."""
    return warehouse.folder(look.model, "evidence", look.as_of.isoformat()) / f"{look.evidence_id}-{name}.json"
