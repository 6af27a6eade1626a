"""What the cost side still has to do: exports not read yet, and ledgers that stand on an older bill or older runs.

A ledger is behind when its delivery was replaced, when the rules changed, or when a run that began before the end
of the billed time was added, closed or corrected; runs after that time cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcost_pipeline.cost import attribution
from mlcost_pipeline.cost.deliveries import account_key, bills_in_force, in_force, scope_of
from mlcost_pipeline.cost.masking import masked_text, shown_scope
from mlcost_pipeline.cost.waiting import bills_waiting
from mlcost_pipeline.settings import Settings, digest
from mlcost_pipeline.warehouse import Warehouse

#: Everything that attribution of one delivery can look at, reduced to three numbers that any order gives alike.
#: A resource id as bills and runs are compared: an instance's ARN is its id, and case tells nothing apart here.
_ID = "regexp_replace(lower(resource_id), '^arn:aws[a-z-]*:ec2:[^:]*:[^:]*:instance/', '')"
_TOUCHING = f"""
WITH billed AS (SELECT coalesce(max(charge_end) FILTER (category = 'Usage'), max(charge_start)) AS until
  FROM billing_slots),
named AS (SELECT DISTINCT lower(resource_id) AS id FROM billing_slots WHERE resource_id IS NOT NULL),
tagged AS (SELECT DISTINCT tag_run AS run_id FROM billing_slots WHERE tag_run IS NOT NULL),
held AS (SELECT o.* FROM occupancy o, billed WHERE start < until AND {_ID} IN (FROM named)),
ours AS (SELECT * FROM run_records WHERE run_id IN (SELECT run_id FROM held UNION SELECT run_id FROM tagged)),
capacity AS (SELECT * FROM resources WHERE {_ID} IN (FROM named))
SELECT (SELECT bit_xor(hash(run_id, resource_id, start, "end", share_milli)) FROM held)::VARCHAR AS held,
  (SELECT bit_xor(hash(resource_id, valid_from, valid_to, kind, capacity_milli)) FROM capacity)::VARCHAR AS capacity,
  (SELECT bit_xor(hash(run_id, model, stage)) FROM ours)::VARCHAR AS runs
"""


__all__ = ["Behind", "bills_waiting", "is_built", "ledgers_behind", "note_built", "runs_touching"]


@dataclass(frozen=True)
class Behind:
    """A ledger to build: its scope as it may be shown, a key that names this work, and why."""

    scope: str
    key: str
    reason: str


def ledgers_behind(warehouse: Warehouse, settings: Settings) -> list[Behind]:
    """Bills in force whose ledger is missing or stands on something older."""
    found = []
    for account, period in bills_in_force(warehouse):
        delivery_id = in_force(warehouse, account, period)
        assert delivery_id is not None
        was = _built(warehouse, account, period)
        touched = runs_touching(warehouse, account, period, delivery_id)
        now = {**_stands_on(delivery_id, touched), "models": judged_by(settings)}
        if now.items() <= was.items():
            continue
        key = digest(now)
        reason = masked_text(_reason(account, period, was, now), account, settings)
        found.append(Behind(shown_scope(account, period, settings), key, reason))
    return found


def judged_by(settings: Settings) -> list[str]:
    """The models and rules that charges are given to."""
    return [*settings.owners, digest([rule.model_dump() for rule in settings.rules])]


def runs_touching(warehouse: Warehouse, account: str, period: str, delivery_id: str) -> str:
    """The identity of the runs, holds and resources that a delivery names and that began within its billed time."""
    tables = ["billing_slots", "occupancy", "resources", "run_records"]
    versions = {"billing_slots": [(scope_of(account, period), delivery_id)]}
    return digest(warehouse.query(_TOUCHING, tables=tables, versions=versions).to_pylist())


def note_built(
    warehouse: Warehouse, account: str, period: str, delivery_id: str, touched: str, models: Sequence[str], version: str
) -> None:
    """Remember what the ledger version in force stands on."""
    value = {**_stands_on(delivery_id, touched), "models": list(models), "version": version}
    warehouse.state.update(_built_path(account, period), lambda _: value)


def is_built(
    warehouse: Warehouse, account: str, period: str, delivery_id: str, touched: str, models: Sequence[str], version: str
) -> bool:
    """Whether `version` was built and stands on exactly this."""
    wanted = {**_stands_on(delivery_id, touched), "models": list(models), "version": version}
    return _built(warehouse, account, period) == wanted


def _built(warehouse: Warehouse, account: str, period: str) -> dict[str, Any]:
    stored = warehouse.state.get(_built_path(account, period))
    return {} if stored is None else stored.value


def _stands_on(delivery_id: str, touched: str) -> dict[str, Any]:
    return {"delivery_id": delivery_id, "touched": touched, "rules": attribution.RULES_VERSION}


def _reason(account: str, period: str, was: dict[str, Any], now: dict[str, Any]) -> str:
    where = f"account {account}, {period}"
    if not was:
        return f"{where}: no ledger was built yet"
    if was["delivery_id"] != now["delivery_id"]:
        return f"{where}: delivery {now['delivery_id']} took over from {was['delivery_id']}"
    if was["rules"] != now["rules"]:
        return f"{where}: the ladder went from version {was['rules']} to {now['rules']}"
    if was["models"] != now["models"]:
        return f"{where}: the models or rules of mlcost.yaml changed"
    return f"{where}: runs within the billed time were added, closed or corrected"


def _built_path(account: str, period: str) -> str:
    return f"ledgers/{account_key(account)}/{period}"
