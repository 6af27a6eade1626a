"""Training the baseline in this process, and measuring what work costs in CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.models.base import Recommender, Scorer
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.models.registry import family
from mlcost_pipeline.settings import Trainer
from mlcost_pipeline.training.order import Cursor, Order, step_seed

T = TypeVar("T")
CLOCK_RESOLUTION = 1e-6


@dataclass(frozen=True)
class Timed:
    """A trained predictor and the CPU seconds its training took."""

    value: Recommender | Scorer
    seconds: float


def train_baseline(trainer: Trainer, features: FeatureSet, folder: Path) -> Timed:
    """Train in the same order of data as the trainer would, without checkpoints; the artefact goes to `folder`.

    Raises:
        NothingCompared: the features hold no training sample.
    """
    made = family(trainer.family)
    learner = made(dict(trainer.params), trainer.seed)

    def work() -> None:
        learner.start(features.folder, features.cuts.training_cut)
        if learner.samples == 0:
            raise NothingCompared(f"{features.folder}: no sample to train {trainer.family} on")
        order = (
            Order(trainer.seed, learner.samples, learner.batch_size, learner.epochs)
            if made.stepped
            else Order.whole(trainer.seed, learner.samples)
        )
        cursor = Cursor()
        while not order.finished(cursor):
            learner.step(order.indices(cursor), step_seed(trainer.seed, cursor.epoch, cursor.batch))
            cursor = order.after(cursor)
        learner.save(folder)

    _, seconds = cpu_seconds_of(work)
    return Timed(made.load(folder), seconds)


@dataclass(frozen=True)
class Spread:
    """CPU seconds of the same work done several times: the least and the most it took."""

    least: float
    most: float


def repeated(work: Callable[[], T], rounds: int = 3) -> tuple[T, Spread]:
    """Do the same work several times; returns the last result and the spread of its CPU seconds."""
    done = [cpu_seconds_of(work) for _ in range(rounds)]
    seconds = [max(seconds, CLOCK_RESOLUTION) for _, seconds in done]
    return done[-1][0], Spread(min(seconds), max(seconds))


def cpu_seconds_of(work: Callable[[], T]) -> tuple[T, float]:
    """The result of some work and the CPU seconds of this process that it took."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began
