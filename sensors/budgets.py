"""A month that will pass its budget: a person is told, and nothing is run."""

import dagster as dg

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import triggers
from sensors.request import sensor


def build(settings: Settings) -> list[dg.SensorDefinition]:
    """One sensor for all budgets of mlcost.yaml."""
    about = "Tells a person once a month of each threshold of a model's budget that its spend or forecast has crossed."
    return [sensor("budgets_sensor", triggers(settings)["budgets"], [], about)]
