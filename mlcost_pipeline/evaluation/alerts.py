"""A scorer on held-out days: the cases it catches with a fixed number of alerts a day.

Only rows whose label was known at the data cut are ranked, the same rows for every scorer, and no scorer sees a
label. Days are UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation.metrics import alerted_at_capacity, average_precision
from mlcost_pipeline.models.base import Scorer

MICROS_A_DAY = 86_400_000_000
LABEL_COLUMNS = ("is_fraud", "known_at")


@dataclass(frozen=True)
class LabelledRows:
    """Held-out rows with known labels: `rows` without the labels, `fraud` (n,), `day` (n,) days since 1970."""

    rows: pa.Table
    ids: NDArray[np.str_]
    fraud: NDArray[np.bool_]
    day: NDArray[np.int64]
    unlabelled: int

    @property
    def days(self) -> int:
        return len(np.unique(self.day))


@dataclass(frozen=True)
class Catch:
    """What one scorer caught: `caught` (n,) alerted and fraud, the recall, the average precision."""

    caught: NDArray[np.bool_]
    alerts: int
    recall: float
    average_precision: float


class AmountRule:
    """The simplest rule there is: the larger the payment, the more suspicious."""

    def score(self, rows: pa.Table) -> NDArray[np.float64]:
        """(n,) the amounts."""
        return np.asarray(rows["amount"].to_numpy(), dtype=np.float64)


def labelled_rows(features: Path, start: datetime, end: datetime) -> LabelledRows:
    """Read the rows of ``[start, end)`` from a features folder.

    Raises:
        NothingCompared: no row of these days has a known label, or none of them is a fraud.
    """
    import pyarrow.dataset as ds  # heavy, and only needed where rows are read

    at = ds.field("happened_at")
    inside = (at >= pa.scalar(start)) & (at < pa.scalar(end))
    table = ds.dataset(features / "rows.parquet").to_table(filter=inside)
    known = table.filter(pc.is_valid(table["is_fraud"]))
    fraud = known["is_fraud"].to_numpy().astype(np.bool_)
    if not fraud.any():
        raise NothingCompared(
            f"{features}: {known.num_rows} rows with known labels from {start:%Y-%m-%d} to {end:%Y-%m-%d} hold no fraud"
        )
    micros = pc.cast(known["happened_at"].cast(pa.timestamp("us", tz="UTC")), pa.int64()).to_numpy()
    return LabelledRows(
        rows=known.drop_columns([name for name in LABEL_COLUMNS if name in known.column_names]),
        ids=np.array(known["transaction_id"].to_pylist(), dtype=np.str_),
        fraud=fraud,
        day=micros // MICROS_A_DAY,
        unlabelled=table.num_rows - known.num_rows,
    )


def catch(scorer: Scorer, asked: LabelledRows, capacity: int) -> Catch:
    """Let a scorer raise `capacity` alerts a day.

    Raises:
        ModelError: it gave another number of scores than rows, or scores that are not finite.
    """
    scores = np.asarray(scorer.score(asked.rows), dtype=np.float64)
    if scores.shape != asked.fraud.shape:
        raise ModelError(f"a scorer gave scores of shape {scores.shape} for {len(asked.fraud)} rows")
    alerted = alerted_at_capacity(scores, asked.day, asked.ids, capacity)
    caught = alerted & asked.fraud
    recall = float(caught.sum() / asked.fraud.sum())
    return Catch(caught, int(alerted.sum()), recall, average_precision(scores, asked.fraud))
