"""Plain rows as the tables that attribution and unit costs read: charges as slots, runs as records and holds.

Whatever a row leaves out has a stated default; what cannot be right is refused with the row's number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.errors import BillError, NothingCompared
from mlcost_pipeline.rows import conform
from mlcost_pipeline.tables import TABLES

Rows: TypeAlias = Iterable[Mapping[str, Any]] | pa.Table

#: The one account and period that plain charges are said to be of.
ACCOUNT, PERIOD = "plain", "all"
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_BATCH_ROWS = 65_536
_TAGS = {
    "tag_run": ("mlcost_run", "mlcost_run_id"),
    "tag_model": ("mlcost_model", "model"),
    "tag_stage": ("mlcost_stage", "stage"),
}
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def rows_of(given: Rows) -> Iterator[dict[str, Any]]:
    """The rows of an iterable of mappings or of an Arrow table, a batch at a time."""
    if isinstance(given, pa.Table):
        for batch in given.to_batches(max_chunksize=_BATCH_ROWS):
            yield from batch.to_pylist()
    else:
        yield from (dict(row) for row in given)


@dataclass(frozen=True)
class Charges:
    """Charges as ``billing_slots``, each a slot of its own; `notes` are what a reader of their sums must know.

    They are `provisional` if invoices are spoken of at all and any of the charges has none yet.
    """

    slots: pa.Table
    currency: str
    provisional: bool
    notes: tuple[str, ...]


def charges_of(billing: Rows, runs: Mapping[str, Mapping[str, Any]]) -> Charges:
    """Charges as the engine reads them.

    Raises:
        NothingCompared: there is no charge at all.
        BillError: a charge has no amount or no time, an amount is a binary float, or there are several currencies.
    """
    batches, waiting, currencies, rows, invoiced, told, as_billed = [], [], set(), 0, 0, 0, 0
    for number, row in enumerate(rows_of(billing)):
        waiting.append(_slot(number, row, runs))
        rows += 1
        told += "invoice_id" in row
        invoiced += bool(row.get("invoice_id"))
        as_billed += row.get("effective") is None and row.get("rate") is None
        currencies.add(waiting[-1]["currency"])
        if len(waiting) == _BATCH_ROWS:
            batches.append(conform(TABLES["billing_slots"], waiting))
            waiting = []
    if not batches and not waiting:
        raise NothingCompared("cost per outcome: no charge was given, so nothing was attributed")
    if len(currencies) > 1:
        raise BillError(f"charges in {' and '.join(sorted(currencies))}: give those of one currency at a time")
    notes = []
    if as_billed:
        notes.append(f"{as_billed} of {rows} charges give no effective cost: what was billed is taken for it")
    if not told:
        notes.append(
            "no charge says whether it was invoiced (invoice_id): whether the sums may still change is not known"
        )
    slots = pa.concat_tables([*batches, conform(TABLES["billing_slots"], waiting)])
    return Charges(slots, currencies.pop(), told > 0 and invoiced < rows, tuple(notes))


def run_tables(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, pa.Table]:
    """Runs as ``run_records`` and ``occupancy``, and what became of their versions as ``jobs`` and ``model_versions``.

    A row that says ``shipped`` is a retrain whose job is over: True, its version is in production; False, it is not.
    """
    records, jobs, versions = [], [], []
    for run_id, run in runs.items():
        retrain = run.get("purpose") == "retrain" or (run.get("purpose") is None and run["stage"] == "training")
        status = "running" if run["ended_at"] is None else "succeeded"
        record = {"status": status, "purpose": "retrain" if retrain else "batch", **run, "run_id": run_id}
        if retrain and record.get("job_id") is None:
            record["job_id"] = run_id
        records.append({name: record.get(name) for name in TABLES["run_records"].columns})
        if run.get("shipped") is not None:
            jobs.append({"job_id": record["job_id"], "model": run["model"], "deadline": _EPOCH, "state": "ended"})
        if run.get("shipped"):
            versions.append({
                "model": run["model"], "version": run_id, "family": "plain", "job_id": record["job_id"], "attempt": 1,
                "artefact": "", "training_cut": _EPOCH, "promoted_at": _EPOCH,
            })  # fmt: skip
    made = {"run_records": records, "jobs": jobs, "model_versions": versions, "publications": []}
    holds = [_hold(run_id, run) for run_id, run in runs.items() if run.get("resource_id") is not None]
    return {name: conform(TABLES[name], found) for name, found in {**made, "occupancy": holds}.items()}


def runs_by_id(given: Rows | Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Runs by id, from rows that have a ``run_id`` or from a mapping of ids to rows.

    Raises:
        BillError: a run is named twice, or lacks its model, stage or start.
    """
    pairs: Iterable[tuple[Any, Mapping[str, Any]]]
    pairs = given.items() if isinstance(given, Mapping) else ((row.get("run_id"), row) for row in rows_of(given))
    found: dict[str, dict[str, Any]] = {}
    for number, (run_id, row) in enumerate(pairs):
        row = {name: value for name, value in row.items() if value is not None}
        missing = [name for name in ("model", "stage", "started_at") if row.get(name) is None]
        if run_id is None or missing:
            raise BillError(f"run {run_id or number}: lacks {', '.join(missing or ['run_id'])}")
        if str(run_id) in found:
            raise BillError(
                f"run {run_id}: is given twice; give a run's holds on several resources as runs of their own"
            )
        found[str(run_id)] = {"ended_at": None, **row}
    return found


