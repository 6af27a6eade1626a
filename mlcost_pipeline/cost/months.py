"""Which months of a model are to be counted again: a month is what its ledgers, its outcomes and its days say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.counted import month_bounds
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

#: Months that a model with a clock of its own has after its origin; real time needs no end.
OWN_CLOCK_MONTHS = 24

#: Models that are only accounted have no first day; bills of before are not counted month by month.
FIRST_ACCOUNTED = "2020-01"


def first_month_of(settings: Settings, model: str) -> str:
    """The first month "YYYY-MM" of a model: that of its first day of data, or :data:`FIRST_ACCOUNTED`."""
    return f"{settings.models[model].first_day:%Y-%m}" if model in settings.models else FIRST_ACCOUNTED


def last_month_of(settings: Settings, model: str) -> str | None:
    """The last month that the clock a model goes by can reach; None in real time, which has no end.

    A model that is only accounted goes by the clock of :func:`mlcost_pipeline.clock.model_clock`.
    """
    name = model if model in settings.models else min(settings.models, default=None)
    clock = None if name is None else settings.models[name].clock
    if clock is None:
        return None
    origin = clock.origin
    number = origin.year * 12 + origin.month - 1 + OWN_CLOCK_MONTHS
    return f"{number // 12}-{number % 12 + 1:02d}"


def months_due(warehouse: Warehouse, settings: Settings, model: str) -> dict[str, str]:
    """Months whose cost per outcome stands on something older, with the key of what they are to stand on now.

    Looks at ledgers in force, at outcomes as they were counted last (of a model that is only accounted, as they were
    read last), and at the newest complete day.

    Raises:
        MlcostError: the model's clock has left the months that it can reach.
    """
    stored = warehouse.state.get(f"months/{model}")
    done: Mapping[str, str] = {} if stored is None else stored.value.get("months", {})
    outcomes = _outcomes(warehouse, settings, model)
    periods = _periods(warehouse, settings, model, outcomes)
    keys = {period: _key(warehouse, settings, model, period, outcomes) for period in periods}
    return {period: key for period, key in keys.items() if done.get(period) != key}


def month_key(warehouse: Warehouse, settings: Settings, model: str, period: str) -> str:
    """What a month stands on: its ledgers, its outcomes, and its newest complete day."""
    return _key(warehouse, settings, model, period, _outcomes(warehouse, settings, model))


def mark_month(warehouse: Warehouse, model: str, period: str, key: str) -> None:
    """Note what the cost per outcome of a month stands on."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        return {"months": {**(value or {}).get("months", {}), period: key}}

    warehouse.state.update(f"months/{model}", change)


def mark_counted(warehouse: Warehouse, model: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Note, month by month, what the outcomes of a model were when they were counted last."""
    value = _by_month(rows)
    warehouse.state.update(f"counted/{model}", lambda _: value)


def _by_month(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    months: dict[str, list[Any]] = {}
    for row in rows:
        said = [row[name] for name in ("model_version", "slice", "definition_version", "count", "low", "high", "state")]
        months.setdefault(row["start"].strftime("%Y-%m"), []).append([str(each) for each in said])
    return {period: digest(sorted(said)) for period, said in sorted(months.items())}


def _outcomes(warehouse: Warehouse, settings: Settings, model: str) -> Mapping[str, str]:
    """What the outcomes of each month are: nobody here counts those of a model that is only accounted."""
    if model not in settings.models:
        return _by_month(warehouse.rows("outcomes", where="model = ?", params=[model]))
    counted = warehouse.state.get(f"counted/{model}")
    return {} if counted is None else counted.value


def _key(warehouse: Warehouse, settings: Settings, model: str, period: str, outcomes: Mapping[str, str]) -> str:
    scopes = [scope for scope in warehouse.scopes("cost_ledger") if scope.rpartition("|")[2] == period]
    last = (month_bounds(period)[1] - timedelta(days=1)).date()
    ledgers = {scope: warehouse.current("cost_ledger", scope) for scope in scopes}
    return digest(ledgers, outcomes.get(period), min(last, _newest_day(warehouse, settings, model)))


def _periods(warehouse: Warehouse, settings: Settings, model: str, outcomes: Mapping[str, str]) -> list[str]:
    """Months with a bill or an outcome since the model's first, and the month under way."""
    running, last = f"{_newest_day(warehouse, settings, model):%Y-%m}", last_month_of(settings, model)
    if last is not None and running > last:
        raise MlcostError(
            f"{model}: its clock reads {running}, and months are kept up to {last}, {OWN_CLOCK_MONTHS} after its "
            "origin; move models.*.clock.origin in mlcost.yaml, and load the code location again"
        )
    billed = {scope.rpartition("|")[2] for scope in warehouse.scopes("cost_ledger")}
    first = first_month_of(settings, model)
    return sorted(period for period in {running, *billed, *outcomes} if first <= period <= running)


def _newest_day(warehouse: Warehouse, settings: Settings, model: str) -> date:
    return model_clock(warehouse, settings, model).now().date() - timedelta(days=1)
