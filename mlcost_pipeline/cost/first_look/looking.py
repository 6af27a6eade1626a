"""What share of a bill can be attributed, by which tags and resources, before a single run is on record."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from mlcost_pipeline.cost.bills.detect import detect_format
from mlcost_pipeline.cost.deliveries import Delivery, import_bill, scope_of
from mlcost_pipeline.cost.first_look.tag_keys import TagKey, model_key, models_of, stage_key, tag_keys
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.warehouse import Warehouse

#: Whose a charge can be, in the order in which attribution would ask; the first that fits takes it.
RUNGS = ("run_tag", "model_tag", "other_tag", "resource", "derived", "commitment", "nothing")
_FOLLOWS_USE = ("Usage", "Credit", "Adjustment")
_GROUPED = """
SELECT tags_text, resource_id IS NOT NULL AS has_resource, category, service, commitment_status,
  tag_run IS NOT NULL AS run_tag, tag_model IS NOT NULL AS model_tag, sum(effective) AS effective, sum(lines) AS lines
FROM billing_slots WHERE currency = ? GROUP BY ALL ORDER BY ALL
"""
_PREFIXES = """
SELECT regexp_extract(resource_id, '^(arn:[^/]*:(?:training-job|processing-job|transform-job|endpoint)/)', 1) AS prefix,
  tags_text, sum(effective) AS effective FROM billing_slots
WHERE currency = ? AND resource_id LIKE 'arn:%' GROUP BY ALL HAVING prefix <> '' ORDER BY ALL
"""


@dataclass(frozen=True)
class FirstLook:
    """A bill seen for the first time. Money is effective cost in `currency`, the one with most of the charges.

    `by_rung` sums to `effective`; `untagged_services` is what nothing but a resource or nothing at all names.
    """

    path: Path
    format: str
    deliveries: Sequence[Delivery]
    currency: str
    other_currencies: Mapping[str, Decimal]
    effective: Decimal
    billed: Decimal
    lines: int
    by_rung: Mapping[str, Decimal]
    keys: Sequence[TagKey]
    model_key: TagKey | None
    stage_key: TagKey | None
    untagged_services: Sequence[tuple[str, Decimal]]
    job_prefixes: Sequence[tuple[str, str, Decimal]] = ()  # (resource prefix, value of the model tag, effective)
    absent: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def share(self, rung: str) -> float | None:
        """A rung's part of the bill; None where the bill adds up to nought."""
        return float(self.by_rung[rung] / self.effective) if self.effective else None


def first_look(path: Path, *, format: str | None = None) -> FirstLook:
    """Read an export into a warehouse that is thrown away, and say what can be attributed.

    Raises:
        BillError: the export cannot be read whole; the text names file, line and column.
    """
    chosen = format or detect_format(path)
    with tempfile.TemporaryDirectory(prefix="mlcost-init-") as folder:
        warehouse = Warehouse(Path(folder))
        deliveries = import_bill(warehouse, path, format=chosen)
        return _look(warehouse, path, chosen, deliveries)


def _look(warehouse: Warehouse, path: Path, format: str, deliveries: Sequence[Delivery]) -> FirstLook:
    versions = {"billing_slots": [(scope_of(each.account, each.period), each.delivery_id) for each in deliveries]}
    totals: dict[str, list[Decimal]] = {}
    for each in deliveries:
        totals.setdefault(each.currency, []).append(each.effective_total)
    if not totals:
        raise NothingCompared(f"{path}: holds no charge, so nothing was looked at")
    most = {code: sum(each.rows for each in deliveries if each.currency == code) for code in totals}
    currency = max(sorted(totals), key=lambda code: most[code])

    def ask(sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = warehouse.query(
            sql, [currency], tables=["billing_slots"], versions=versions
        ).to_pylist()
        return found

    groups = ask(_GROUPED)
    keys = tag_keys((json.loads(row["tags_text"] or "{}"), row["effective"]) for row in groups)
    chosen = model_key(keys)
    named = frozenset(models_of(chosen))
    rungs = [(_rung(row, chosen, named), row) for row in groups]
    ours = [each for each in deliveries if each.currency == currency]
    return FirstLook(
        path=path, format=format, deliveries=ours, currency=currency,
        other_currencies={code: money_sum(found) for code, found in sorted(totals.items()) if code != currency},
        effective=money_sum(row["effective"] for row in groups),
        billed=money_sum(each.billed_total for each in ours),
        lines=int(sum(row["lines"] for row in groups)),
        by_rung={name: money_sum(row["effective"] for rung, row in rungs if rung == name) for name in RUNGS},
        keys=keys, model_key=chosen, stage_key=stage_key(keys),
        untagged_services=_services(row for rung, row in rungs if rung in ("resource", "nothing")),
        job_prefixes=_job_prefixes(ask(_PREFIXES), chosen),
        absent={name: why for each in ours for name, why in (each.absent or {}).items()},
        warnings=[text for each in ours for text in each.warnings],
    )  # fmt: skip


def _rung(row: Mapping[str, Any], chosen: TagKey | None, named: frozenset[str]) -> str:
    if row["run_tag"] or row["model_tag"]:
        return "run_tag" if row["run_tag"] else "model_tag"
    if chosen is not None and json.loads(row["tags_text"] or "{}").get(chosen.key) in named:
        return "other_tag"
    if row["commitment_status"] in ("Unused", "Fee", "Negation"):
        return "commitment"
    if row["category"] == "Tax" or "support" in (row["service"] or "").lower():
        return "derived"
    if row["category"] in _FOLLOWS_USE:
        return "resource" if row["has_resource"] else ("nothing" if row["category"] == "Usage" else "derived")
    return "commitment" if row["category"] == "Purchase" else "nothing"


def _services(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, Decimal]]:
    groups: dict[str, list[Decimal]] = {}
    for row in rows:
        groups.setdefault(row["service"] or "(no service)", []).append(row["effective"])
    sums = [(name, money_sum(amounts)) for name, amounts in groups.items()]
    return sorted(sums, key=lambda each: (-each[1], each[0]))


def _job_prefixes(rows: Iterable[Mapping[str, Any]], chosen: TagKey | None) -> list[tuple[str, str, Decimal]]:
    if chosen is None:
        return []
    groups: dict[tuple[str, str], list[Decimal]] = {}
    for row in rows:
        value = json.loads(row["tags_text"] or "{}").get(chosen.key)
        if value:
            groups.setdefault((row["prefix"], value), []).append(row["effective"])
    return [(prefix, value, money_sum(amounts)) for (prefix, value), amounts in sorted(groups.items())]
