"""Group `training`: a decision's job on spot capacity, the gate, and the model in production."""

import os
import sys
import warnings
from collections.abc import Iterator

import dagster as dg

from assets.names import key, tags_of
from mlcost_pipeline.evaluation.candidates import judge_candidate, settle
from mlcost_pipeline.reports.stages import gate_report, job_report, promotion_report
from mlcost_pipeline.resources import Project, materialized
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.jobs import open_job_of
from mlcost_pipeline.spot.supervisor import job_result, supervisor_lease

# Dagster's own subprocess client asks this of its own message reader.
warnings.filterwarnings("ignore", message=r"Function `PipesMessageReader.expected_writer_count` is currently in prev")

GROUP = "training"
JOB_TAG = "mlcost/job_id"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """Candidate, gate and production of each model."""
    made = []
    for model in settings.models:
        made += [_candidate(model), _gate(model), _production(model)]
    return made


def _candidate(model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "candidate"),
        group_name=GROUP,
        kinds={"pytorch"},
        tags=tags_of(model, "training"),
        deps=[key(model, "decision")],
        output_required=False,
    )
    def candidate(
        context: dg.AssetExecutionContext, project: Project, supervisor: dg.PipesSubprocessClient
    ) -> Iterator[dg.MaterializeResult]:
        """The open job of this model, trained by a supervisor in a process of its own; quiet where there is none."""
        job_id = context.run.tags.get(JOB_TAG) or open_job_of(project.warehouse, model)
        if job_id is None:
            context.log.info("no job is open for %s: nothing to train", model)
            return
        lease = supervisor_lease(project.warehouse, job_id)
        if lease is not None and lease.live:
            context.log.info("job %s is held by another supervisor; nothing to do", job_id)
            return
        command = [
            sys.executable, "-m", "mlcost_pipeline.cli", "--config", project.config_path,
            "train", "--job", job_id, "--orchestrator-run-id", context.run.run_id,
        ]  # fmt: skip
        supervisor.run(context=context, command=command, env=dict(os.environ)).get_results()
        result = job_result(project.warehouse, project.settings, job_id)
        yield materialized(job_report(result, project.settings, project.warehouse), data_version=result.version)

    return candidate


def _gate(model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "gate"),
        group_name=GROUP,
        tags=tags_of(model, "evaluation"),
        deps=[key(model, "candidate"), key(model, "features")],
        output_required=False,
    )
    def gate(context: dg.AssetExecutionContext, project: Project) -> Iterator[dg.MaterializeResult]:
        """The candidate against the incumbent on the newest held-out days, overall and on each slice."""
        with project.run(context, model, stage="evaluation", purpose="measure"):
            result = judge_candidate(project.warehouse, project.settings, model)
        if result is None:
            context.log.info("no candidate of %s waits for judgement", model)
            return
        yield materialized(gate_report(result, project.settings))

    return gate


def _production(model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "production"),
        group_name=GROUP,
        tags=tags_of(model, "training"),
        deps=[key(model, "gate")],
        output_required=False,
    )
    def production(context: dg.AssetExecutionContext, project: Project) -> Iterator[dg.MaterializeResult]:
        """The model in force: the candidate where the gate let it through, otherwise the one before."""
        settled = settle(project.warehouse, project.settings, project.clock(model), model)
        if settled is None:
            context.log.info("no judged candidate of %s waits", model)
            return
        yield materialized(promotion_report(settled, project.settings), data_version=settled.version)

    return production
