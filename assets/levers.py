"""Group `levers`: the seven questions in their order, and the report that a person reads."""

import dagster as dg

from assets.names import key, tags_of
from mlcost_pipeline.levers.plan import plan
from mlcost_pipeline.reports.main_report import remember, write_report
from mlcost_pipeline.reports.stages import lever_plan_report
from mlcost_pipeline.resources import PLATFORM, Project, materialized
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.training.acting import frozen
from mlcost_pipeline.triggers import report_key

GROUP = "levers"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """One plan a model, and the report of all."""
    return [*(_plan(model) for model in settings.models), _report(settings)]


def _plan(model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "lever_plan"),
        group_name=GROUP,
        tags=tags_of(model, "evaluation"),
        deps=[key(model, "cost_per_outcome"), key(model, "production")],
    )
    def lever_plan(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """The seven questions, simplest first, each with its answer, the saving and the effect on the outcome."""
        may_try = frozen(project.warehouse, model) is None
        answers = plan(project.warehouse, project.settings, model, may_try=may_try)
        return materialized(lever_plan_report(model, answers, project.settings))

    return lever_plan


def _report(settings: Settings) -> dg.AssetsDefinition:
    @dg.asset(
        key=key("report"),
        group_name=GROUP,
        kinds={"html"},
        tags=tags_of(PLATFORM, "evaluation"),
        deps=[key(model, "lever_plan") for model in settings.models],
    )
    def report(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """The whole story as one page that opens offline."""
        shown = report_key(project.warehouse, project.settings)
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure"):
            written = write_report(project.warehouse, project.settings)
        remember(project.warehouse, written, key=shown)
        return materialized(written.overview)

    return report
