"""Group `evidence`: faults, volume, drift and decay as of a day, then one decision with its reason."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from assets.names import days_in, days_of, key, tags_of
from mlcost_pipeline.evidence.decision import take
from mlcost_pipeline.evidence.record import collect, find_faults, measure_decay, measure_drift, measure_volume
from mlcost_pipeline.reports.stages import decision_report, evidence_part_report, evidence_report
from mlcost_pipeline.resources import Project, materialized
from mlcost_pipeline.settings import Settings

GROUP = "evidence"

#: Each measurement: how it is made, and what it says.
PARTS: dict[str, tuple[Callable[..., Any], str]] = {
    "faults": (
        find_faults,
        "Schema, missing values, units, ranges, freshness: what blocks a retrain before anything else counts.",
    ),
    "volume": (measure_volume, "New rows, matured labels and rare cases since the incumbent's training cut."),
    "drift": (measure_drift, "How far the newest rows lie from the incumbent's own training rows, by feature."),
    "decay": (measure_decay, "How much of its verified level the incumbent has lost, on matured labels only."),
}


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """Four measurements, the evidence record and the decision, for each model."""
    made = []
    for model in settings.models:
        made += [_part(settings, model, part) for part in PARTS]
        made += [_evidence(settings, model), _decision(settings, model)]
    return made


def _day_asset(settings: Settings, model: str, name: str, deps: list[dg.AssetKey], about: str) -> Callable[..., Any]:
    return dg.asset(
        key=key(model, name),
        group_name=GROUP,
        tags=tags_of(model, "evaluation"),
        deps=deps,
        partitions_def=days_of(settings.model(model)),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=about,
    )


def _part(settings: Settings, model: str, part: str) -> dg.AssetsDefinition:
    make, about = PARTS[part]

    @_day_asset(settings, model, part, [key(model, "features")], about)
    def measure(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        for day in days_in(context):
            with project.run(context, model, stage="evaluation", purpose="measure", partition=day.isoformat()):
                measured = make(project.warehouse, project.settings, model, day)
        return materialized(evidence_part_report(part, measured, project.settings, model=model, as_of=day))

    made: dg.AssetsDefinition = measure
    return made


def _evidence(settings: Settings, model: str) -> dg.AssetsDefinition:
    about = "The measurements of a day as one record: the same data looked at ten times is one piece of evidence."

    @_day_asset(settings, model, "evidence", [key(model, part) for part in PARTS], about)
    def evidence(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        for day in days_in(context):
            with project.run(context, model, stage="evaluation", purpose="measure", partition=day.isoformat()):
                record = collect(project.warehouse, project.settings, project.clock(model), model, day)
        return materialized(evidence_report(record, project.settings), data_version=record.evidence_id)

    made: dg.AssetsDefinition = evidence
    return made


def _decision(settings: Settings, model: str) -> dg.AssetsDefinition:
    about = "Retrain, hold or ask, with its reason, the distance to every threshold and the money on both sides."

    @_day_asset(settings, model, "decision", [key(model, "evidence")], about)
    def decision(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        for day in days_in(context):
            with project.run(context, model, stage="evaluation", purpose="measure", partition=day.isoformat()):
                taken = take(project.warehouse, project.settings, project.clock(model), model, day)
        return materialized(decision_report(taken, project.settings), data_version=taken.decision_id)

    made: dg.AssetsDefinition = decision
    return made
