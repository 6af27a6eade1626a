"""Boosted trees from scikit-learn over feature rows (family ``forest``): the plain, strong scorer for tables.

Stored with skops instead of pickle: reading an artefact runs no code, and types outside a fixed list are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import skops.io
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import read_params
from mlcost_pipeline.models.encoding import Encoder, fit_encoder, read_training_rows
from mlcost_pipeline.models.skops_file import canonical
from mlcost_pipeline.models.vectors import read_meta, write_arrays

DEFAULTS: dict[str, Any] = {
    "trees": 150,
    "learning_rate": 0.06,
    "leaves": 15,
    "min_leaf_rows": 40,
    "l2": 1.0,
    "positive_weight": 1.0,
}

TRUSTED = ["sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"]


class Forest:
    """One step is the whole fit; deterministic for a seed at any number of threads."""

    name: ClassVar[str] = "forest"
    stepped: ClassVar[bool] = False

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params = read_params(self.name, params, DEFAULTS)
        self.seed = seed
        self.samples = self.batch_size = self.epochs = 1
        self._model: HistGradientBoostingClassifier | None = None

    def start(self, features: Path, training_cut: datetime) -> None:
        """Read the rows before ``training_cut`` whose label is known."""
        rows, self._labels = read_training_rows(features, training_cut)
        self.encoder = fit_encoder(rows)
        self._matrix = self.encoder.raw(rows)

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        """Fit; returns the log loss on the training rows."""
        given = self.params
        model = HistGradientBoostingClassifier(
            max_iter=given["trees"],
            learning_rate=given["learning_rate"],
            max_leaf_nodes=given["leaves"],
            min_samples_leaf=given["min_leaf_rows"],
            l2_regularization=given["l2"],
            early_stopping=False,
            random_state=self.seed % 2**32,
            class_weight={0: 1.0, 1: given["positive_weight"]},
        )
        with threadpool_limits(1):
            self._model = model.fit(self._matrix, self._labels)
            chance = np.clip(model.predict_proba(self._matrix)[:, 1], 1e-12, 1 - 1e-12)
        return float(-np.mean(np.where(self._labels == 1, np.log(chance), np.log1p(-chance))))

    def state(self) -> dict[str, Any]:
        """Nothing: a fit that was cut off is done again, with the same result."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to take over."""

    def save(self, folder: Path) -> None:
        """Write the encoder and the trees; equal models give equal bytes."""
        if self._model is None:
            raise ModelError("family 'forest': save before the first step; there is no model yet")
        write_arrays(folder, self.name, meta={"encoder": self.encoder.as_json()}, arrays={})
        (folder / "model.skops").write_bytes(canonical(skops.io.dumps(self._model)))

    @classmethod
    def load(cls, folder: Path) -> ForestScorer:
        """The scorer saved in ``folder``.

        Raises:
            ModelError: a damaged file, or one that holds types outside the trusted list.
        """
        meta = read_meta(folder, cls.name)
        path = folder / "model.skops"
        try:
            foreign = sorted(set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED))
            if foreign:
                raise ModelError(f"{path}: holds types that are not trusted: {', '.join(foreign)}")
            model = skops.io.load(path, trusted=TRUSTED)
        except ModelError:
            raise
        except Exception as error:  # zip, JSON, key and type errors: whatever a damaged file can provoke
            raise ModelError(f"{path}: damaged model artefact: {error}") from error
        return ForestScorer(Encoder.from_json(meta["encoder"]), model)


class ForestScorer:
    """Scores are estimated probabilities of fraud (of the weighted classes, if ``positive_weight`` is not 1)."""

    def __init__(self, encoder: Encoder, model: HistGradientBoostingClassifier) -> None:
        self.encoder = encoder
        self.model = model

    def score(self, rows: pa.Table) -> NDArray[np.float64]:
        """(n,); a row's score does not depend on the other rows."""
        if rows.num_rows == 0:
            return np.zeros(0)
        with threadpool_limits(1):
            chances: NDArray[np.float64] = self.model.predict_proba(self.encoder.raw(rows))
        return chances[:, 1].astype(np.float64)
