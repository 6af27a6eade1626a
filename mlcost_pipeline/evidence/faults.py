"""Faults of the data itself, looked for before anything else: they block a retrain and name columns and rows.

Looked at are the raw rows of the evidence window against the rows before it. Rows that earlier evidence put into
quarantine are left out on both sides, so a fault that was seen to does not block for ever.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.evidence.columns import is_number
from mlcost_pipeline.evidence.jumps import Jump, codes, find_jump
from mlcost_pipeline.evidence.look import Look, look_at, part
from mlcost_pipeline.evidence.raw import Raw, conflicting_ids, newest_event, read_raw
from mlcost_pipeline.evidence.values import Fault, Faults, Quarantined, tidy
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

MISSING_JUMP = 0.05
MISSING_DEVIATIONS = 5.0
FEW_SHARE = 0.1
WEEKS_BACK = 4
FIX = "repair the source or its mapping in mlcost.yaml and ingest again; the rows stay out of training until then"


def find_faults(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> Faults:
    """All faults of the evidence window of a day; made once for each look and kept."""
    look = look_at(warehouse, settings, model, as_of)
    return faults_of(warehouse, look)


def faults_of(warehouse: Warehouse, look: Look) -> Faults:
    """As :func:`find_faults`, for a look already taken."""
    return Faults.from_dict(part(warehouse, look, "faults", lambda: asdict(_measure(warehouse, look))))


def _measure(warehouse: Warehouse, look: Look) -> Faults:
    raw = read_raw(warehouse, look)
    found: list[Fault] = []
    noted: list[str] = []
    kept_out: dict[str, str] = {}
    _presence(warehouse, look, raw, found, noted)
    if raw.window.num_rows:
        _missing(look, raw, found, kept_out)
        _jumps(look, raw, found, kept_out)
        _duplicates(warehouse, look, raw, found, kept_out)
    rows = tuple(Quarantined(raw.table, key, reason) for key, reason in sorted(kept_out.items()))
    return Faults(tuple(found), rows, tuple(noted), raw.window.num_rows)


def _presence(warehouse: Warehouse, look: Look, raw: Raw, found: list[Fault], noted: list[str]) -> None:
    """No rows in the window, none on the day, or far fewer than the same weekday had."""
    newest = newest_event(warehouse, look)
    shown = "never" if newest is None else newest.isoformat(timespec="minutes")
    age = -1.0 if newest is None else tidy((look.cuts.data_cut - newest).total_seconds() / 3600)
    counts = raw.rows_by_day()
    today = counts.get(look.as_of, 0)
    if raw.window.num_rows == 0:
        days = look.settings.windows.evidence_days
        found.append(
            Fault(
                "no_rows",
                "happened_at",
                0,
                {"window_days": days, "newest_event": shown, "age_hours": age},
                f"{raw.table}: no rows in the {days} days up to {look.as_of}; the newest event is of {shown}",
                "look whether the source still delivers; nothing can be measured on an empty window",
            )
        )
        return
    usual = [
        counts.get(look.as_of - timedelta(weeks=week), 0)
        for week in range(1, WEEKS_BACK + 1)
        if look.as_of - timedelta(weeks=week) >= raw.first_day
    ]
    if today == 0 and len(usual) >= 2 and not any(usual):
        noted.append(f"{raw.table}: no rows on {look.as_of:%A}, as on the {len(usual)} before it: a day of rest")
    elif today == 0:
        found.append(
            Fault(
                "stale",
                "happened_at",
                0,
                {"newest_event": shown, "age_hours": age},
                f"{raw.table}: no rows on {look.as_of}; the newest event is of {shown}, {age:.1f} hours before the cut",
                "look whether the day's delivery came; ingest it and decide again",
            )
        )
    elif len(usual) >= 3 and today < FEW_SHARE * float(np.median(usual)):
        middle = float(np.median(usual))
        found.append(
            Fault(
                "few_rows",
                "happened_at",
                today,
                {"rows": today, "usual_rows": middle},
                f"{raw.table}: {today} rows on {look.as_of}, the same weekday usually has {middle:.0f}: cut off?",
                "look whether the day's delivery is whole; ingest the rest and decide again",
            )
        )


def _missing(look: Look, raw: Raw, found: list[Fault], kept_out: dict[str, str]) -> None:
    """Columns that are empty, or whose share of missing values jumped against the rows before."""
    n, m = raw.window.num_rows, raw.reference.num_rows
    for column in raw.columns:
        nulls = _null_rows(raw.window, column)
        now = float(nulls.mean())
        missed = _null_rows(raw.reference, column)
        before = float(missed.mean()) if m else 0.0
        wanted = column in look.settings.features
        empty = now == 1.0 and (wanted or (m > 0 and before < 1.0))
        pooled = (now * n + before * m) / (n + m)
        spread = (pooled * (1 - pooled) * (1 / n + 1 / m)) ** 0.5 if m else 0.0
        spread *= _overdispersion(missed, raw.reference) ** 0.5
        jumped = bool(m) and now - before > max(MISSING_JUMP, MISSING_DEVIATIONS * spread)
        if not (empty or jumped):
            continue
        kind = "all_null" if empty else "missing_jump"
        rows = int(nulls.sum())
        found.append(
            Fault(
                kind,
                column,
                rows,
                {"missing_share": tidy(now), "reference_share": tidy(before), "rows": n},
                f"{raw.table}.{column}: {now:.1%} of {n} rows are missing, before it was {before:.1%}",
                FIX,
            )
        )
        for key in raw.keys(nulls):
            kept_out.setdefault(key, f"{column} is missing ({kind})")


def _overdispersion(missed: np.ndarray[Any, np.dtype[np.bool_]], reference: pa.Table) -> float:
    """How much more the missing share varies from day to day than independent rows would; at least 1.

    Rows of one visit are missing together, so a few visits more or less move the share. Pearson's chi-squared over
    its degrees of freedom (McCullagh and Nelder, Generalized Linear Models, section 4.5).
    """
    days = reference.column("happened_at").cast(pa.date32()).cast(pa.int32()).to_numpy()
    if not len(days) or missed.all() or not missed.any():
        return 1.0
    _, day = np.unique(days, return_inverse=True)
    rows, nulls = np.bincount(day), np.bincount(day, weights=missed)
    if len(rows) < 2:
        return 1.0
    share = missed.mean()
    chi_squared = float(((nulls - rows * share) ** 2 / (rows * share * (1 - share))).sum())
    return max(1.0, chi_squared / (len(rows) - 1))


def _null_rows(table: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rows where the value is null or NaN."""
    values = table.column(column)
    nan = pa.types.is_floating(values.type)
    return np.asarray(pc.is_null(values, nan_is_null=nan).to_numpy(zero_copy_only=False), dtype=bool)


