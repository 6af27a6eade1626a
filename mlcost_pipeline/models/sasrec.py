"""A small transformer over each user's sequence (family ``sasrec``), trained with the softmax over all items.

The loss is worth more than the architecture: softmax, or for large catalogues sampled softmax, instead of one negative
(Klenitskiy, Vasilev 2023, arXiv 2309.07602).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import read_params
from mlcost_pipeline.models.data_wait import waiting_for_data
from mlcost_pipeline.models.determinism import INFERENCE_BLOCK, seeded, snapshot, threads
from mlcost_pipeline.models.sequences import first_occurrences, read_sequences
from mlcost_pipeline.models.transformer import Transformer
from mlcost_pipeline.models.vectors import read_arrays, read_meta, write_arrays

DEFAULTS: dict[str, Any] = {
    "factors": 48,
    "blocks": 1,
    "heads": 2,
    "max_length": 30,
    "dropout": 0.2,
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.003,
    "full_softmax_items": 5000,
    "negatives": 512,
    "distinct": True,
    "threads": 1,
}

_NO_TARGET = -100


class SasRec:
    """Samples are windows of at most ``max_length`` items; each place learns to name the item after it.

    With ``distinct`` a repeat of an item is left out, in training as in serving: the question is the next new item.
    """

    name: ClassVar[str] = "sasrec"
    stepped: ClassVar[bool] = True

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params = read_params(self.name, params, DEFAULTS)
        for name in ("factors", "blocks", "heads", "max_length", "epochs", "batch_size", "negatives", "threads"):
            if self.params[name] < 1:
                raise ModelError(f"trainer.params.{name} of family 'sasrec': must be 1 or more")
        if self.params["factors"] % self.params["heads"]:
            raise ModelError("trainer.params of family 'sasrec': factors must be a multiple of heads")
        self.seed = seed
        self.samples = 0
        self.batch_size = int(self.params["batch_size"])
        self.epochs = int(self.params["epochs"])

    def start(self, features: Path, training_cut: datetime) -> None:
        """Cut the histories before ``training_cut`` into windows and draw the first weights."""
        sequences = read_sequences(features, training_cut)
        self.fit_on(sequences.histories(), sequences.items)

    def fit_on(self, histories: Sequence[NDArray[np.int64]], items: list[str]) -> None:
        """Prepare for ``step`` from item numbers instead of a features folder."""
        self.items = items
        if self.params["distinct"]:
            histories = [first_occurrences(history) for history in histories]
        inputs, targets = windows(histories, int(self.params["max_length"]), len(items))
        if len(inputs) == 0:
            raise ModelError("family 'sasrec': no user has two different items before the training cut")
        self._inputs, self._targets = torch.from_numpy(inputs), torch.from_numpy(targets)
        self.samples = len(inputs)
        with seeded(self.seed):
            self.network = Transformer(len(items), self.params)
        rate = float(self.params["learning_rate"])
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=rate, betas=(0.9, 0.98))

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        """One optimiser step on the windows ``indices``; dropout and negatives follow from ``step_seed``."""
        chosen = torch.from_numpy(np.asarray(indices, dtype=np.int64))
        with waiting_for_data():
            inputs, targets = self._inputs[chosen], self._targets[chosen]
        with threads(int(self.params["threads"])), seeded(step_seed):
            self.network.train()
            real = targets != _NO_TARGET
            hidden = self.network(inputs)[real]
            loss = self._loss(hidden, targets[real])
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            return float(loss.detach())

    def _loss(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        weight = self.network.item.weight[:-1]
        if len(self.items) <= self.params["full_softmax_items"]:
            return functional.cross_entropy(hidden @ weight.T, targets)
        negatives = torch.randint(len(self.items), (int(self.params["negatives"]),))
        right = (hidden * weight[targets]).sum(dim=1, keepdim=True)
        wrong = hidden @ weight[negatives].T
        wrong = wrong.masked_fill(negatives[None, :] == targets[:, None], -1e9)
        first = torch.zeros(len(targets), dtype=torch.int64)
        return functional.cross_entropy(torch.cat([right, wrong], dim=1), first)

    def state(self) -> dict[str, Any]:
        """Weights and the optimiser's moments."""
        state = {"network": dict(self.network.state_dict()), "optimizer": self.optimizer.state_dict()}
        return dict(snapshot(state))

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` after ``start`` on the same data."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(snapshot(state["optimizer"]))

    def save(self, folder: Path) -> None:
        """Write item ids, parameters and weights."""
        arrays = {f"w.{name}": tensor.numpy() for name, tensor in self.network.state_dict().items()}
        write_arrays(folder, self.name, meta={"items": self.items, "params": self.params}, arrays=arrays)

    @classmethod
    def load(cls, folder: Path) -> SasRecRecommender:
        """The recommender saved in ``folder``."""
        meta = read_meta(folder, cls.name)
        network = Transformer(len(meta["items"]), meta["params"])
        names = list(network.state_dict())
        arrays = read_arrays(folder, tuple(f"w.{name}" for name in names))
        network.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in zip(names, arrays, strict=True)})
        return SasRecRecommender(meta["items"], network, meta["params"])

    def recommender(self) -> SasRecRecommender:
        """The recommender as it would be loaded after ``save``."""
        network = Transformer(len(self.items), self.params)
        network.load_state_dict(self.network.state_dict())
        return SasRecRecommender(self.items, network, self.params)


class SasRecRecommender:
    """Represents a user by the last hidden state of the newest ``max_length`` items."""

    def __init__(self, items: list[str], network: Transformer, params: Mapping[str, Any]) -> None:
        self.items = items
        self.network = network.eval()
        self.params = params
        self.item_vectors: NDArray[np.float32] = network.item.weight[:-1].detach().numpy().copy()

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """(n, d); an empty history gives the zero vector, which scores every item 0."""
        out = np.zeros((len(histories), self.item_vectors.shape[1]), dtype=np.float32)
        length = int(self.params["max_length"])
        if self.params["distinct"]:
            histories = [first_occurrences(np.asarray(history, dtype=np.int64)) for history in histories]
        with torch.inference_mode(), threads(1):
            for begin in range(0, len(histories), INFERENCE_BLOCK):
                block = histories[begin : begin + INFERENCE_BLOCK]
                padded = np.full((INFERENCE_BLOCK, length), len(self.items), dtype=np.int64)
                for place, history in enumerate(block):
                    newest = history[-length:]
                    padded[place, length - len(newest) :] = newest
                last = self.network(torch.from_numpy(padded))[:, -1].numpy()
                filled = np.array([len(history) > 0 for history in block])
                out[begin : begin + len(block)][filled] = last[: len(block)][filled]
        return out


def windows(
    histories: Sequence[NDArray[np.int64]], length: int, padding: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(samples, length) inputs, padded on the left, and the item that follows each place; the newest window is full."""
    inputs, targets = [], []
    for history in histories:
        for end in range(len(history), 1, -length):
            begin = max(0, end - 1 - length)
            size = end - 1 - begin
            into = np.full(length, padding, dtype=np.int64)
            out = np.full(length, _NO_TARGET, dtype=np.int64)
            into[length - size :] = history[begin : end - 1]
            out[length - size :] = history[begin + 1 : end]
            inputs.append(into)
            targets.append(out)
    shape = (len(inputs), length)
    return np.array(inputs, dtype=np.int64).reshape(shape), np.array(targets, dtype=np.int64).reshape(shape)
