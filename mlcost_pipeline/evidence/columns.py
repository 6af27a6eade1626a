"""One feature column held against its reference: numbers by quantile bins, categories by counts.

Nulls and infinities are counted and left out; they are evidence of their own, never part of a distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa

from mlcost_pipeline.evidence.psi import Floats, bin_counts, null_bound, psi, quantile_edges
from mlcost_pipeline.evidence.values import FeatureDrift, WindowDrift, tidy
from mlcost_pipeline.settings import Policy

MAX_CATEGORIES = 200
MAX_DISTINCT_SHARE = 0.5
WINDOWS_NEEDED = 2


@dataclass(frozen=True)
class Sample:
    """A column's values in one window: [start, end)."""

    start: date
    end: date
    values: pa.ChunkedArray | pa.Array
    units: int | None = None
    """Independent units behind the rows (users), where fewer than the rows."""


def compare(
    feature: str,
    reference: pa.ChunkedArray | pa.Array,
    windows: Sequence[Sample],
    policy: Policy,
    *,
    reference_units: int | None = None,
) -> FeatureDrift:
    """One feature in its windows, newest first, against the reference.

    It is material where PSI exceeds both the policy's threshold and the null bound for the two sample sizes, in two
    of the (at most three) windows.
    """
    if is_number(reference.type):
        return _numbers(feature, reference, windows, policy, reference_units)
    return _categories(feature, reference, windows, policy, reference_units)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column is compared as a number (booleans are: 0 and 1)."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def finite(values: pa.ChunkedArray | pa.Array) -> tuple[Floats, float, int]:
    """(finite values, share of rows missing, rows infinite)."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.isnan(numbers)
    infinite = np.isinf(numbers)
    share = float(missing.mean()) if len(numbers) else 0.0
    return numbers[~(missing | infinite)], share, int(infinite.sum())


def _numbers(
    feature: str,
    reference: pa.ChunkedArray | pa.Array,
    windows: Sequence[Sample],
    policy: Policy,
    reference_units: int | None,
) -> FeatureDrift:
    base, _, _ = finite(reference)
    size = _size(len(base), reference_units)
    if len(base) == 0:
        return FeatureDrift(feature, "number", "no_data", 0, note="the reference holds no finite value")
    if size < policy.min_window_rows:
        return FeatureDrift(feature, "number", "too_few", len(base), note=f"reference of {size} rows")
    edges = quantile_edges(base)
    counts = bin_counts(base, edges)
    low, high = (float(edge) for edge in np.quantile(base, [0.001, 0.999]))
    found = []
    for window in windows:
        values, missing, infinite = finite(window.values)
        outside = float(((values < low) | (values > high)).mean()) if len(values) else 0.0
        n = _size(len(values), window.units)
        score: float | None = None
        bound: float | None = None
        if n >= policy.min_window_rows:
            if len(edges) == 0:  # one value in the reference: a relative change, not a distance between bins
                score, bound = _relative_change(base, values), 0.0
            else:
                score = psi(counts, bin_counts(values, edges))
                bound = null_bound(size, n, len(counts), policy.drift_null_quantile)
        found.append(
            _window(window, len(values), score, bound, policy, missing=missing, infinite=infinite, outside=outside)
        )
    note = "" if len(edges) else "one value in the reference: relative change of the median"
    return _verdict(feature, "number", len(base), found, note)


def _relative_change(base: Floats, values: Floats) -> float:
    was, now = float(np.median(base)), float(np.median(values))
    if was == now:
        return 0.0
    return 1.0 if was == 0 else min(1e6, abs(now - was) / abs(was))


def _categories(
    feature: str,
    reference: pa.ChunkedArray | pa.Array,
    windows: Sequence[Sample],
    policy: Policy,
    reference_units: int | None,
) -> FeatureDrift:
    base = Counter(_texts(reference))
    total = sum(base.values())
    size = _size(total, reference_units)
    if total == 0:
        return FeatureDrift(feature, "category", "no_data", 0, note="the reference holds no value")
    if len(base) > MAX_CATEGORIES and len(base) > MAX_DISTINCT_SHARE * total:
        note = f"{len(base)} distinct values in {total} rows: an id, not a category"
        return FeatureDrift(feature, "category", "excluded", total, note=note)
    if size < policy.min_window_rows:
        return FeatureDrift(feature, "category", "too_few", total, note=f"reference of {size} rows")
    kept = [name for name, _ in sorted(base.items(), key=lambda item: (-item[1], item[0]))[:MAX_CATEGORIES]]
    found = []
    for window in windows:
        texts = _texts(window.values)
        now = Counter(texts)
        rows = len(window.values)
        missing = 1 - len(texts) / rows if rows else 0.0
        unseen = sum(n for name, n in now.items() if name not in base)
        n = _size(len(texts), window.units)
        score: float | None = None
        bound: float | None = None
        if n >= policy.min_window_rows:
            before, after = _vectors(base, now, kept)
            score = psi(before, after)
            bound = null_bound(size, n, len(before), policy.drift_null_quantile)
        found.append(
            _window(
                window, len(texts), score, bound, policy, missing=missing, unseen=unseen / len(texts) if texts else 0.0
            )
        )
    return _verdict(feature, "category", total, found, "")


def _vectors(base: Counter[str], now: Counter[str], kept: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Counts by category; the last bin holds rare and unseen ones, and is there only if either side has any."""
    before = [base[name] for name in kept] + [sum(base.values()) - sum(base[name] for name in kept)]
    after = [now[name] for name in kept] + [sum(now.values()) - sum(now[name] for name in kept)]
    if before[-1] == after[-1] == 0:
        before.pop()
        after.pop()
    return np.asarray(before, dtype=np.int64), np.asarray(after, dtype=np.int64)


def _texts(values: pa.ChunkedArray | pa.Array) -> list[str]:
    return [str(value) for value in values.to_pylist() if value is not None]


def _size(rows: int, units: int | None) -> int:
    return rows if units is None else min(rows, units)


def _window(
    sample: Sample,
    rows: int,
    score: float | None,
    bound: float | None,
    policy: Policy,
    *,
    missing: float = 0.0,
    infinite: int = 0,
    unseen: float = 0.0,
    outside: float = 0.0,
) -> WindowDrift:
    over = score is not None and bound is not None and score > max(policy.drift_threshold, bound)
    return WindowDrift(
        sample.start.isoformat(),
        sample.end.isoformat(),
        rows,
        None if score is None else tidy(score),
        None if bound is None else tidy(bound),
        over,
        tidy(missing),
        infinite,
        tidy(unseen),
        tidy(outside),
    )


def _verdict(feature: str, kind: str, reference_rows: int, windows: list[WindowDrift], note: str) -> FeatureDrift:
    newest = windows[0] if windows else None
    if newest is None or newest.rows == 0:
        state = "no_data"
    elif newest.psi is None:
        state = "too_few"
    else:
        state = "measured"
    material = state == "measured" and sum(window.over for window in windows) >= WINDOWS_NEEDED
    return FeatureDrift(feature, kind, state, reference_rows, tuple(windows), material, note)
