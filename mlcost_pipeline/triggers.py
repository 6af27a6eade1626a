"""What is due now, and if nothing is, why: the functions that the sensors and ``mlcost tick`` both call.

Each answers with requests to run a job or with a reason that holds numbers. A request's key names the work, so that
asking twice for the same work is asking once. Days, retrains, serving and report look at small state objects only;
bills look at the folders, and ledgers at the runs that a bill names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.budgets import budget_status, spend_of
from mlcost_pipeline.cost.due import bills_waiting, ledgers_behind
from mlcost_pipeline.cost.months import months_due
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.evidence.trigger import Skip, day_due, retrain_due
from mlcost_pipeline.notify import notify
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.sources.reader import seen_files
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Request:
    """A run that is due: the job, its partition, the key that names this work, and why."""

    job: str
    key: str
    reason: str
    partition: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a trigger found: requests, or the reason why there are none."""

    requests: Sequence[Request] = ()
    reason: str = ""
    wait_seconds: float = 0.0  # asking again after this long may find something


#: Source tables that describe runs and requests, not events of one model.
RECORD_TABLES = ("run_records", "occupancy", "resources", "requests", "outcomes")

#: After so many failed runs of one request the sensors stop requesting it, and a person is told.
MAX_FAILURES = 3

Trigger = Callable[[Warehouse, Settings], Found]


def triggers(settings: Settings) -> dict[str, Trigger]:
    """Every trigger by its name, in the order in which one pass evaluates them."""
    found: dict[str, Trigger] = {"records": records}
    if settings.orchestrators:
        found["orchestrators"] = orchestrators
    for model in settings.models:
        found[f"{model}_day"] = _bind(new_day, model)
        found[f"{model}_retrain"] = _bind(retrain, model)
        found[f"{model}_serving"] = _bind(serving, model)
    found["bills"] = bills
    found["ledgers"] = ledgers
    for model in settings.owners:
        found[f"{model}_month"] = _bind(month, model)
    found["budgets"] = budgets
    found["report"] = report
    return found


def new_day(warehouse: Warehouse, settings: Settings, model: str) -> Found:
    """The newest complete day is measured and decided on, once."""
    due = day_due(warehouse, settings, model_clock(warehouse, settings, model), model)
    if isinstance(due, Skip):
        return Found(reason=due.reason)
    assert due.day is not None
    day = due.day.isoformat()
    return Found([Request(f"{model}_day", f"{model}:day:{due.key}", due.reason, partition=day)])


def retrain(warehouse: Warehouse, settings: Settings, model: str) -> Found:
    """A decision to retrain is carried out, exactly once."""
    due = retrain_due(warehouse, settings, model)
    if isinstance(due, Skip):
        return Found(reason=due.reason, wait_seconds=due.wait_seconds or 0.0)
    tags = {"mlcost/job_id": due.decision_id or "", "mlcost/trigger": "decision"}
    return Found([Request(f"{model}_retrain", due.key, due.reason, tags=tags)])


def serving(warehouse: Warehouse, settings: Settings, model: str) -> Found:
    """Lists or scores are made for the newest complete day by the model in force."""
    stored = warehouse.state.get(f"models/{model}")
    version = None if stored is None else stored.value.get("incumbent")
    if version is None:
        return Found(reason=f"no version of {model} is in production yet: nothing to serve with")
    day = last_complete_day(model_clock(warehouse, settings, model))
    done = warehouse.state.get(f"served/{model}")
    if done is not None and (done.value["version"], done.value["day"]) == (version, day.isoformat()):
        return Found(reason=f"{version} has already served {day}")
    reason = f"{version} has not served {day} yet"
    key = f"{model}:serve:{version}:{day}"
    return Found([Request(f"{model}_serving", key, reason, partition=day.isoformat())])


