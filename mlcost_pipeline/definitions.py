"""The composition root: reads MLCOST_CONFIG and wires assets, sensors, jobs and resources; nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg

from assets import checks, cost, evidence, features, levers, serving, sources, training
from assets.names import key, tables_of
from mlcost_pipeline.errors import SettingsError
from mlcost_pipeline.resources import Project
from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.triggers import RECORD_TABLES
from sensors import budgets, days, failures, retrain, run_records
from sensors import cost as cost_sensors

GROUPS = (sources, features, evidence, training, serving, cost, levers)


def config_path() -> Path:
    """The mlcost.yaml of this code location: MLCOST_CONFIG, or mlcost.yaml in the current folder."""
    path = Path(os.environ.get("MLCOST_CONFIG", "mlcost.yaml")).resolve()
    if not path.exists():
        raise SettingsError(f"{path}: no such file; set MLCOST_CONFIG to your mlcost.yaml, or run `make demo` for one")
    return path


def build_definitions(path: Path) -> dg.Definitions:
    """Everything that one mlcost.yaml describes."""
    settings = load_settings(path)
    jobs = build_jobs(settings)
    made = [asset for group in GROUPS for asset in group.build(settings)]
    return dg.Definitions(
        assets=made,
        asset_checks=checks.build(settings),
        jobs=list(jobs.values()),
        sensors=[
            *days.build(settings, jobs),
            *retrain.build(settings, jobs),
            *cost_sensors.build(settings, jobs),
            *budgets.build(settings),
            *failures.build(),
            *run_records.build(run_records.owners_of(made)),
        ],
        resources={
            "project": Project(config_path=str(path)),
            "supervisor": dg.PipesSubprocessClient(forward_termination=True, termination_timeout_seconds=60),
        },
        executor=dg.multiprocess_executor.configured({"max_concurrent": 2}),
    )


def build_jobs(settings: Settings) -> dict[str, Any]:
    """Jobs by name: a day, a retrain, a serving and a month for each model; bills, ledger and report for all."""
    jobs = {}
    for model, block in settings.models.items():
        parts = ["features", *evidence.PARTS, "evidence", "decision"]
        serves = ["lists", "served"] if block.task == "recommendation" else ["predictions"]
        days_ = [key(table) for table in tables_of(settings, block)] + [key(model, part) for part in parts]
        jobs[f"{model}_day"] = _job(f"{model}_day", days_, "Read what is new, measure the day, decide.")
        trained = [key(model, part) for part in ("candidate", "gate", "production")]
        jobs[f"{model}_retrain"] = _job(f"{model}_retrain", trained, "Train the open job, judge it, promote or reject.")
        made = [key(model, part) for part in serves]
        jobs[f"{model}_serving"] = _job(f"{model}_serving", made, "Serve the day with the model in force.")
    for model in settings.owners:
        counted = [key(model, "outcomes")] if model in settings.models else []
        counted.append(key(model, "cost_per_outcome"))
        jobs[f"{model}_month"] = _job(f"{model}_month", counted, "Count outcomes and what each cost.")
    logs = [key(table) for table in RECORD_TABLES if table in settings.sources]
    if logs:
        jobs["records"] = _job("records", logs, "Read run records and logs of elsewhere.")
    if settings.orchestrators:
        runs = [key(sources.runs_of(each)) for each in settings.orchestrators]
        jobs["orchestrators"] = _job("orchestrators", runs, "Read run records of other Dagster instances.")
    jobs["bills"] = _job("bills", [key("bill")], "Import billing exports.")
    jobs["ledger"] = _job("ledger", [key("cost_ledger")], "Attribute one account's month.")
    plans = [key(model, "lever_plan") for model in settings.models]
    jobs["reporting"] = _job("reporting", [*plans, key("report")], "Ask the seven questions and write the report.")
    return jobs


def _job(name: str, assets: list[dg.AssetKey], about: str) -> Any:
    return dg.define_asset_job(name, selection=dg.AssetSelection.assets(*assets), description=about)


defs = build_definitions(config_path())