def _jumps(look: Look, raw: Raw, found: list[Fault], kept_out: dict[str, str]) -> None:
    """Numbers whose unit changed, for everything or for some groups."""
    if raw.reference.num_rows == 0:
        return
    days = raw.window_days()
    for column in raw.columns:
        if not is_number(raw.window.schema.field(column).type):
            continue
        best = _best_jump(raw, column, days)
        if best is None:
            continue
        group, jump = best
        rows, since = int(jump.rows.sum()), look.window_start.date() + timedelta(days=jump.first_day)
        where = "all rows" if group is None else f"{jump.groups} of {jump.known_groups} values of {group}"
        found.append(
            Fault(
                "unit_jump",
                column,
                rows,
                {
                    "median_ratio": tidy(jump.ratio),
                    "groups": jump.groups,
                    "known_groups": jump.known_groups,
                    "since": since.isoformat(),
                    "grouped_by": group or "everything",
                },
                f"{raw.table}.{column}: {where} have a median {jump.ratio:.3g} times their own before, "
                f"from {since} on ({rows} rows): did the unit change?",
                FIX,
            )
        )
        for key in raw.keys(jump.rows):
            kept_out.setdefault(key, f"{column} is {jump.ratio:.3g} times its group's level (unit_jump)")


def _best_jump(raw: Raw, column: str, days: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[str | None, Jump] | None:
    """The grouping that tells the jumped rows from the others best; of equals the coarsest."""
    before, now = _numbers(raw.reference.column(column)), _numbers(raw.window.column(column))
    best: tuple[str | None, Jump] | None = None
    for group in [None, *raw.groups]:
        if group is None:
            sides = np.zeros(len(before), np.int64), np.zeros(len(now), np.int64), 1
        else:
            sides = codes(raw.reference.column(group), raw.window.column(group))
        jump = find_jump(before, sides[0], now, sides[1], days, sides[2])
        if jump is not None and (best is None or jump.fit > best[1].fit):
            best = group, jump
    return best


def _numbers(values: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(values.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _duplicates(warehouse: Warehouse, look: Look, raw: Raw, found: list[Fault], kept_out: dict[str, str]) -> None:
    """Ids that were delivered more than once with different content."""
    ids = conflicting_ids(warehouse, look)
    if not ids:
        return
    shown = ", ".join(ids[:3])
    found.append(
        Fault(
            "duplicate_ids",
            raw.key,
            len(ids),
            {"ids": len(ids), "examples": shown},
            f"{raw.table}.{raw.key}: {len(ids)} ids came more than once with different content (for example {shown})",
            "find out which delivery is right; the newest one is shown, none of these rows is trained on",
        )
    )
    for key in ids:
        kept_out.setdefault(key, f"{raw.key} came with different contents (duplicate_ids)")