def records(warehouse: Warehouse, settings: Settings) -> Found:
    """Run records and request logs of elsewhere are read for each complete day, run records also when files change.

    A log of requests grows all the time, and is no reason to start a run before its day is over.
    """
    tables = [table for table in RECORD_TABLES if table in settings.sources]
    if not tables:
        return Found(reason="mlcost.yaml names no run records or request logs of elsewhere")
    day = newest_day(warehouse, settings)
    read = {table: warehouse.state.get(f"records/{table}") for table in tables}
    now = {table: seen_files(settings, table) for table in tables if table != "requests"}
    if any(done is None or done.value["day"] < day.isoformat() for done in read.values()):
        reason = f"run records and logs of {day} are not read yet"
    elif changed := [table for table in now if (done := read[table]) and done.value.get("seen") != now[table]]:
        reason = f"files of {', '.join(changed)} are new or have changed"
    else:
        return Found(reason=f"run records and logs were read for {day}, and no file has changed since")
    return Found([Request("records", f"records:{day}:{digest(now)}", reason)])


def orchestrators(warehouse: Warehouse, settings: Settings) -> Found:
    """Other orchestrators are looked at once an hour."""
    hour = this_hour(warehouse, settings)
    due = []
    for each in settings.orchestrators:
        stored = warehouse.state.get(f"orchestrators/{each.name}")
        if stored is None or stored.value.get("looked") != hour:
            due.append(each.name)
    if not due:
        return Found(reason=f"{len(settings.orchestrators)} orchestrators were looked at in this hour")
    reason = f"{', '.join(due)} was not looked at since {hour}:00 UTC"
    return Found([Request("orchestrators", f"orchestrators:{hour}:{'+'.join(due)}", reason)])


def this_hour(warehouse: Warehouse, settings: Settings) -> str:
    """The hour of the platform's clock."""
    return model_clock(warehouse, settings, PLATFORM).now().strftime("%Y-%m-%dT%H")


def mark_looked(warehouse: Warehouse, name: str, hour: str) -> None:
    """Note that an orchestrator was looked at in an hour."""
    warehouse.state.update(f"orchestrators/{name}", lambda value: {**(value or {}), "looked": hour})


