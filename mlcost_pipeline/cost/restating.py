"""What a newer ledger version changed, for whom, and why: the difference of two versions, summed by whose it is.

The cause is told charge by charge: a charge that is in both deliveries, with the same tags, changed hands because of
runs (or rules); with other tags, because of tags; credits and charges of another amount say so themselves.
"""

from __future__ import annotations

from typing import Any

from mlcost_pipeline.cost.asof import came_later
from mlcost_pipeline.cost.books import books
from mlcost_pipeline.cost.deliveries import Delivery, account_key
from mlcost_pipeline.warehouse import Warehouse

#: A charge without its tags; what it cost in total tells whether it is the same charge.
_CHARGE = "resource_id, charge_start, charge_end, category, charge_class, service, commitment_status"


def _side(name: str) -> str:
    """One version's parts by charge, tags and whose they are."""
    return f"""
{name} AS (SELECT {_CHARGE}, tags_text, method, reason, run_id, model, stage, sum(p.billed) AS billed,
  sum(p.effective) AS effective FROM {name}_parts p JOIN {name}_slots s USING (slot_id) GROUP BY ALL),
{name}_tagged AS (SELECT {_CHARGE}, tags_text, sum(billed) AS billed, sum(effective) AS effective FROM {name}
  GROUP BY ALL),
{name}_charges AS (SELECT {_CHARGE}, sum(billed) AS billed, sum(effective) AS effective FROM {name} GROUP BY ALL)"""


def _differ(kind: str, keys: str) -> str:
    """Charges (with or without tags) whose sums differ between the two versions."""
    return f"""
{kind}_differ AS (SELECT {keys} FROM (SELECT *, 1 AS side FROM old_{kind} UNION ALL SELECT *, 2 FROM new_{kind})
  GROUP BY {keys} HAVING count(*) < 2 OR min(billed) <> max(billed) OR min(effective) <> max(effective))"""


def _same(left: str, right: str, columns: str) -> str:
    return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in columns.split(", "))


_CHANGED = f"""
WITH old_slots AS (SELECT * FROM billing_slots WHERE delivery_id = $old_delivery),
new_slots AS (SELECT * FROM billing_slots WHERE delivery_id = $new_delivery),
old_parts AS (SELECT * FROM cost_ledger WHERE ledger_version = $old),
new_parts AS (SELECT * FROM cost_ledger WHERE ledger_version = $new),
{_side("old")}, {_side("new")},
{_differ("tagged", f"{_CHARGE}, tags_text")}, {_differ("charges", _CHARGE)},
moved AS (SELECT {_CHARGE}, tags_text, method, reason, run_id, model, stage, sum(billed) AS billed,
    sum(effective) AS effective
  FROM (SELECT {_CHARGE}, tags_text, method, reason, run_id, model, stage, -billed AS billed, -effective AS effective
      FROM old UNION ALL SELECT {_CHARGE}, tags_text, method, reason, run_id, model, stage, billed, effective FROM new)
  GROUP BY ALL HAVING sum(billed) <> 0 OR sum(effective) <> 0),
told AS (SELECT m.*, CASE
    WHEN c.category IS NULL AND t.category IS NULL THEN $hands
    WHEN c.category IS NULL THEN 'tags'
    WHEN m.category = 'Credit' THEN 'credits' ELSE 'cost' END AS cause
  FROM moved m
  LEFT JOIN charges_differ c ON {_same("m", "c", _CHARGE)}
  LEFT JOIN tagged_differ t ON {_same("m", "t", f"{_CHARGE}, tags_text")})
SELECT cause, run_id, model, stage, method, reason, sum(billed) AS billed_delta, sum(effective) AS effective_delta
FROM told GROUP BY ALL HAVING sum(billed) <> 0 OR sum(effective) <> 0 ORDER BY ALL"""


def bills_of(warehouse: Warehouse) -> dict[tuple[str, str], Delivery]:
    """The bill in force of each account and period, which says in what currency and whether it is open."""
    return {(book.bill.account, book.bill.period): book.bill for book in books(warehouse, None)}


def restated(warehouse: Warehouse, period: str | None = None) -> list[dict[str, Any]]:
    """What is on record of what newer ledgers changed, of one period or of all, up to the ledgers in force."""
    where, params = ("period = ?", [period]) if period else (None, [])
    later = came_later(warehouse)
    return [
        row
        for row in warehouse.rows("restatements", where=where, params=params)
        if (row["account"], row["period"], row["new_ledger_version"]) not in later
    ]


def restatements(
    warehouse: Warehouse, account: str, period: str, scope: str, old: str, new: str
) -> list[dict[str, Any]]:
    """Rows of the table ``restatements`` between two written versions; empty if they say the same.

    Their deltas add up to the difference of the two versions, in both measures.
    """
    was, now = (_made_of(warehouse, account, period, scope, version) for version in (old, new))
    deliveries = list(dict.fromkeys([was["delivery_id"], now["delivery_id"]]))
    found = warehouse.query(
        _CHANGED,
        {
            "old": old, "new": new, "old_delivery": was["delivery_id"], "new_delivery": now["delivery_id"],
            "hands": "runs" if was["rules"] in (None, now["rules"]) else "rules",
        },
        tables=["billing_slots", "cost_ledger"],
        versions={"billing_slots": [(scope, name) for name in deliveries], "cost_ledger": [(scope, old), (scope, new)]},
    ).to_pylist()  # fmt: skip
    return [
        {
            "old_ledger_version": old, "new_ledger_version": new,
            "entry": "|".join(row[name] or "" for name in ("run_id", "model", "stage", "method", "reason", "cause")),
            "account": account, "period": period, "cause": row["cause"], "run_id": row["run_id"],
            "model": row["model"], "stage": row["stage"], "billed_delta": row["billed_delta"],
            "effective_delta": row["effective_delta"],
        }
        for row in found
    ]  # fmt: skip


def _made_of(warehouse: Warehouse, account: str, period: str, scope: str, version: str) -> dict[str, Any]:
    """Delivery and rules of a version; of one without a record, its delivery as its rows say."""
    stored = warehouse.state.get(f"ledgers/{account_key(account)}/{period}/{version}")
    if stored is not None:
        return stored.value
    named = warehouse.query(
        "SELECT any_value(delivery_id) AS delivery_id FROM cost_ledger",
        tables=["cost_ledger"],
        versions={"cost_ledger": [(scope, version)]},
    ).to_pylist()
    return {"delivery_id": named[0]["delivery_id"], "rules": None}
