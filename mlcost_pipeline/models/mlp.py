"""A small feed-forward network over feature rows (family ``mlp``), trained by minibatches in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import read_params
from mlcost_pipeline.models.data_wait import waiting_for_data
from mlcost_pipeline.models.determinism import seeded, snapshot, threads
from mlcost_pipeline.models.encoding import Encoder, fit_encoder, read_training_rows
from mlcost_pipeline.models.vectors import read_arrays, read_meta, write_arrays

DEFAULTS: dict[str, Any] = {
    "width": 64,
    "layers": 2,
    "dropout": 0.1,
    "epochs": 6,
    "batch_size": 512,
    "learning_rate": 0.002,
    "weight_decay": 0.0001,
    "positive_weight": 5.0,
    "threads": 1,
}

_BLOCK = 1024


class Mlp:
    """Samples are training rows with a known label; a positive one weighs ``positive_weight``."""

    name: ClassVar[str] = "mlp"
    stepped: ClassVar[bool] = True

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params = read_params(self.name, params, DEFAULTS)
        for name in ("width", "layers", "epochs", "batch_size", "threads"):
            if self.params[name] < 1:
                raise ModelError(f"trainer.params.{name} of family 'mlp': must be 1 or more")
        self.seed = seed
        self.samples = 0
        self.batch_size = int(self.params["batch_size"])
        self.epochs = int(self.params["epochs"])

    def start(self, features: Path, training_cut: datetime) -> None:
        """Read the rows before ``training_cut`` whose label is known, and draw the first weights."""
        rows, labels = read_training_rows(features, training_cut)
        self.encoder = fit_encoder(rows)
        self._inputs = torch.from_numpy(self.encoder.standard(rows))
        self._labels = torch.from_numpy(labels.astype(np.float32))
        self.samples = len(labels)
        with seeded(self.seed):
            self.network = network(self._inputs.shape[1], self.params)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=float(self.params["learning_rate"]),
            weight_decay=float(self.params["weight_decay"]),
        )

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        """One optimiser step on the rows ``indices``; dropout follows from ``step_seed``."""
        chosen = torch.from_numpy(np.asarray(indices, dtype=np.int64))
        with waiting_for_data():
            inputs, labels = self._inputs[chosen], self._labels[chosen]
        weight = torch.tensor(float(self.params["positive_weight"]))
        with threads(int(self.params["threads"])), seeded(step_seed):
            self.network.train()
            logits = self.network(inputs)[:, 0]
            loss = functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            return float(loss.detach())

    def state(self) -> dict[str, Any]:
        """Weights and the optimiser's moments."""
        state = {"network": dict(self.network.state_dict()), "optimizer": self.optimizer.state_dict()}
        return dict(snapshot(state))

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` after ``start`` on the same data."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(snapshot(state["optimizer"]))

    def save(self, folder: Path) -> None:
        """Write encoder, parameters and weights."""
        arrays = {f"w.{name}": tensor.numpy() for name, tensor in self.network.state_dict().items()}
        write_arrays(folder, self.name, meta={"encoder": self.encoder.as_json(), "params": self.params}, arrays=arrays)

    @classmethod
    def load(cls, folder: Path) -> MlpScorer:
        """The scorer saved in ``folder``."""
        meta = read_meta(folder, cls.name)
        encoder = Encoder.from_json(meta["encoder"])
        net = network(encoder.width + len(encoder.numbers), meta["params"])
        names = list(net.state_dict())
        arrays = read_arrays(folder, tuple(f"w.{name}" for name in names))
        net.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in zip(names, arrays, strict=True)})
        return MlpScorer(encoder, net)


class MlpScorer:
    """Scores are the network's logits, which order rows as its probabilities do but do not saturate."""

    def __init__(self, encoder: Encoder, net: nn.Sequential) -> None:
        self.encoder = encoder
        self.network = net.eval()

    def score(self, rows: pa.Table) -> NDArray[np.float64]:
        """(n,); a row's score does not depend on the other rows: every pass has the same size."""
        inputs = self.encoder.standard(rows)
        out = np.zeros(len(inputs))
        with torch.inference_mode(), threads(1):
            for begin in range(0, len(inputs), _BLOCK):
                block = inputs[begin : begin + _BLOCK]
                padded = np.zeros((_BLOCK, inputs.shape[1]), dtype=np.float32)
                padded[: len(block)] = block
                out[begin : begin + len(block)] = self.network(torch.from_numpy(padded))[: len(block), 0].numpy()
        return out


def network(inputs: int, params: Mapping[str, Any]) -> nn.Sequential:
    """``layers`` hidden layers of ``width``, each with ReLU and dropout, then one logit."""
    parts: list[nn.Module] = []
    size = inputs
    for _ in range(int(params["layers"])):
        parts += [nn.Linear(size, int(params["width"])), nn.ReLU(), nn.Dropout(float(params["dropout"]))]
        size = int(params["width"])
    return nn.Sequential(*parts, nn.Linear(size, 1))
