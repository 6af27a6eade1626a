"""New bills, ledgers that are behind, months that are not counted, a report that is out of date."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import triggers
from sensors.request import sensor

#: Where every job writes files of its own, a read a file would cost more than most of the jobs.
RECORDS_SECONDS = 600


def build(settings: Settings, jobs: Mapping[str, Any]) -> list[dg.SensorDefinition]:
    """The sensors of the cost group and of the report."""
    known = triggers(settings)
    made = [
        sensor("bills_sensor", known["bills"], [jobs["bills"]], "Imports billing exports that have not been read."),
        sensor(
            "ledgers_sensor", known["ledgers"], [jobs["ledger"]], "Attributes periods whose bill or runs are newer."
        ),
        sensor("report_sensor", known["report"], [jobs["reporting"]], "Writes the report when what it shows changed."),
    ]
    if "orchestrators" in jobs:
        about = "Reads run records of other Dagster instances, once an hour."
        made.append(sensor("orchestrators_sensor", known["orchestrators"], [jobs["orchestrators"]], about))
    if "records" in jobs:
        about = "Reads run records of elsewhere, when a day is over and when their files change."
        made.append(sensor("records_sensor", known["records"], [jobs["records"]], about, RECORDS_SECONDS))
    for model in settings.owners:
        name = f"{model}_month"
        made.append(
            sensor(f"{name}_sensor", known[name], [jobs[name]], f"Counts what {model} earned and what it cost.")
        )
    return made
