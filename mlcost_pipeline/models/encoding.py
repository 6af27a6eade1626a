"""Feature rows as a matrix: numbers with gaps, and one-hot categories with a place for what was never seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.data_wait import waiting_for_data

PREFIX = "f_"
MAX_LEVELS = 64
_CLIP = 8.0


@dataclass(frozen=True)
class Encoder:
    """What was fitted on the training rows; plain values only, so that it can be stored as JSON.

    Numbers: name, median and spread (interquartile range / 1.349, 1 if that is 0). Categories: name and the most
    frequent levels; every other value, null included, falls into one last column.
    """

    numbers: list[tuple[str, float, float]]
    categories: list[tuple[str, list[str]]]

    @property
    def width(self) -> int:
        """Columns of :meth:`raw`."""
        return len(self.numbers) + sum(len(levels) + 1 for _, levels in self.categories)

    def raw(self, rows: pa.Table) -> NDArray[np.float64]:
        """(n, width): the numbers as they are (NaN: not known), then the one-hot categories."""
        blocks = [_number(rows, name)[:, None] for name, _, _ in self.numbers]
        blocks += [_one_hot(rows, name, levels) for name, levels in self.categories]
        return np.concatenate([np.empty((rows.num_rows, 0)), *blocks], axis=1)

    def standard(self, rows: pa.Table) -> NDArray[np.float32]:
        """(n, width + numbers): numbers centred, scaled, cut at ±8, 0 where not known, and a flag for each gap."""
        raw = self.raw(rows)
        count = len(self.numbers)
        medians = np.array([median for _, median, _ in self.numbers])
        spreads = np.array([spread for _, _, spread in self.numbers])
        gap = np.isnan(raw[:, :count])
        scaled = np.clip(np.where(gap, 0.0, (raw[:, :count] - medians) / spreads), -_CLIP, _CLIP)
        return np.concatenate([scaled, raw[:, count:], gap], axis=1).astype(np.float32)

    def as_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` reads them back."""
        return {"numbers": [list(n) for n in self.numbers], "categories": [list(c) for c in self.categories]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Encoder:
        """The encoder that ``as_json`` described."""
        numbers = [(str(name), float(median), float(spread)) for name, median, spread in value["numbers"]]
        categories = [(str(name), [str(level) for level in levels]) for name, levels in value["categories"]]
        return cls(numbers, categories)


def fit_encoder(rows: pa.Table) -> Encoder:
    """Fit on training rows: every column ``f_*``; text columns are categories, all others numbers.

    Raises:
        ModelError: there is no such column.
    """
    numbers: list[tuple[str, float, float]] = []
    categories: list[tuple[str, list[str]]] = []
    for name in sorted(rows.column_names):
        if not name.startswith(PREFIX):
            continue
        if pa.types.is_string(rows.schema.field(name).type) or pa.types.is_large_string(rows.schema.field(name).type):
            categories.append((name, _levels(rows, name)))
        else:
            numbers.append((name, *_centre(_number(rows, name))))
    if not numbers and not categories:
        raise ModelError(f"no feature columns ({PREFIX}*) among {', '.join(rows.column_names)}")
    return Encoder(numbers, categories)


@waiting_for_data()
def read_training_rows(features: Path, training_cut: datetime) -> tuple[pa.Table, NDArray[np.int64]]:
    """Rows before ``training_cut`` whose label is known, and the labels (0 or 1).

    Raises:
        ModelError: no such rows, or only one class.
    """
    path = features / "rows.parquet"
    rows = pq.read_table(path)
    early = pc.less(rows["happened_at"], pa.scalar(training_cut, rows["happened_at"].type))
    rows = rows.filter(pc.and_(early, pc.is_valid(rows["is_fraud"])))
    labels = rows["is_fraud"].to_numpy().astype(np.int64)
    if rows.num_rows == 0 or labels.min() == labels.max():
        raise ModelError(
            f"{path}: {rows.num_rows} rows with a known label before {training_cut.isoformat()}, "
            f"{int(labels.sum())} of them positive; both classes are needed to train"
        )
    return rows, labels


def _levels(rows: pa.Table, name: str) -> list[str]:
    counts = pc.value_counts(rows[name].drop_null()).to_pylist()
    ordered = sorted(counts, key=lambda entry: (-entry["counts"], entry["values"]))
    return [str(entry["values"]) for entry in ordered[:MAX_LEVELS]]


def _centre(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return 0.0, 1.0
    low, median, high = np.quantile(known, [0.25, 0.5, 0.75])
    spread = (high - low) / 1.349 or float(np.std(known)) or 1.0
    return float(median), float(spread)


def _number(rows: pa.Table, name: str) -> NDArray[np.float64]:
    values = _column(rows, name)
    try:
        found: NDArray[np.float64] = values.cast(pa.float64()).to_numpy().astype(np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ModelError(f"feature {name}: expected numbers, found {values.type}") from error
    return np.where(np.isfinite(found), found, np.nan)


def _one_hot(rows: pa.Table, name: str, levels: list[str]) -> NDArray[np.float64]:
    values = _column(rows, name).cast(pa.string())
    place = pc.fill_null(pc.index_in(values, value_set=pa.array(levels, pa.string())), len(levels))
    out = np.zeros((rows.num_rows, len(levels) + 1))
    out[np.arange(rows.num_rows), place.to_numpy().astype(np.int64)] = 1.0
    return out


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in rows.column_names:
        raise ModelError(f"rows to score lack the feature {name}, which the model was trained with")
    return rows[name]
