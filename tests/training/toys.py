"""A tiny stepped family with everything that can go wrong on a resume: momentum, step noise, and a memory of order."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from mlcost_pipeline.training.job import TrainerJob, write_job

CUT = datetime(2025, 6, 1, tzinfo=UTC)
DEFAULTS = {"samples": 103, "batch_size": 10, "epochs": 4, "sleep": 0.0, "fail_at": -1}


class Tiny:
    """Linear regression by SGD with momentum on data made from the seed; noise in each step, as dropout would be."""

    name: ClassVar[str] = "tiny"
    stepped: ClassVar[bool] = True

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params, self.seed = {**DEFAULTS, **params}, seed

    def start(self, features: Path, training_cut: datetime) -> None:
        self.samples, self.batch_size = self.params["samples"], self.params["batch_size"]
        self.epochs = self.params["epochs"]
        made = torch.Generator().manual_seed(self.seed)
        self.x = torch.randn(self.samples, 8, generator=made)
        self.y = self.x @ torch.arange(8.0)
        self.weights = torch.zeros(8, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.weights], lr=0.05)
        self.order, self.steps = "", 0

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        if self.steps == self.params["fail_at"]:
            raise ZeroDivisionError("the model's own code fails here")
        time.sleep(self.params["sleep"])
        noise = torch.randn(len(indices), generator=torch.Generator().manual_seed(step_seed))
        rows = torch.from_numpy(indices)
        loss = ((self.x[rows] @ self.weights + 0.1 * noise - self.y[rows]) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.order = hashlib.sha256(self.order.encode() + indices.tobytes()).hexdigest()
        self.steps += 1
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        return {
            "weights": self.weights.detach(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order,
            "steps": self.steps,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order, self.steps = state["order"], state["steps"]

    def save(self, folder: Path) -> None:
        np.save(folder / "weights.npy", self.weights.detach().numpy())
        (folder / "order.txt").write_text(self.order)

    @classmethod
    def load(cls, folder: Path) -> Any:
        return np.load(folder / "weights.npy")


class Whole(Tiny):
    """A model without steps, as a scikit-learn one is."""

    name: ClassVar[str] = "whole"
    stepped: ClassVar[bool] = False


def tiny_job(folder: Path, *, family: str = "tests.training.toys:Tiny", checkpoint_seconds: float = 0.0001,
             **params: Any) -> TrainerJob:  # fmt: skip
    """A job in a fresh folder; it checkpoints after every step unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    job = TrainerJob("job1", "shop", family, params, 7, "v1", folder, CUT, checkpoint_seconds)
    write_job(folder, job)
    return job