def mark_served(warehouse: Warehouse, model: str, version: str, day: date) -> None:
    """Note that a version has served a day; an older day of the same version changes nothing."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is not None and value["version"] == version and value["day"] >= day.isoformat():
            return value
        return {"version": version, "day": day.isoformat()}

    warehouse.state.update(f"served/{model}", change)


def mark_read(warehouse: Warehouse, table: str, day: date, seen: str) -> None:
    """Note that a table of run records or logs has been read for a complete day, when `seen` were its files."""
    warehouse.state.update(f"records/{table}", lambda _: {"day": day.isoformat(), "seen": seen})


def bills(warehouse: Warehouse, settings: Settings) -> Found:
    """Billing exports that have not been read are imported."""
    waiting = bills_waiting(warehouse, settings)
    if not waiting:
        return Found(reason=f"no new billing export in {len(settings.bills)} places")
    return Found([Request("bills", f"bills:{digest(waiting)}", f"{len(waiting)} new billing exports")])


def ledgers(warehouse: Warehouse, settings: Settings) -> Found:
    """Periods whose ledger is behind their newest delivery or their runs are attributed again."""
    behind = ledgers_behind(warehouse, settings)
    if not behind:
        return Found(reason="every period's ledger stands on its newest delivery and runs")
    return Found(
        [Request("ledger", f"ledger:{item.scope}:{item.key}", item.reason, partition=item.scope) for item in behind]
    )


def month(warehouse: Warehouse, settings: Settings, model: str) -> Found:
    """Outcomes and cost per outcome of the months that changed: new ledgers, new outcomes, a new day."""
    day = last_complete_day(model_clock(warehouse, settings, model))
    try:
        due = months_due(warehouse, settings, model)
    except MlcostError as error:
        return Found(reason=str(error))
    if not due:
        return Found(reason=f"outcomes of {model} are counted up to {day} on the ledgers in force")
    reason = f"outcomes of {model} up to {day}, or the ledgers, are newer than its count of"
    return Found(
        [
            Request(f"{model}_month", f"{model}:month:{period}:{key}", f"{reason} {period}", partition=period)
            for period, key in due.items()
        ]
    )


def budgets(warehouse: Warehouse, settings: Settings) -> Found:
    """Budgets are checked once a day and on new ledgers; a person is told of each threshold once a month, by notice."""
    models = [model for model in settings.owners if spend_of(settings, model).monthly_budget is not None]
    if not models:
        return Found(reason="no model has a monthly budget (spend.monthly_budget)")
    told = 0
    for model in models:
        now = model_clock(warehouse, settings, model).now()
        key = digest(now.date(), _ledger_versions(warehouse), spend_of(settings, model).model_dump())
        done = warehouse.state.get(f"budgets/{model}")
        if done is not None and done.value["key"] == key:
            continue
        period = now.strftime("%Y-%m")
        status = budget_status(warehouse, settings, model, period, now)
        for crossing in [] if status is None else status.crossings:
            told += notify(warehouse, settings, key=f"budget/{model}/{period}/{crossing.name}", text=crossing.text)
        warehouse.state.update(f"budgets/{model}", partial(_with_key, key))
    checked = "1 budget was" if len(models) == 1 else f"{len(models)} budgets were"
    return Found(reason=f"{checked} checked for today on the ledgers in force; {told} new notices")


def report(warehouse: Warehouse, settings: Settings) -> Found:
    """The report is written again when anything that it shows has changed."""
    key = report_key(warehouse, settings)
    done = warehouse.state.get("report")
    if done is not None and done.value["key"] == key:
        return Found(reason="nothing that the report shows has changed since it was written")
    return Found([Request("reporting", f"report:{key}", "decisions, ledgers or lists have changed")])


def note_failure(warehouse: Warehouse, key: str, run_id: str) -> int:
    """Count a failed run of a request, each run once; how many there are now."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        runs = (value or {"runs": []})["runs"]
        return {"key": key, "runs": sorted({*runs, run_id})}

    return len(warehouse.state.update(_failures_path(key), change).value["runs"])


def failures_of(warehouse: Warehouse, key: str) -> int:
    """How many runs of a request have failed."""
    stored = warehouse.state.get(_failures_path(key))
    return 0 if stored is None else len(stored.value["runs"])


def _failures_path(key: str) -> str:
    return f"failures/{digest(key)}"


def last_complete_day(clock: Clock) -> date:
    """The newest day that has ended, in UTC."""
    return clock.now().date() - timedelta(days=1)


def newest_day(warehouse: Warehouse, settings: Settings) -> date:
    """The newest complete day of any model."""
    named = settings.models or [PLATFORM]
    return max(last_complete_day(model_clock(warehouse, settings, model)) for model in named)


def report_key(warehouse: Warehouse, settings: Settings) -> str:
    """What a report stands on: summaries, models, served days, ledgers, counted months."""
    state = warehouse.state
    parts = []
    for model in settings.owners:
        for kind in ("summaries", "models", "served", "months"):
            stored = state.get(f"{kind}/{model}")
            parts.append(None if stored is None else stored.value)
    return digest(parts, _ledger_versions(warehouse))


def _ledger_versions(warehouse: Warehouse) -> dict[str, str | None]:
    return {scope: warehouse.current("cost_ledger", scope) for scope in warehouse.scopes("cost_ledger")}


def _with_key(key: str, value: dict[str, Any] | None) -> dict[str, Any]:
    return {**(value or {}), "key": key}


def _bind(trigger: Callable[[Warehouse, Settings, str], Found], model: str) -> Trigger:
    def bound(warehouse: Warehouse, settings: Settings) -> Found:
        return trigger(warehouse, settings, model)

    return bound
