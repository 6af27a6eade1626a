"""What every model family, recommender and scorer offers, and the cuts in time they are trained by.

A family knows how to start, step and save. Checkpoints, order of the data and resumption belong to training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.settings import ModelSettings


@dataclass(frozen=True)
class Cuts:
    """Event times (UTC) that split the rows: train before ``training_cut``, hold out up to ``holdout_end``.

    Training rows: ``happened_at < training_cut``. Held-out rows: ``training_cut <= happened_at < holdout_end``.
    What happened at ``data_cut`` or later, and what became known after it, is not there.
    """

    data_cut: datetime
    holdout_end: datetime
    training_cut: datetime


def cuts(model: ModelSettings, as_of: date) -> Cuts:
    """The cuts of a model that knows the world up to the end of the day ``as_of`` (UTC).

    Labels of a scoring model need ``label_delay_days`` to mature, so its held-out days end that much earlier.
    """
    data_cut = datetime.combine(as_of + timedelta(days=1), time(), tzinfo=UTC)
    delay = model.windows.label_delay_days if model.task == "scoring" else 0
    holdout_end = data_cut - timedelta(days=delay)
    return Cuts(data_cut, holdout_end, holdout_end - timedelta(days=model.windows.holdout_days))


@runtime_checkable
class Recommender(Protocol):
    """Scores every item for a user from the user's history alone (fold-in): score = representation · item vector."""

    items: list[str]
    """Item ids; the index of an item is its place here."""
    item_vectors: NDArray[np.float32]
    """(n_items, d)"""

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """(n, d) from item indices in the order of time; a row never depends on the other rows asked for."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Scores rows as they stand in the features file."""

    def score(self, rows: pa.Table) -> NDArray[np.float64]:
        """(n,), higher is more suspicious; comparable within one model version only."""
        ...


class Family(Protocol):
    """A way to train: ``start`` once, ``step`` through batches of row numbers, ``save`` an artefact.

    ``samples``, ``batch_size`` and ``epochs`` are known after ``start``. A family with ``stepped = False`` does all
    its work in one step (samples = batch_size = epochs = 1). What fetches data, in ``start`` or in ``step``, does so
    inside ``data_wait.waiting_for_data()``; what does not is counted as work.
    """

    name: ClassVar[str]
    stepped: ClassVar[bool]
    samples: int
    batch_size: int
    epochs: int

    def __init__(self, params: Mapping[str, Any], seed: int) -> None: ...

    def start(self, features: Path, training_cut: datetime) -> None:
        """Read the training rows (``happened_at < training_cut``) of a features folder."""
        ...

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        """Learn from one batch of samples; all randomness comes from ``step_seed``. Returns the loss."""
        ...

    def state(self) -> dict[str, Any]:
        """All that ``load_state`` needs after ``start``: tensors, numbers, texts, in dicts and lists."""
        ...

    def load_state(self, state: dict[str, Any]) -> None: ...

    def save(self, folder: Path) -> None:
        """Write the artefact (no pickle) into an existing folder."""
        ...

    @classmethod
    def load(cls, folder: Path) -> Recommender | Scorer: ...


def read_params(family: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults overlaid with what mlcost.yaml gives, each value of its default's type.

    Raises:
        ModelError: a name that the family does not have, or a value of another type.
    """
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise ModelError(
            f"trainer.params of family {family!r}: unknown {', '.join(unknown)}; allowed: {', '.join(sorted(defaults))}"
        )
    values = dict(defaults)
    for name, value in given.items():
        default = defaults[name]
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(default):
            raise ModelError(
                f"trainer.params.{name} of family {family!r}: expected {type(default).__name__}, found {value!r}"
            )
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            raise ModelError(f"trainer.params.{name} of family {family!r}: must not be negative, found {value!r}")
        values[name] = value
    return values
