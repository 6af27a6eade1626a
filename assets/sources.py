"""Group `sources`: events, labels and logs as mlcost.yaml maps them, read once and validated on the way in."""

import dagster as dg

from assets.names import key, tags_of
from mlcost_pipeline.cost.orchestrators.copying import copy_orchestrator
from mlcost_pipeline.reports.stages import ingest_report
from mlcost_pipeline.resources import PLATFORM, Project, materialized
from mlcost_pipeline.settings import Orchestrator, Settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.sources.reader import seen_files
from mlcost_pipeline.sources.recorded import RECORDED, close_recorded
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.triggers import RECORD_TABLES, mark_looked, mark_read, newest_day, this_hour

GROUP = "sources"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset for each table that the settings name a source for."""
    made = [_source(table) for table in sorted(settings.sources)]
    return made + [_orchestrator(each) for each in settings.orchestrators]


def _source(table: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(table),
        group_name=GROUP,
        kinds={"parquet"},
        tags=tags_of(PLATFORM, "features"),
        description=f"{TABLES[table].about.capitalize()}, one row each: new files are read, checked and kept.",
    )
    def source(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        if table in RECORDED:
            close_recorded(project.settings, table)
        seen = seen_files(project.settings, table)  # before the read: what changes meanwhile is read again
        day = newest_day(project.warehouse, project.settings)
        with project.run(context, PLATFORM, stage="features", purpose="build"):
            read = ingest(project.warehouse, project.settings, table)
        if table in RECORD_TABLES:
            mark_read(project.warehouse, table, day, seen)
        return materialized(ingest_report(read, project.settings))

    return source


def runs_of(orchestrator: Orchestrator) -> str:
    """The name of the asset that holds the runs of another orchestrator."""
    return f"runs_of_{orchestrator.name.replace('-', '_')}"


def _orchestrator(orchestrator: Orchestrator) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(runs_of(orchestrator)),
        group_name=GROUP,
        tags=tags_of(PLATFORM, "evaluation"),
        description=f"Run records of the Dagster instance {orchestrator.name}: what changed there since the last look.",
    )
    def runs(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        hour = this_hour(project.warehouse, project.settings)
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure"):
            copied = copy_orchestrator(project.warehouse, orchestrator)
        mark_looked(project.warehouse, orchestrator.name, hour)
        return dg.MaterializeResult(
            metadata={"summary": copied.sentence, "runs": copied.runs, "records": copied.records}
        )

    return runs
