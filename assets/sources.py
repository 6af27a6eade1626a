"""Group `sources`: events, labels and logs as mlcost.yaml maps them, read once and validated on the way in."""

import dagster as dg

from assets.names import key, tags_of
from mlcost_pipeline.reports.stages import ingest_report
from mlcost_pipeline.resources import PLATFORM, Project, materialized
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.tables import TABLES
from mlcost_pipeline.triggers import RECORD_TABLES, mark_read, newest_day

GROUP = "sources"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset for each table that the settings name a source for."""
    return [_source(table) for table in sorted(settings.sources)]


def _source(table: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(table),
        group_name=GROUP,
        kinds={"parquet"},
        tags=tags_of(PLATFORM, "features"),
        description=f"{TABLES[table].about.capitalize()}, one row each: new files are read, checked and kept.",
    )
    def source(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        day = newest_day(project.warehouse, project.settings)
        with project.run(context, PLATFORM, stage="features", purpose="build"):
            read = ingest(project.warehouse, project.settings, table)
        if table in RECORD_TABLES:
            mark_read(project.warehouse, table, day)
        return materialized(ingest_report(read, project.settings))

    return source
