"""Group `cost`: the bill, its attribution to models, stages and runs, and what each outcome cost."""

import dagster as dg

from assets.names import BILL_PERIODS, key, tags_of
from mlcost_pipeline.cost.deliveries import import_new
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.outcomes import count_outcomes
from mlcost_pipeline.cost.runs import close_lost_runs
from mlcost_pipeline.cost.unit_cost import unit_costs
from mlcost_pipeline.reports.stages import bill_report, ledger_report, outcomes_report, unit_cost_report
from mlcost_pipeline.resources import PLATFORM, Project, materialized
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import month_key

GROUP = "cost"


def build(settings: Settings) -> list[dg.AssetsDefinition]:
    """The bill and its ledger for all models; outcomes and cost per outcome for each."""
    made = [_bill(), _ledger()]
    for model in settings.models:
        made += [_outcomes(settings, model), _cost_per_outcome(model)]
    return made


def _bill() -> dg.AssetsDefinition:
    @dg.asset(key=key("bill"), group_name=GROUP, kinds={"csv"}, tags=tags_of(PLATFORM, "evaluation"))
    def bill(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Billing exports taken over whole: one delivery for each account and month, the newest in force."""
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure"):
            deliveries = import_new(project.warehouse, project.settings)
        scopes = sorted({f"{delivery.account}|{delivery.period}" for delivery in deliveries})
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
        account, _, period = context.partition_key.rpartition("|")
        with project.run(context, PLATFORM, stage="evaluation", purpose="measure", partition=context.partition_key):
            close_lost_runs(project.warehouse, project.clock)
            made = build_ledger(project.warehouse, project.settings, account, period)
        result = materialized(ledger_report(made, project.settings), data_version=made.ledger_version)
        check = dg.AssetCheckResult(
            asset_key=key("cost_ledger"),
            check_name="reconciled",
            passed=made.reconciliation.reconciled,
            metadata={"summary": made.reconciliation.sentence},
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
        return materialized(outcomes_report(model, counted, project.settings))

    return outcomes


def _cost_per_outcome(model: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=key(model, "cost_per_outcome"),
        group_name=GROUP,
        tags=tags_of(model, "evaluation"),
        deps=[key("cost_ledger"), key(model, "outcomes")],
    )
    def cost_per_outcome(context: dg.AssetExecutionContext, project: Project) -> dg.MaterializeResult:
        """Spend divided by outcomes of the same model and month, with the interval of the outcome."""
        counted = month_key(project.warehouse, project.settings, model)
        with project.run(context, model, stage="evaluation", purpose="measure"):
            costs = unit_costs(project.warehouse, project.settings, model)
        project.warehouse.state.update(f"months/{model}", lambda _: {"key": counted})
        return materialized(unit_cost_report(model, costs, project.settings))

    return cost_per_outcome
