"""Score the payments of whole days and raise a fixed number of alerts a day, once, with what was known then.

What was said about a day is history: a day that another version has spoken about is not scored again by a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.evaluation.metrics import alerted_at_capacity
from mlcost_pipeline.evaluation.versions import ModelVersion, incumbent, load_predictor
from mlcost_pipeline.models.base import Scorer
from mlcost_pipeline.models.scoring_features import scoring_rows
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

MICROS_A_DAY = 86_400_000_000

_SAID = """
    SELECT predicted_at, model_version, count(*) AS rows, count(*) FILTER (alerted) AS alerted,
           min(threshold) AS threshold
    FROM predictions WHERE model = ? AND predicted_at > ? AND predicted_at <= ?
    GROUP BY ALL ORDER BY predicted_at, model_version
"""

_COUNTS = """
    SELECT CAST(happened_at AS DATE) AS day, count(*) AS rows FROM transactions
    WHERE happened_at >= ? AND happened_at < ? GROUP BY day
"""


@dataclass(frozen=True)
class DayResult:
    """What was said about one day (UTC). `threshold` is the score of the last alert, None on an empty day.

    `state`: ``scored`` now; ``said_before`` by `model_version`, left as it is; ``empty``: no transaction.
    """

    day: date
    state: Literal["scored", "said_before", "empty"]
    model_version: str | None
    transactions: int
    alerted: int
    threshold: float | None


@dataclass(frozen=True)
class PredictResult:
    """What was said about the days [start, end)."""

    model: str
    model_version: str
    start: date
    end: date
    days: tuple[DayResult, ...]

    @property
    def transactions(self) -> int:
        return sum(day.transactions for day in self.days)

    @property
    def alerted(self) -> int:
        return sum(day.alerted for day in self.days)

    @property
    def empty_days(self) -> list[date]:
        return [day.day for day in self.days if day.state == "empty"]


def score_days(
    warehouse: Warehouse,
    settings: Settings,
    clock: Clock,
    model: str,
    start: date,
    end: date,
    run_id: str | None = None,
) -> PredictResult:
    """Say of every transaction of the days [start, end), UTC, whether it is among its day's most suspicious.

    The ``alerts_per_day`` highest scores are alerted; of equal scores the smaller transaction id. ``predicted_at`` is
    the end of the day. Rows are written month by month, a month at once; a repeat changes nothing.

    Raises:
        ModelError: no version is in production, the days are not over, nobody spoke about a day that lies before the
            version's training cut or before it came into force (but for the day before, which it serves first), or the
            model's scores are not usable.
    """
    ours = settings.model(model)
    chosen = incumbent(warehouse, model)
    if chosen is None:
        raise ModelError(f"model {model}: no version is in production, so nothing can be scored; promote one first")
    if ours.alerts_per_day is None:
        raise ModelError(f"model {model}: it recommends, and only scoring models make predictions")
    if _midnight(end) > clock.now():
        raise ModelError(
            f"model {model}: {end - timedelta(days=1)} is not over on its clock ({clock.now():%Y-%m-%d %H:%M})"
        )
    scorer: Scorer | None = None
    days: list[DayResult] = []
    for first, last in _months(start, end):
        known = _said(warehouse, model, chosen.version, first, last)
        open_days = [day for day in _days(first, last) if day not in known]
        if open_days:
            _refuse_hindsight(chosen, open_days[0])
            scorer = scorer or cast(Scorer, load_predictor(warehouse, model, chosen.version))
            rows = _score(warehouse, settings, model, scorer, open_days)
            scored = _alert(rows, model, chosen.version, ours.alerts_per_day, run_id)
            scored = _first_alerts(warehouse, scored, model, chosen.version)
            warehouse.append("predictions", scored)
            known = {**known, **_said_in(scored, open_days, chosen.version)}
        days += [known[day] for day in _days(first, last)]
    return PredictResult(model, chosen.version, start, end, tuple(days))


def _refuse_hindsight(chosen: ModelVersion, first: date) -> None:
    """A version predicts what it was not trained on, from the day before it came into force on."""
    cut = chosen.training_cut.astimezone(UTC).date()
    since, why = cut, f"was trained on what happened before {cut}"
    if chosen.promoted_at is not None:
        in_force = chosen.promoted_at.astimezone(UTC).date()
        if in_force - timedelta(days=1) > cut:
            since, why = in_force - timedelta(days=1), f"came into force on {in_force}"
    if first < since:
        raise ModelError(
            f"model {chosen.model}: {chosen.version} {why}; what it would have said of {first} is hindsight, and no "
            f"prediction. Ask for {since} and later"
        )


def _said(warehouse: Warehouse, model: str, version: str, first: date, last: date) -> dict[date, DayResult]:
    """Days that need no scoring: empty, spoken about by another version, or by this one about every transaction."""
    window = [_midnight(first), _midnight(last)]
    found = warehouse.query(_COUNTS, window, tables=["transactions"]).to_pylist()
    counts = {row["day"]: row["rows"] for row in found}
    said: dict[date, DayResult] = {}
    for row in warehouse.query(_SAID, [model, *window], tables=["predictions"]).to_pylist():
        day = (row["predicted_at"] - timedelta(days=1)).astimezone(UTC).date()
        if row["model_version"] != version or row["rows"] == counts.get(day):
            result = DayResult(day, "said_before", row["model_version"], row["rows"], row["alerted"], row["threshold"])
            said.setdefault(day, result)
    empty = {day: DayResult(day, "empty", None, 0, 0, None) for day in _days(first, last) if not counts.get(day)}
    return {**empty, **said}


def _score(warehouse: Warehouse, settings: Settings, model: str, scorer: Scorer, days: list[date]) -> pa.Table:
    """Rows of the `days` with their scores, in one pass over the past."""
    start, end = _midnight(days[0]), _midnight(days[-1] + timedelta(days=1))
    rows = scoring_rows(warehouse, settings, model, start, end, end)
    day = _day_numbers(rows.column("happened_at"))
    wanted = np.array([(d - date(1970, 1, 1)).days for d in days])
    rows = rows.filter(pa.array(np.isin(day, wanted)))
    blind = rows.drop_columns([name for name in ("is_fraud", "known_at") if name in rows.column_names])
    scores = np.asarray(scorer.score(blind), dtype=np.float64) if rows.num_rows else np.zeros(0)
    if scores.shape != (rows.num_rows,) or not np.isfinite(scores).all():
        raise ModelError(f"model {model}: {rows.num_rows} rows got scores of shape {scores.shape}, or some not finite")
    return rows.select(["transaction_id", "happened_at"]).append_column("score", pa.array(scores, pa.float64()))


def _alert(rows: pa.Table, model: str, version: str, capacity: int, run_id: str | None) -> pa.Table:
    day = _day_numbers(rows.column("happened_at"))
    scores = np.asarray(rows.column("score").to_numpy())
    ids = np.array(rows.column("transaction_id").to_pylist(), dtype=np.str_)
    alerted = alerted_at_capacity(scores, day, ids, capacity)
    lowest = {int(number): float(scores[alerted & (day == number)].min()) for number in np.unique(day)}
    said_at = pa.array((day + 1) * MICROS_A_DAY, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table(
        {
            "model": pa.array([model] * len(day), pa.string()),
            "model_version": pa.array([version] * len(day), pa.string()),
            "entity_id": rows.column("transaction_id"),
            "predicted_at": said_at,
            "score": rows.column("score"),
            "threshold": pa.array([lowest[int(number)] for number in day], pa.float64()),
            "alerted": pa.array(alerted, pa.bool_()),
            "run_id": pa.array([run_id] * len(day), pa.string()),
        }
    )


def _first_alerts(warehouse: Warehouse, scored: pa.Table, model: str, version: str) -> pa.Table:
    """Alerts that stood before late payments made their day be scored again stay those of the run that raised them."""
    days = pc.min_max(scored.column("predicted_at")).as_py()
    before = warehouse.query(
        "SELECT entity_id, run_id FROM predictions "
        "WHERE model = ? AND model_version = ? AND alerted AND predicted_at BETWEEN ? AND ?",
        [model, version, days["min"], days["max"]],
        tables=["predictions"],
    ).to_pylist()
    if not before:
        return scored
    raised = {row["entity_id"]: row["run_id"] for row in before}
    runs = [
        raised.get(name, run_id) if alerted else run_id
        for name, alerted, run_id in zip(
            *(scored.column(column).to_pylist() for column in ("entity_id", "alerted", "run_id")), strict=True
        )
    ]
    return scored.set_column(scored.schema.get_field_index("run_id"), "run_id", pa.array(runs, pa.string()))


def _said_in(scored: pa.Table, days: list[date], version: str) -> dict[date, DayResult]:
    said_at = scored.column("predicted_at")
    found = {}
    for day in days:
        at = pa.scalar(_midnight(day + timedelta(days=1)), pa.timestamp("us", tz="UTC"))
        rows = scored.filter(pc.equal(said_at, at))
        threshold = rows.column("threshold")[0].as_py() if rows.num_rows else None
        alerted = int(pc.sum(rows.column("alerted")).as_py() or 0)
        found[day] = DayResult(day, "scored", version, rows.num_rows, alerted, threshold)
    return found


def _day_numbers(times: pa.ChunkedArray) -> NDArray[np.int64]:
    micros = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return np.asarray(micros.to_numpy(), dtype=np.int64) // MICROS_A_DAY


def _months(start: date, end: date) -> Iterator[tuple[date, date]]:
    """[start, end) cut at the first of each month."""
    while start < end:
        following = (start.replace(day=1) + timedelta(days=32)).replace(day=1)
        yield start, min(following, end)
        start = following


def _days(start: date, end: date) -> list[date]:
    return [start + timedelta(days=n) for n in range((end - start).days)]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)