def _slot(number: int, row: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    tags = _plain_tags(row.get("tags"))
    run_id = None if row.get("run_id") is None else str(row["run_id"])
    start, end = _charge_times(number, row, runs.get(run_id or "", {}))
    effective = _amount(number, row)
    billed = effective if row.get("billed") is None else _money(number, "billed", row["billed"])
    resource = row.get("resource_id")
    if resource is None and run_id is not None and row.get("hours") is not None:
        resource = f"run:{run_id}"  # hours of a run are hours of a device
    named = {column: next((tags[key] for key in keys if tags.get(key)), None) for column, keys in _TAGS.items()}
    return {
        "delivery_id": ACCOUNT, "slot_id": f"{number:012d}", "bucket": 0, "account": ACCOUNT, "period": PERIOD,
        "resource_id": None if resource is None else canonical(resource), "charge_start": start, "charge_end": end,
        "category": row.get("category") or "Usage", "charge_class": row.get("charge_class"),
        "service": row.get("service"), "tags_text": json.dumps(tags, sort_keys=True, separators=(",", ":")),
        **named, "tag_run": run_id or named["tag_run"], "invoice_id": row.get("invoice_id"),
        "commitment_status": row.get("commitment_status"), "allocation": "origin",
        "currency": row.get("currency") or "USD", "lines": 1, "billed": billed, "effective": effective,
    }  # fmt: skip


def _plain_tags(tags: Any) -> dict[str, str]:
    """Tags by their key in lower case, without a provider's prefix."""
    pairs = json.loads(tags) if isinstance(tags, str) and tags else tags or {}
    items: Sequence[tuple[Any, Any]] = list(pairs.items()) if isinstance(pairs, Mapping) else list(pairs)
    return {str(key).lower().rpartition(":")[2]: str(value).strip() for key, value in sorted(items)}


def _charge_times(number: int, row: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[datetime, datetime]:
    start = row.get("charge_start") or run.get("started_at")
    end = row.get("charge_end")
    if end is None and start is not None and row.get("hours") is not None:
        end = start + timedelta(hours=float(row["hours"]))
    if start is None or end is None:
        raise BillError(f"charge {number}: lacks charge_start and charge_end, or the run_id of a known run and hours")
    return start, end


def _amount(number: int, row: Mapping[str, Any]) -> Decimal:
    if row.get("effective") is not None:
        return _money(number, "effective", row["effective"])
    if row.get("hours") is not None and row.get("rate") is not None:
        hours, rate = Decimal(str(row["hours"])), _money(number, "rate", row["rate"])
        return _EXACT.multiply(hours, rate).quantize(UNIT, context=_EXACT)
    if row.get("billed") is not None:
        return _money(number, "billed", row["billed"])
    raise BillError(f"charge {number}: lacks an amount; give effective, or hours and rate")


def _money(number: int, name: str, value: Any) -> Decimal:
    if isinstance(value, float):
        raise BillError(f"charge {number}, {name}: {value!r} is a binary float; give a Decimal, an int or text")
    try:
        return Decimal(value).quantize(UNIT, context=_EXACT)
    except (InvalidOperation, TypeError, ValueError):
        raise BillError(f"charge {number}, {name}: {value!r} is no amount of money") from None


def _hold(run_id: str, run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_id": run_id, "resource_id": canonical(run["resource_id"]), "start": run["started_at"],
        "end": run["ended_at"], "share_milli": int(run.get("share_milli") or 1000),
    }  # fmt: skip
