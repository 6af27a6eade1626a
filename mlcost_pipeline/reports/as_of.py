"""The warehouse as its bills and ledgers stood on a day: what came later is not there, and nothing can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mlcost_pipeline.clock import standing_at
from mlcost_pipeline.cost.asof import first_in_force, in_force_at
from mlcost_pipeline.cost.deliveries import account_key
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.state import StateStore, Stored
from mlcost_pipeline.warehouse import Warehouse

_MOVED = ("bills/", "pointers/cost_ledger/", "pointers/device_time/")


def warehouse_as_of(warehouse: Warehouse, at: datetime) -> Warehouse:
    """A view in which the deliveries and ledgers that were in force at `at` are, and no clock has passed `at`.

    Runs, outcomes and lists are what is known today.

    Raises:
        BillError: no ledger was in force by then.
    """
    found = in_force_at(warehouse, at)
    if not found:
        first = first_in_force(warehouse)
        since = "" if first is None else f"; the first came into force at {first:%Y-%m-%d %H:%M} UTC"
        raise BillError(f"as of {at:%Y-%m-%d %H:%M} UTC: no ledger was in force yet{since}; see: mlcost bill status")
    then: dict[str, dict[str, Any]] = {}
    for each in found:
        path = f"bills/{account_key(each.account)}/{each.period}"
        now = warehouse.state.get(path)
        then[path] = {**({} if now is None else now.value), "delivery_id": each.delivery_id}
        for table in ("cost_ledger", "device_time"):
            if warehouse.version_file(table, each.scope, each.version) is not None:
                then[f"pointers/{table}/{each.scope}"] = {"version": each.version}
    seen = Warehouse(warehouse.root)
    seen.state = _StateThen(warehouse.state, then, at)
    return seen


class _StateThen(StateStore):
    """State in which the pointers of bills and ledgers are those of then, and all else is as it is.

    A clock that has passed that moment stands at it, so that what was to come then is not taken as over.
    """

    def __init__(self, now: StateStore, then: Mapping[str, dict[str, Any]], at: datetime) -> None:
        super().__init__(now.root)
        self._then, self._at = then, at

    def get(self, path: str) -> Stored | None:
        if path.startswith(_MOVED):
            return Stored(self._then[path], 1) if path in self._then else None
        stored = super().get(path)
        if not path.startswith("clocks/"):
            return stored
        clock = standing_at(None if stored is None else stored.value, self._at)
        return None if clock is None else Stored(clock, 1 if stored is None else stored.serial)

    def names(self, path: str) -> list[str]:
        found = super().names(path)
        if f"{path}/".startswith(_MOVED):
            return [name for name in found if f"{path}/{name}" in self._then]
        return found
