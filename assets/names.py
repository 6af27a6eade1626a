"""Keys, partitions and tags that the asset modules share."""

import warnings
from datetime import date, timedelta

import dagster as dg

from mlcost_pipeline.settings import ModelSettings, Settings

# A history is backfilled as one run an asset; that policy is the one beta feature of Dagster used here.
warnings.filterwarnings("ignore", message=r"Parameter `backfill_policy` of function `asset` is currently in beta")

BILL_PERIODS = dg.DynamicPartitionsDefinition(name="bill_periods")


def key(*parts: str) -> dg.AssetKey:
    """``[model, name]`` for an asset of a model, ``[name]`` for one of all models."""
    return dg.AssetKey(list(parts))


def days_of(model: ModelSettings) -> dg.DailyPartitionsDefinition:
    """Daily partitions from the model's first day of data; with a clock of its own, to a year after its origin."""
    end = None
    if model.clock is not None:
        end = (model.clock.origin.date() + timedelta(days=365)).isoformat()
    return dg.DailyPartitionsDefinition(start_date=model.first_day.isoformat(), end_date=end)


def days_in(context: dg.AssetExecutionContext) -> list[date]:
    """The days that this run is to make, oldest first."""
    return sorted(date.fromisoformat(day) for day in context.partition_keys)


def tags_of(model: str, stage: str) -> dict[str, str]:
    """Tags by which a run of an asset is attributed to a model and a stage."""
    return {"mlcost/model": model, "mlcost/stage": stage}


def tables_of(settings: Settings, model: ModelSettings) -> list[str]:
    """Source tables that a model is made from, of those that the settings name."""
    wanted = {
        "recommendation": ["interactions", "items", "users", "lookups"],
        "scoring": ["transactions", "labels", "predictions"],
    }[model.task]
    return [table for table in wanted if table in settings.sources]
