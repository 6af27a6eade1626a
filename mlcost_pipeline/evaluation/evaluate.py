"""Models on the held-out days of a features folder: one evaluator for candidate, incumbent and baseline alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.errors import NothingCompared, SettingsError
from mlcost_pipeline.evaluation.alerts import AmountRule, catch, labelled_rows
from mlcost_pipeline.evaluation.rankings import PopularList, Question, question, rank
from mlcost_pipeline.evaluation.slices import Comparison
from mlcost_pipeline.models.base import Recommender, Scorer
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.warehouse import Warehouse

BASELINES = {"recommendation": "the popular list", "scoring": "the largest amounts"}
UNKNOWN = "unknown"
ACTIVITY = "activity"
SEGMENT = "segment"


@dataclass(frozen=True)
class Measured:
    """One model's success on every unit (user or fraud), and its metrics."""

    success: NDArray[np.bool_]
    metrics: dict[str, float]


@dataclass(frozen=True)
class HeldOut:
    """The held-out days, ready to be asked of any number of models."""

    unit: str
    metric: str
    block: NDArray[np.int64]
    dimensions: Mapping[str, NDArray[np.object_]]
    counts: dict[str, int]
    start: datetime
    end: datetime
    asked: Any
    size: int

    def measure(self, predictor: Recommender | Scorer) -> Measured:
        """Ask one model."""
        if isinstance(self.asked, Question):
            ranked = rank(predictor, self.asked, self.size)  # type: ignore[arg-type]
            metrics = {
                f"hit_rate_at_{self.size}": float(ranked.hit.mean()),
                f"ndcg_at_{self.size}": float(ranked.ndcg.mean()),
                "hits": float(ranked.hits.sum()),
            }
            return Measured(ranked.hit, metrics)
        result = catch(predictor, self.asked, self.size)  # type: ignore[arg-type]
        metrics = {
            "recall_at_capacity": result.recall,
            "average_precision": result.average_precision,
            "caught": float(result.caught.sum()),
            "alerts": float(result.alerts),
        }
        return Measured(result.caught[self.asked.fraud], metrics)

    def baseline(self) -> Recommender | Scorer:
        """What needs no model: the popular list, or the largest amounts."""
        return PopularList.of(self.asked) if isinstance(self.asked, Question) else AmountRule()

    def compare(self, candidate: Measured, reference: Measured) -> Comparison:
        """Pair two models unit by unit."""
        return Comparison(candidate.success, reference.success, self.block, self.dimensions)


def hold_out(
    warehouse: Warehouse, config: ModelSettings, features: FeatureSet, *, not_before: Sequence[datetime] = ()
) -> HeldOut:
    """Read the held-out days of a features folder.

    Args:
        not_before: training cuts of the models to be asked; days that one of them was trained on are left out.

    Raises:
        NothingCompared: no held-out day is left, or it holds nothing to be found.
        SettingsError: a declared slice does not exist in the data.
    """
    start, end = max([features.cuts.training_cut, *not_before]), features.cuts.holdout_end
    if start >= end:
        raise NothingCompared(f"a model was trained up to {start:%Y-%m-%d}, so no held-out day before {end:%Y-%m-%d}")
    if config.task == "recommendation":
        return _ranking(warehouse, config, features, start, end)
    return _alerting(config, features, start, end)


def evaluate_recommender(
    recommender: Recommender, features: FeatureSet, k: int, *, repeats: bool = False
) -> tuple[list[str], NDArray[np.bool_], NDArray[np.float64]]:
    """Users asked, whether each has a hit among the k, and each one's NDCG@k, on the held-out days."""
    asked = question(features.folder, features.cuts.training_cut, features.cuts.holdout_end, repeats=repeats)
    ranked = rank(recommender, asked, k)
    return asked.users, ranked.hit, ranked.ndcg


def evaluate_scorer(
    scorer: Scorer, features: FeatureSet, capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Held-out days (since 1970), frauds caught and frauds with a known label on each."""
    asked = labelled_rows(features.folder, features.cuts.training_cut, features.cuts.holdout_end)
    result = catch(scorer, asked, capacity)
    days, inverse = np.unique(asked.day, return_inverse=True)
    caught = np.bincount(inverse, weights=result.caught).astype(np.int64)
    return days, caught, np.bincount(inverse, weights=asked.fraud).astype(np.int64)


def _ranking(
    warehouse: Warehouse, config: ModelSettings, features: FeatureSet, start: datetime, end: datetime
) -> HeldOut:
    serving = config.serving
    asked = question(features.folder, start, end, repeats=serving.recommend_seen, popular_days=serving.popular_days)
    dimensions = {name: _user_slice(warehouse, name, asked, features.cuts.data_cut) for name in config.slices}
    users = len(asked.users)
    counts = {"users": users, "targets": len(asked.target_item)}
    k = config.outcome.hits_at
    return HeldOut("users", f"hit_rate_at_{k}", np.arange(users), dimensions, counts, start, end, asked, k)


def _alerting(config: ModelSettings, features: FeatureSet, start: datetime, end: datetime) -> HeldOut:
    asked = labelled_rows(features.folder, start, end)
    frauds = asked.rows.filter(pa.array(asked.fraud))
    dimensions = {name: _row_slice(frauds, name) for name in config.slices}
    counts = {
        "frauds": frauds.num_rows, "rows": len(asked.fraud), "days": asked.days, "unlabelled_rows": asked.unlabelled
    }  # fmt: skip
    capacity = config.alerts_per_day or 0
    return HeldOut(
        "frauds", "recall_at_capacity", asked.day[asked.fraud], dimensions, counts, start, end, asked, capacity
    )


def _user_slice(warehouse: Warehouse, name: str, asked: Question, data_cut: datetime) -> NDArray[np.object_]:
    if name == ACTIVITY:
        events = np.diff(asked.start)
        return np.where(events > np.median(events), "heavy", "light").astype(object)
    if name == SEGMENT:
        rows = warehouse.query(
            "SELECT user_id, arg_max(segment, valid_from) AS segment FROM users WHERE valid_from < ? GROUP BY user_id",
            [data_cut], tables=["users"],
        ).to_pylist()  # fmt: skip
        known = {row["user_id"]: row["segment"] for row in rows}
        return np.array([known.get(user) or UNKNOWN for user in asked.users], dtype=object)
    raise SettingsError(f"slices: {name!r} is not a slice of users; allowed: {ACTIVITY}, {SEGMENT}")


def _row_slice(rows: pa.Table, name: str) -> NDArray[np.object_]:
    if name not in rows.column_names:
        raise SettingsError(f"slices: {name!r} is not a column of the rows; there are: {', '.join(rows.column_names)}")
    return np.array([UNKNOWN if value is None else str(value) for value in rows[name].to_pylist()], dtype=object)
