"""Group `serving`: lists for every user, published as one version; scores of every payment; what was served."""

from datetime import timedelta

import dagster as dg

from assets.names import days_in, days_of, key, tables_of, tags_of
from mlcost_pipeline.inference.lookup_log import roll_lookups, roll_requests
from mlcost_pipeline.inference.predict import score_days
from mlcost_pipeline.inference.publication import make_version
from mlcost_pipeline.inference.served import served
from mlcost_pipeline.reports.stages import predictions_report, publication_report, served_report
from mlcost_pipeline.resources import Project, materialized
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import mark_served

GROUP = "serving"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """Lists and what was served for recommendation models, predictions for scoring models."""
    made = []
    for model, block in settings.models.items():
        if block.task == "recommendation":
            made += [_lists(settings, model), _served(settings, model)]
        else:
            made.append(_predictions(settings, model))
    return made


def _lists(settings: Settings, model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "lists"),
        group_name=GROUP,
        kinds={"sqlite"},
        tags=tags_of(model, "serving"),
        deps=[key(model, "production"), key(model, "features")],
        partitions_def=days_of(settings.model(model)),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def lists(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """A list for every known user, validated whole and published by moving one pointer."""
        day = days_in(context)[-1]
        with project.run(context, model, stage="serving", purpose="batch", partition=day.isoformat()) as run:
            made = make_version(
                project.warehouse, project.settings, project.clock(model), model, as_of=day, run_id=run.run_id
            )
        mark_served(project.warehouse, model, made.model_version, day)
        return materialized(publication_report(made, project.settings), data_version=made.version)

    return lists


def _served(settings: Settings, model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "served"),
        group_name=GROUP,
        tags=tags_of(model, "serving"),
        deps=[key(model, "lists")],
        partitions_def=days_of(settings.model(model)),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def lookups_served(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """How many lookups were answered from which tier, and how old the answers were."""
        days = days_in(context)
        with project.run(context, model, stage="evaluation", purpose="measure", partition=days[-1].isoformat()):
            roll_lookups(project.warehouse)
            roll_requests(project.warehouse)
            counted = served(project.warehouse, project.settings, model, days[0], days[-1] + timedelta(days=1))
        return materialized(served_report(counted, project.settings))

    return lookups_served


def _predictions(settings: Settings, model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "predictions"),
        group_name=GROUP,
        tags=tags_of(model, "serving"),
        deps=[key(model, "production"), *(key(table) for table in tables_of(settings, settings.model(model)))],
        partitions_def=days_of(settings.model(model)),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def predictions(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Every payment of the day scored by the model in force; the highest scores, up to capacity, are alerts."""
        days = days_in(context)
        with project.run(context, model, stage="serving", purpose="batch", partition=days[-1].isoformat()) as run:
            roll_requests(project.warehouse)
            made = score_days(
                project.warehouse,
                project.settings,
                project.clock(model),
                model,
                days[0],
                days[-1] + timedelta(days=1),
                run_id=run.run_id,
            )
        mark_served(project.warehouse, model, made.model_version, days[-1])
        return materialized(predictions_report(made, project.settings))

    return predictions
