"""Group `cost`: the bill, its attribution to models, stages and runs, and what each outcome cost."""

import dagster as dg

from assets.names import BILL_PERIODS, key, months_of, tags_of
from mlcost_pipeline.cost.deliveries import import_new
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.masking import masked_text, scope_shown, shown_scope
from mlcost_pipeline.cost.months import mark_counted, mark_month, month_key
from mlcost_pipeline.cost.outcomes import count_outcomes
from mlcost_pipeline.cost.runs import close_lost_runs
from mlcost_pipeline.cost.unit_cost import unit_costs
from mlcost_pipeline.reports.stages import bill_report, ledger_report, outcomes_report, unit_cost_report
from mlcost_pipeline.resources import PLATFORM, Project, materialized
from mlcost_pipeline.settings import Settings

GROUP = "cost"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """The bill and its ledger for all; cost per outcome for each model, outcomes for those that are run here."""
    outcomes = [_outcomes(settings, model) for model in settings.models]
    return [_bill(), _ledger(), *outcomes, *(_cost_per_outcome(settings, model) for model in settings.owners)]


def _bill() -> dg.AssetsDefinition:
    @dg.asset(key=key("bill"), group_name=GROUP, kinds={"csv"}, tags=tags_of(PLATFORM, "evaluation"))
    def bill(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Billing exports taken over whole: one delivery for each account and month, the newest in force."""
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure"):
            deliveries = import_new(project.warehouse, project.settings)
        scopes = sorted({shown_scope(each.account, each.period, project.settings) for each in deliveries})
        if scopes:
            context.instance.add_dynamic_partitions(str(BILL_PERIODS.name), scopes)
        return materialized(bill_report(deliveries, project.settings))

    return bill


def _ledger() -> dg.AssetsDefinition:
    @dg.asset(
        key=key("cost_ledger"),
        group_name=GROUP,
        kinds={"duckdb"},
        tags=tags_of(PLATFORM, "evaluation"),
        deps=[key("bill")],
        partitions_def=BILL_PERIODS,
        check_specs=[
            dg.AssetCheckSpec(
                "reconciled", asset=key("cost_ledger"), description="Parts and residue add up to the bill."
            )
        ],
    )
    def cost_ledger(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Every unit of one account's month on a run, a model and a stage, or named as what it is."""
        account, period = scope_shown(project.warehouse, project.settings, context.partition_key)
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure", partition=context.partition_key):
            close_lost_runs(project.warehouse, project.clock)
            made = build_ledger(project.warehouse, project.settings, account, period)
        result = materialized(ledger_report(made, project.settings), data_version=made.ledger_version)
        check = dg.AssetCheckResult(
            asset_key=key("cost_ledger"),
            check_name="reconciled",
            passed=made.reconciliation.reconciled,
            metadata={"summary": masked_text(made.reconciliation.sentence, account, project.settings)},
        )
        return result._replace(check_results=[check])

    return cost_ledger


def _outcomes(settings: Settings, model: str) -> dg.AssetsDefinition:
    block = settings.model(model)
    upstream = key(model, "lists") if block.task == "recommendation" else key(model, "predictions")

    @dg.asset(key=key(model, "outcomes"), group_name=GROUP, tags=tags_of(model, "evaluation"), deps=[upstream])
    def outcomes(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """What the model earned, month by month, as a count with a definition and an interval."""
        with project.run(context, model, stage="evaluation", purpose="measure"):
            counted = count_outcomes(project.warehouse, project.settings, project.clock(model), model)
        mark_counted(project.warehouse, model, counted)
        return materialized(outcomes_report(model, counted, project.settings))

    return outcomes


def _cost_per_outcome(settings: Settings, model: str) -> dg.AssetsDefinition:
    elsewhere = [key("outcomes")] if "outcomes" in settings.sources else []
    counted = [key(model, "outcomes")] if model in settings.models else elsewhere
    # What is only accounted does its work elsewhere: reading its bill is the platform's work, and no spend of its own.
    worker = model if model in settings.models else PLATFORM

    @dg.asset(
        key=key(model, "cost_per_outcome"),
        group_name=GROUP,
        tags=tags_of(worker, "evaluation"),
        deps=[dg.AssetDep(key("cost_ledger"), partition_mapping=dg.AllPartitionMapping()), *counted],
        partitions_def=months_of(settings, model),
    )
    def cost_per_outcome(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Spend divided by outcomes of the same model and month, with the interval of the outcome."""
        period = context.partition_key
        stands_on = month_key(project.warehouse, project.settings, model, period)
        with project.run(context, worker, stage="evaluation", purpose="measure", partition=period):
            costs = unit_costs(project.warehouse, project.settings, model)
        mark_month(project.warehouse, model, period, stands_on)
        return materialized(unit_cost_report(model, costs, project.settings, period=period), data_version=stands_on)

    return cost_per_outcome
