"""What the cost side still has to do: exports not read yet, and ledgers that stand on an older bill or older runs.

A ledger is behind when its delivery was replaced, when the rules changed, or when a run that began before the end
of the billed time was added, closed or corrected; runs after that time cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcost_pipeline.cost import attribution
from mlcost_pipeline.cost.deliveries import account_key, bills_in_force, in_force
from mlcost_pipeline.cost.waiting import bills_waiting
from mlcost_pipeline.settings import digest
from mlcost_pipeline.warehouse import Warehouse

#: Everything that attribution of one delivery can look at, reduced to three numbers that any order gives alike.
_TOUCHING = """
WITH lines AS (SELECT * FROM billing_lines WHERE delivery_id = ?),
billed AS (SELECT coalesce(max(charge_end) FILTER (category = 'Usage'), max(charge_start)) AS until FROM lines),
spelled AS (SELECT lower(resource_id) AS id FROM lines UNION SELECT lower(resource_id_raw) FROM lines),
named AS (SELECT id FROM spelled WHERE id IS NOT NULL),
tagged AS (SELECT DISTINCT unnest(map_values(tags)) AS run_id FROM lines),
held AS (SELECT o.* FROM occupancy o, billed WHERE start < until AND lower(resource_id) IN (FROM named)),
ours AS (SELECT * FROM run_records WHERE run_id IN (SELECT run_id FROM held UNION SELECT run_id FROM tagged)),
capacity AS (SELECT * FROM resources WHERE lower(resource_id) IN (FROM named))
SELECT (SELECT bit_xor(hash(run_id, resource_id, start, "end", share_milli)) FROM held)::VARCHAR AS held,
  (SELECT bit_xor(hash(resource_id, valid_from, valid_to, kind, capacity_milli)) FROM capacity)::VARCHAR AS capacity,
  (SELECT bit_xor(hash(run_id, model, stage)) FROM ours)::VARCHAR AS runs
"""


__all__ = ["Behind", "bills_waiting", "is_built", "ledgers_behind", "note_built", "runs_touching"]


@dataclass(frozen=True)
class Behind:
    """A ledger to build: its scope as ``account|period``, a key that names this work, and why."""

    scope: str
    key: str
    reason: str


def ledgers_behind(warehouse: Warehouse) -> list[Behind]:
    """Bills in force whose ledger is missing or stands on something older."""
    found = []
    for account, period in bills_in_force(warehouse):
        delivery_id = in_force(warehouse, account, period)
        assert delivery_id is not None
        was = _built(warehouse, account, period)
        touched = runs_touching(warehouse, delivery_id)
        if _stands_on(delivery_id, touched).items() <= was.items():
            continue
        key = digest(delivery_id, touched, attribution.RULES_VERSION)
        found.append(Behind(f"{account}|{period}", key, _reason(account, period, was, delivery_id)))
    return found


def runs_touching(warehouse: Warehouse, delivery_id: str) -> str:
    """The identity of the runs, holds and resources that a delivery names and that began within its billed time."""
    tables = ["billing_lines", "occupancy", "resources", "run_records"]
    found = warehouse.query(_TOUCHING, [delivery_id], tables=tables)
    return digest(found.to_pylist())


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


def _reason(account: str, period: str, was: dict[str, Any], delivery_id: str) -> str:
    if not was:
        return f"account {account}, {period}: no ledger was built yet"
    if was["delivery_id"] != delivery_id:
        return f"account {account}, {period}: delivery {delivery_id} took over from {was['delivery_id']}"
    if was["rules"] != attribution.RULES_VERSION:
        return f"account {account}, {period}: the rules went from version {was['rules']} to {attribution.RULES_VERSION}"
    return f"account {account}, {period}: runs within the billed time were added, closed or corrected"


def _built_path(account: str, period: str) -> str:
    return f"ledgers/{account_key(account)}/{period}"
