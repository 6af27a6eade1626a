"""Drift of the features against the incumbent's own training rows, over the last three windows.

A window is a whole number of weeks, so the days of the week weigh the same on both sides. What is measured is
covariate drift only: it can ask for a person's eye, and decay alone can argue with money.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.evidence.columns import Sample, compare, is_number
from mlcost_pipeline.evidence.events import compare_events
from mlcost_pipeline.evidence.look import Look, look_at, part, reference_features
from mlcost_pipeline.evidence.values import Drift, FeatureDrift
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

WINDOWS = 3
#: Columns of the features file that say which row it is, when, and what its label is.
NOT_FEATURES = frozenset({"transaction_id", "happened_at", "customer_id", "terminal_id", "is_fraud", "known_at"})


def measure_drift(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> Drift:
    """Drift of every feature as of a day; made once for each look and kept."""
    return drift_of(warehouse, look_at(warehouse, settings, model, as_of))


def drift_of(warehouse: Warehouse, look: Look) -> Drift:
    """As :func:`measure_drift`, for a look already taken."""
    return Drift.from_dict(part(warehouse, look, "drift", lambda: asdict(_measure(warehouse, look))))


def windows(look: Look) -> list[tuple[date, date]]:
    """The last three windows [start, end) of whole weeks, newest first."""
    weeks = -(-look.settings.windows.evidence_days // 7)
    cut = look.cuts.data_cut.date()
    length = timedelta(weeks=weeks)
    return [(cut - length * (n + 1), cut - length * n) for n in range(WINDOWS)]


def _measure(warehouse: Warehouse, look: Look) -> Drift:
    if look.incumbent is None:
        return Drift("unknown", "no incumbent: there are no training rows to hold anything against", "none")
    reference = reference_features(warehouse, look)
    label = f"rows before {look.incumbent.training_cut:%Y-%m-%d} of data version {reference.data_version}"
    scoring = look.settings.task == "scoring"
    file = "rows.parquet" if scoring else "events.parquet"
    base = pq.read_table(reference.folder / file)
    now = pq.read_table(look.features.folder / file)
    cut = look.incumbent.training_cut
    base = base.filter(pc.less(base.column("happened_at"), pa.scalar(cut, base.schema.field("happened_at").type)))
    differing: tuple[str, ...] = ()
    if scoring:
        features, differing = _compare_rows(look, base, now)
    else:
        features = compare_events(base, now, windows(look), look.settings.policy)
    if base.num_rows == 0:
        return Drift("unknown", "the reference holds no rows", label, tuple(features), None, 0, differing)
    began = _began(features)
    matured = 0 if began is None else max(0, (look.cuts.holdout_end.date() - date.fromisoformat(began)).days)
    return Drift("measured", "", label, tuple(features), began, matured, differing)


def _compare_rows(look: Look, base: pa.Table, now: pa.Table) -> tuple[list[FeatureDrift], tuple[str, ...]]:
    """Feature columns of both sides, and what is wrong with the columns themselves."""
    differing = []
    found = []
    days = now.column("happened_at").cast(pa.date32())
    for name in sorted(set(base.column_names) - NOT_FEATURES):
        if name not in now.column_names:
            differing.append(f"{name}: is missing")
            continue
        was, is_now = base.schema.field(name).type, now.schema.field(name).type
        if is_number(was) != is_number(is_now):
            differing.append(f"{name}: was {was}, is {is_now}")
            continue
        samples = [
            Sample(start, end, now.column(name).filter(_inside(days, start, end))) for start, end in windows(look)
        ]
        found.append(compare(name, base.column(name), samples, look.settings.policy))
    return found, tuple(differing)


def _inside(days: pa.ChunkedArray, start: date, end: date) -> pa.ChunkedArray:
    first, last = pa.scalar(start, pa.date32()), pa.scalar(end, pa.date32())
    return pc.and_(pc.greater_equal(days, first), pc.less(days, last))


def _began(features: list[FeatureDrift]) -> str | None:
    starts = [window.start for feature in features if feature.material for window in feature.windows if window.over]
    return min(starts) if starts else None
