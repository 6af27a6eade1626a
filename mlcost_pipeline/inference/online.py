"""Scores of single requests by the model in production, which is loaded once and changed when another is promoted."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.errors import MlcostError, ModelError
from mlcost_pipeline.evaluation.versions import load_predictor
from mlcost_pipeline.inference import pointer
from mlcost_pipeline.models.base import Scorer
from mlcost_pipeline.models.scoring_request import rows_from_request
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_THRESHOLD = """
    SELECT arg_max(threshold, predicted_at) AS threshold FROM predictions WHERE model = ? AND model_version = ?
"""


class Score(BaseModel):
    """One score; higher is more suspicious. `alert`: not below the threshold of the last scored day."""

    transaction_id: str | None
    score: float
    alert: bool | None


@dataclass(frozen=True)
class Scored:
    """Scores in the order asked, with the version that gave them."""

    version: str
    threshold: float | None
    scores: list[Score]


@dataclass(frozen=True)
class _Held:
    version: str
    scorer: Scorer
    threshold: float | None


class OnlineScorer:
    """The scorer of one model, held in memory; a request keeps its version to the end."""

    def __init__(self, warehouse: Warehouse, settings: Settings, model: str) -> None:
        self.model = model
        self._warehouse, self._ours = warehouse, settings.model(model)
        self._lock = threading.Lock()
        self.clock = model_clock(warehouse, settings, model)
        self._held: _Held | None = None

    def score(self, rows: Sequence[Mapping[str, Any]]) -> Scored:
        """Score payments.

        Raises:
            ModelError: a row does not fit (the text names row and field), or no model is in production.
        """
        held = self._current()
        asked = rows_from_request(rows, self._ours)
        with self._lock:  # a model need not be safe to call from two threads
            scores = np.asarray(held.scorer.score(asked), dtype=np.float64)
        if scores.shape != (len(rows),) or not np.isfinite(scores).all():
            raise ModelError(f"model {self.model}: {len(rows)} rows got scores that are missing or not finite")
        ids = [None if row.get("transaction_id") is None else str(row["transaction_id"]) for row in rows]
        limit = held.threshold
        found = [
            Score(transaction_id=name, score=value, alert=None if limit is None else value >= limit)
            for name, value in zip(ids, scores.tolist(), strict=True)
        ]
        return Scored(held.version, limit, found)

    def describe(self) -> dict[str, Any]:
        """Which version would answer; `ready` if there is one."""
        try:
            held = self._current()
        except MlcostError as error:
            return {"ready": False, "fault": str(error), "version": None}
        return {"ready": True, "fault": None, "version": held.version}

    def _current(self) -> _Held:
        version = pointer.in_production(self._warehouse, self.model)
        if version is None:
            raise ModelError(f"model {self.model}: no version is in production, so nothing can be scored")
        with self._lock:
            if self._held is None or self._held.version != version:
                scorer = cast(Scorer, load_predictor(self._warehouse, self.model, version))
                self._held = _Held(version, scorer, self._threshold(version))
            return self._held

    def _threshold(self, version: str) -> float | None:
        """The newest threshold when the version was loaded."""
        found = self._warehouse.query(_THRESHOLD, [self.model, version], tables=["predictions"]).to_pylist()
        value = found[0]["threshold"]
        return None if value is None else float(value)
