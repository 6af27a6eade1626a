"""Versions of models: what was trained, what is in force, and how it came into force.

The one place the other parts import from; reading and registering live in ``trained``, the end of a job in
``promotion``.
"""

from __future__ import annotations

from mlcost_pipeline.evaluation.promotion import promote, record_gate, reject
from mlcost_pipeline.evaluation.trained import (
    ModelVersion,
    all_versions,
    get_version,
    incumbent,
    latest_of,
    load_predictor,
    register,
    version_of,
)

__all__ = [
    "ModelVersion",
    "all_versions",
    "get_version",
    "incumbent",
    "latest_of",
    "load_predictor",
    "promote",
    "record_gate",
    "register",
    "reject",
    "version_of",
]
