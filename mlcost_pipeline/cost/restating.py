"""What a newer ledger version changed, for whom, and why: the difference of two versions, summed by whose it is."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.deliveries import account_key
from mlcost_pipeline.cost.slots import from_units, to_units
from mlcost_pipeline.warehouse import Warehouse

_Key = tuple[str | None, ...]
_WHOSE = ("run_id", "model", "stage", "method", "reason")


def restatements(
    warehouse: Warehouse, account: str, period: str, scope: str, old: str, new: str
) -> list[dict[str, Any]]:
    """Rows of the table ``restatements`` between two written versions; empty if they say the same."""
    before, after = _sums(warehouse, scope, old), _sums(warehouse, scope, new)
    cause = _cause(warehouse, account, period, old, new)
    rows = []
    for key in sorted(before.keys() | after.keys(), key=str):
        was, now = before.get(key, (0, 0)), after.get(key, (0, 0))
        if was == now:
            continue
        whose = dict(zip(_WHOSE, key, strict=True))
        rows.append({
            "old_ledger_version": old, "new_ledger_version": new,
            "entry": "|".join(word or "" for word in key), "account": account, "period": period, "cause": cause,
            "run_id": whose["run_id"], "model": whose["model"], "stage": whose["stage"],
            "billed_delta": _difference(was[0], now[0]), "effective_delta": _difference(was[1], now[1]),
        })  # fmt: skip
    return rows


def _difference(was: int, now: int) -> Decimal:
    return from_units(now - was)


def _sums(warehouse: Warehouse, scope: str, version: str) -> dict[_Key, tuple[int, int]]:
    found: dict[_Key, tuple[int, int]] = {}
    for row in warehouse.read_version("cost_ledger", scope, version).to_pylist():
        key = tuple(row[name] for name in _WHOSE)
        billed, effective = found.get(key, (0, 0))
        found[key] = billed + to_units(row["billed"]), effective + to_units(row["effective"])
    return found


def _cause(warehouse: Warehouse, account: str, period: str, old: str, new: str) -> str:
    """`delivery` (costs changed), `tags` (only their tags), `rules`, or `runs`: the first that differs."""
    folder = f"ledgers/{account_key(account)}/{period}"
    was, now = warehouse.state.get(f"{folder}/{old}"), warehouse.state.get(f"{folder}/{new}")
    if was is None or now is None:
        return "delivery"
    if was.value["delivery_id"] != now.value["delivery_id"]:
        same = _charges(warehouse, was.value["delivery_id"]) == _charges(warehouse, now.value["delivery_id"])
        return "tags" if same else "delivery"
    return "rules" if was.value["rules"] != now.value["rules"] else "runs"


def _charges(warehouse: Warehouse, delivery_id: str) -> list[dict[str, Any]]:
    """The charges of a delivery without their tags."""
    columns = "resource_id, charge_start, charge_end, category, service, sku"
    found: list[dict[str, Any]] = warehouse.query(
        f"SELECT {columns}, sum(billed) AS billed, sum(effective) AS effective FROM billing_lines "
        f"WHERE delivery_id = ? GROUP BY {columns} ORDER BY ALL",
        [delivery_id],
        tables=["billing_lines"],
    ).to_pylist()
    return found
