"""Trained models by version: registering, loading, and the version in force.

A version is named by its job, so training the same decision twice is one version. What is in force is one pointer,
``incumbent`` in the state ``models/<model>``; the table ``model_versions`` tells its history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcost_pipeline.errors import JobError, ModelError
from mlcost_pipeline.evaluation.artefact import verify
from mlcost_pipeline.settings import digest
from mlcost_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from mlcost_pipeline.models.base import Recommender, Scorer


@dataclass(frozen=True)
class ModelVersion:
    """One trained model; `artefact` is a path relative to the warehouse's root."""

    model: str
    version: str
    family: str
    job_id: str
    attempt: int
    artefact: str
    training_cut: datetime
    gate: dict[str, Any] | None = None
    gate_passed: bool | None = None
    promoted_at: datetime | None = None
    retired_at: datetime | None = None
    restored_from: str | None = None

    def row(self, **changes: Any) -> dict[str, Any]:
        """The row of ``model_versions``, with some columns changed."""
        gate = None if self.gate is None else json.dumps(self.gate, sort_keys=True, separators=(",", ":"))
        return {**vars(self), "gate": gate, **changes}

    def with_gate(self, gate: dict[str, Any], *, passed: bool) -> ModelVersion:
        """The same version with a verdict."""
        return replace(self, gate=gate, gate_passed=passed)

    def folder(self, warehouse: Warehouse) -> Path:
        """Where the artefact lies."""
        return warehouse.root / self.artefact


def version_of(model: str, job_id: str) -> str:
    """The name of the version that a job trains."""
    return f"{model}-{digest(job_id)[:10]}"


def register(
    warehouse: Warehouse,
    *,
    model: str,
    family: str,
    job_id: str,
    attempt: int,
    artefact: Path,
    training_cut: datetime,
) -> str:
    """Record what a finished attempt trained and return its version; a repeat changes nothing.

    A later attempt of the same job takes the place of an earlier one until the version has been promoted.

    Raises:
        JobError: a later attempt has registered already; this one is stale.
        ModelError: the artefact lies outside the warehouse or differs from what its attempt wrote.
    """
    version = version_of(model, job_id)
    known = _find(warehouse, model, version)
    if known is not None:
        if known.attempt > attempt:
            raise JobError(f"job {job_id}: attempt {attempt} is stale, attempt {known.attempt} was registered")
        if known.attempt == attempt or known.promoted_at is not None:
            return version
    verify(artefact)
    root = warehouse.root
    if not artefact.resolve().is_relative_to(root):
        raise ModelError(f"{artefact}: lies outside the warehouse {root}; train below its artefacts folder")
    place = artefact.resolve().relative_to(root).as_posix()
    new = ModelVersion(model, version, family, job_id, attempt, place, training_cut)
    warehouse.append("model_versions", [new.row()])
    return version


def get_version(warehouse: Warehouse, model: str, version: str) -> ModelVersion:
    """One version.

    Raises:
        ModelError: there is no such version; the text names those there are.
    """
    found = _find(warehouse, model, version)
    if found is None:
        known = ", ".join(v.version for v in all_versions(warehouse, model)) or "none"
        raise ModelError(f"model {model}: no version {version!r}; there are: {known}")
    return found


def all_versions(warehouse: Warehouse, model: str) -> list[ModelVersion]:
    """Every version of a model, oldest training cut first."""
    rows = warehouse.rows("model_versions", where="model = ?", params=[model])
    return sorted(map(_version, rows), key=lambda v: (v.training_cut, v.version))


def latest_of(warehouse: Warehouse, model: str) -> ModelVersion | None:
    """The version with the newest training cut, in force or not."""
    found = all_versions(warehouse, model)
    return found[-1] if found else None


def incumbent(warehouse: Warehouse, model: str) -> ModelVersion | None:
    """The version in force, or None before the first promotion."""
    stored = warehouse.state.get(f"models/{model}")
    version = None if stored is None else stored.value.get("incumbent")
    return None if version is None else get_version(warehouse, model, str(version))


def load_predictor(warehouse: Warehouse, model: str, version: str) -> Recommender | Scorer:
    """Load a version after checking its files; nothing is cached.

    Raises:
        ModelError: unknown version, or files that differ from what was trained.
    """
    from mlcost_pipeline.models.registry import family

    found = get_version(warehouse, model, version)
    folder = found.folder(warehouse)
    verify(folder)
    return family(found.family).load(folder)


def _find(warehouse: Warehouse, model: str, version: str) -> ModelVersion | None:
    rows = warehouse.rows("model_versions", where="model = ? AND version = ?", params=[model, version])
    return _version(rows[0]) if rows else None


def _version(row: Mapping[str, Any]) -> ModelVersion:
    gate = None if row["gate"] is None else json.loads(row["gate"])
    return ModelVersion(**{**row, "gate": gate})
