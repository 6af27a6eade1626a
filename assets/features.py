"""Group `features`: the rows a model is trained and judged on, as of a day. A stage with runs and cost of its own."""

import dagster as dg

from assets.names import days_in, days_of, key, tables_of, tags_of
from mlcost_pipeline.models.features import build_features
from mlcost_pipeline.reports.stages import features_report
from mlcost_pipeline.resources import Project, materialized
from mlcost_pipeline.settings import Settings

GROUP = "features"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """One features asset a model."""
    return [_features(settings, model) for model in settings.models]


def _features(settings: Settings, model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "features"),
        group_name=GROUP,
        kinds={"duckdb"},
        tags=tags_of(model, "features"),
        deps=[key(table) for table in tables_of(settings, settings.model(model))],
        partitions_def=days_of(settings.model(model)),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def features(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Rows known at the end of the day, cut into training and held-out days; nothing looks at a later label."""
        day = days_in(context)[-1]
        with project.run(context, model, stage="features", purpose="build", partition=day.isoformat()):
            made = build_features(project.warehouse, project.settings, model, day)
        return materialized(features_report(made, project.settings), data_version=made.data_version)

    return features
