"""A new day: measured and decided on when it is complete, then served by the model in force."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import triggers
from sensors.request import sensor


def build(settings: Settings, jobs: Mapping[str, Any]) -> list[dg.SensorDefinition]:
    """A day sensor and a serving sensor for each model."""
    known, made = triggers(settings), []
    for model in settings.models:
        for name, about in (
            (f"{model}_day", f"Measures and decides on {model} for the newest complete day, once."),
            (f"{model}_serving", f"Serves the newest complete day with the version of {model} in force."),
        ):
            made.append(sensor(f"{name}_sensor", known[name], [jobs[name]], about))
    return made
