"""Keys, partitions and tags that the asset modules share."""

import warnings
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from mlcost_pipeline.cost.months import first_month_of, last_month_of
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


def months_of(settings: Settings, model: str) -> dg.MonthlyPartitionsDefinition:
    """Monthly partitions "YYYY-MM" from :func:`first_month_of` a model, the month under way included.

    A model with a clock of its own may be years ahead of ours: it has the months up to :func:`last_month_of`.
    """
    first, last = first_month_of(settings, model), last_month_of(settings, model)
    ahead = 1 if last is None else max(1, _number(last) - _number(datetime.now(UTC).strftime("%Y-%m")) + 1)
    return dg.MonthlyPartitionsDefinition(start_date=first, fmt="%Y-%m", end_offset=ahead)


def _number(period: str) -> int:
    year, month = period.split("-")
    return int(year) * 12 + int(month)


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
