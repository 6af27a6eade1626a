"""What rows about runs and machines may say: words that are known, numbers in bounds, ends after starts.

A fault here would only show as a ledger that does not add up, or not at all; so it is refused with file and row.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.recording import PURPOSES, STAGES
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM

STATUSES = ("running", "succeeded", "failed", "interrupted", "cancelled", "lost")

_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "run_records": {"stage": STAGES, "purpose": PURPOSES, "status": STATUSES},
}
#: The least and the most that a number may be; None is no bound, and infinity is never within.
_BOUNDS: dict[str, dict[str, tuple[int, int | None]]] = {
    "run_records": {
        "attempt": (1, None),
        "price": (0, None),
        "busy_seconds": (0, None),
        "busy_coverage": (0, 1),
        "data_wait_seconds": (0, None),
        "steps_done": (0, None),
        "steps_redone": (0, None),
    },
    "occupancy": {"share_milli": (1, None)},
    "resources": {"capacity_milli": (1, None)},
}
_SPANS = {
    "run_records": ("started_at", "ended_at"),
    "occupancy": ("start", "end"),
    "resources": ("valid_from", "valid_to"),
}


@dataclass(frozen=True)
class Fault:
    """A value that a table does not allow: its place in `rows`, its column and what is wrong with it."""

    index: int
    column: str
    text: str


def first_fault(table: str, rows: pa.Table, settings: Settings) -> Fault | None:
    """The fault in the earliest of `rows` (of the schema of `table`), None where there is none."""
    return min(_faults(table, rows, settings), key=lambda fault: fault.index, default=None)


def _faults(table: str, rows: pa.Table, settings: Settings) -> Iterator[Fault]:
    words = dict(_WORDS.get(table, {}))
    if table == "run_records":
        words["model"] = (*settings.owners, PLATFORM)
    for column, allowed in words.items():
        found = rows.column(column)
        bad = pc.and_(pc.is_valid(found), pc.invert(pc.is_in(found, value_set=pa.array(allowed, found.type))))
        if (index := _first(bad)) is not None:
            yield Fault(index, column, _unknown(column, found[index].as_py(), allowed))
    for column, (least, most) in _BOUNDS.get(table, {}).items():
        yield from _outside(rows, column, least, most)
    if table in _SPANS:
        begin, end = _SPANS[table]
        if (index := _first(pc.less(rows.column(end), rows.column(begin)))) is not None:
            at, before = rows.column(end)[index].as_py(), rows.column(begin)[index].as_py()
            yield Fault(index, end, f"{at:%Y-%m-%dT%H:%M:%SZ} lies before {begin}, {before:%Y-%m-%dT%H:%M:%SZ}")
    if table == "run_records":
        over = pc.and_(pc.is_null(rows.column("ended_at")), pc.not_equal(rows.column("status"), "running"))
        if (index := _first(over)) is not None:
            status = rows.column("status")[index].as_py()
            yield Fault(index, "ended_at", f"is empty, and a run that is {status} has ended; say when")


def _outside(rows: pa.Table, column: str, least: int, most: int | None) -> Iterator[Fault]:
    found = rows.column(column)
    bad = pc.less(found, pa.scalar(least).cast(found.type))
    if most is not None:
        bad = pc.or_(bad, pc.greater(found, pa.scalar(most).cast(found.type)))
    if pa.types.is_floating(found.type):
        bad = pc.or_(bad, pc.invert(pc.is_finite(found)))
    if (index := _first(bad)) is not None:
        said = f"{least} or more" if most is None else f"from {least} to {most}"
        yield Fault(index, column, f"must be {said}, found {found[index].as_py()}")


def _unknown(column: str, found: str, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(found, allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if column == "model":
        return f"model {found!r} is not in mlcost.yaml{hint} (there are: {', '.join(allowed)}; add it to accounted)"
    return f"{column} {found!r} is unknown{hint} (allowed: {', '.join(allowed)})"


def _first(bad: pa.ChunkedArray | pa.Array) -> int | None:
    index = pc.index(pc.fill_null(bad, False), True).as_py()
    return None if index < 0 else int(index)
