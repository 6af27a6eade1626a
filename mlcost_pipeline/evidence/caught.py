"""Frauds that the incumbent caught on each matured day: from what it said then, or by asking it again.

A day counts only if its labels are all but complete: frauds are reported early and the harmless rest late, so a day
that is half labelled reads as if it were all fraud.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.evaluation.versions import ModelVersion, load_predictor
from mlcost_pipeline.evidence.look import Look
from mlcost_pipeline.warehouse import Warehouse

COMPLETE_SHARE = 0.9

_SAID = """
    WITH said AS (
        SELECT entity_id, arg_min(alerted, predicted_at) AS alerted FROM predictions
        WHERE model = ? AND model_version = ? GROUP BY entity_id
    ), known AS (
        SELECT transaction_id, arg_max(is_fraud, known_at) AS is_fraud FROM labels WHERE known_at < ?
        GROUP BY transaction_id
    )
    SELECT CAST(happened_at AS DATE) AS day, count(*) AS rows, count(alerted) AS said, count(is_fraud) AS labelled,
           count(*) FILTER (WHERE is_fraud AND alerted IS NOT NULL) AS frauds,
           count(*) FILTER (WHERE is_fraud AND alerted) AS caught
    FROM transactions
    LEFT JOIN said ON entity_id = transactions.transaction_id
    LEFT JOIN known ON known.transaction_id = transactions.transaction_id
    WHERE happened_at >= ? AND happened_at < ? AND transactions.transaction_id NOT IN
        (SELECT row_key FROM quarantine WHERE table_name = 'transactions' AND "from" < ?)
    GROUP BY day ORDER BY day
"""


@dataclass(frozen=True)
class DayCount:
    """One block: outcomes had and possible."""

    day: str
    had: int
    possible: int


def said_days(
    warehouse: Warehouse, look: Look, version: ModelVersion, start: datetime, end: datetime
) -> tuple[list[DayCount], str]:
    """Usable days from the table of predictions, and why others are not."""
    cut = look.cuts.data_cut
    rows = warehouse.query(
        _SAID,
        [look.model, version.version, cut, start, end, cut],
        tables=["predictions", "labels", "transactions", "quarantine"],
    ).to_pylist()
    usable, silent, immature = [], 0, 0
    for row in rows:
        if row["said"] < COMPLETE_SHARE * row["rows"]:
            silent += 1
        elif row["labelled"] < COMPLETE_SHARE * row["rows"]:
            immature += 1
        else:
            usable.append(DayCount(row["day"].isoformat(), int(row["caught"]), int(row["frauds"])))
    return usable, f"{silent} of {len(rows)} days without its predictions, {immature} with labels still missing"


def rescored_days(
    warehouse: Warehouse, look: Look, version: ModelVersion, start: datetime, end: datetime
) -> tuple[list[DayCount], str]:
    """Usable days by letting the incumbent raise the day's alerts again, on the features of this look."""
    from mlcost_pipeline.evaluation.alerts import catch, labelled_rows  # brings pyarrow.dataset and pandas along

    labelled, rows = _labelled_by_day(look, start, end)
    usable = {day for day, count in rows.items() if labelled.get(day, 0) >= COMPLETE_SHARE * count}
    told = f"{len(rows) - len(usable)} of {len(rows)} days with labels still missing"
    try:
        asked = labelled_rows(look.features.folder, start, end)
    except NothingCompared as nothing:
        return [], f"{told}; {nothing}"
    predictor = load_predictor(warehouse, look.model, version.version)
    caught = catch(predictor, asked, look.settings.alerts_per_day or 0).caught  # type: ignore[arg-type]
    counts = []
    for day in sorted(usable):
        here = asked.day == (day - date(1970, 1, 1)).days
        counts.append(DayCount(day.isoformat(), int(caught[here].sum()), int(asked.fraud[here].sum())))
    return counts, told


def _labelled_by_day(look: Look, start: datetime, end: datetime) -> tuple[dict[date, int], dict[date, int]]:
    """Rows with a known label, and rows, on each day of the features file."""
    table = pq.read_table(look.features.folder / "rows.parquet", columns=["happened_at", "is_fraud"])
    days = table.column("happened_at").cast(pa.date32())
    first, last = pa.scalar(start.date(), pa.date32()), pa.scalar(end.date(), pa.date32())
    inside = pc.and_(pc.greater_equal(days, first), pc.less(days, last))
    known = pc.and_(inside, pc.is_valid(table.column("is_fraud")))
    return _counts(days.filter(known)), _counts(days.filter(inside))


def _counts(days: pa.ChunkedArray) -> dict[date, int]:
    return {entry["values"]: int(entry["counts"]) for entry in pc.value_counts(days).to_pylist()}
