"""A retrain on evidence: requested once for each decision, otherwise the reason why not, with numbers."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import triggers
from sensors.request import sensor


def build(settings: Settings, jobs: Mapping[str, Any]) -> list[dg.SensorDefinition]:
    """One retrain sensor a model."""
    known = triggers(settings)
    return [
        sensor(
            f"{model}_retrain_sensor",
            known[f"{model}_retrain"],
            [jobs[f"{model}_retrain"]],
            f"Carries out a decision to retrain {model}, exactly once, and says why not where there is none.",
        )
        for model in settings.models
    ]
