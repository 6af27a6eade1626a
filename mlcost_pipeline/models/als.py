"""Implicit matrix factorisation by alternating least squares, the baseline recommender (family ``als``).

Model: Hu, Koren, Volinsky (2008) in the form of Rendle et al. 2021 (arXiv 2110.14037, "iALS"): every pair that was not
seen counts as 0 with weight ``unobserved_weight``, a seen one also as 1 with weight 1, and the regularisation of a row
grows with its frequency to the power ``regularization_exponent``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import read_params
from mlcost_pipeline.models.sequences import distinct_pairs, read_sequences
from mlcost_pipeline.models.vectors import read_arrays, read_meta, write_arrays

DEFAULTS: dict[str, Any] = {
    "factors": 64,
    "iterations": 15,
    "unobserved_weight": 0.3,
    "regularization": 0.003,
    "regularization_exponent": 1.0,
    "init_stddev": 0.1,
}

_BUCKETS = np.array([1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024], dtype=np.int64)
_CHUNK_FLOATS = 4_000_000


class Als:
    """One step is one epoch: all users from the items, then all items from the users.

    Weights are deterministic for a seed at any number of BLAS threads: the arithmetic runs on one thread.
    Only distinct (user, item) pairs count; that a pair came twice changes nothing.
    """

    name: ClassVar[str] = "als"
    stepped: ClassVar[bool] = True

    def __init__(self, params: Mapping[str, Any], seed: int) -> None:
        self.params = read_params(self.name, params, DEFAULTS)
        if self.params["factors"] < 1 or self.params["iterations"] < 1 or self.params["unobserved_weight"] <= 0:
            raise ModelError("trainer.params of family 'als': factors, iterations, unobserved_weight must be above 0")
        self.seed = seed
        self.samples = 1
        self.batch_size = 1
        self.epochs = int(self.params["iterations"])

    def start(self, features: Path, training_cut: datetime) -> None:
        """Read the distinct training pairs and draw the first item factors."""
        sequences = read_sequences(features, training_cut)
        self.fit_on(*distinct_pairs(sequences.histories()), sequences.items, len(sequences.users))

    def fit_on(self, user: NDArray[np.int64], item: NDArray[np.int64], items: list[str], n_users: int) -> None:
        """Prepare for ``step`` from pairs of numbers instead of a features folder."""
        self.items = items
        self._by_user = Rows(user, item, n_users, len(items))
        self._by_item = Rows(item, user, len(items), n_users)
        scale = self.params["init_stddev"] / np.sqrt(self.params["factors"])
        drawn = np.random.default_rng(self.seed).normal(0, scale, (len(items), self.params["factors"]))
        self.item_factors = drawn.astype(np.float32)

    def step(self, indices: NDArray[np.int64], step_seed: int) -> float:
        """One epoch; returns the objective per seen pair after the user half (without the items' regularisation)."""
        with threadpool_limits(1, user_api="blas"):
            users, explained = solve_rows(self._by_user, self.item_factors, self.params)
            self.item_factors, _ = solve_rows(self._by_item, users, self.params)
        return 1.0 - float(explained.sum()) / len(self._by_user.row)

    def state(self) -> dict[str, Any]:
        """Item factors: all else follows from them and the data."""
        import torch

        return {"item_factors": torch.from_numpy(self.item_factors.copy())}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state`` after ``start`` on the same data."""
        factors = state["item_factors"].numpy()
        if factors.shape != self.item_factors.shape:
            raise ModelError(f"state of shape {factors.shape} does not fit the data, {self.item_factors.shape}")
        self.item_factors = factors.copy()

    def save(self, folder: Path) -> None:
        """Write item ids, factors and the parameters of the fold-in."""
        meta = {"items": self.items, "params": self.params}
        write_arrays(folder, self.name, meta=meta, arrays={"item_vectors": self.item_factors})

    @classmethod
    def load(cls, folder: Path) -> AlsRecommender:
        """The recommender saved in ``folder``."""
        meta = read_meta(folder, cls.name)
        (vectors,) = read_arrays(folder, ("item_vectors",))
        return AlsRecommender(meta["items"], vectors, meta["params"])

    def recommender(self) -> AlsRecommender:
        """The recommender as it would be loaded after ``save``."""
        return AlsRecommender(self.items, self.item_factors, self.params)


class AlsRecommender:
    """Folds a history in: the user half of one epoch, so that an event of this minute counts at once."""

    def __init__(self, items: list[str], item_vectors: NDArray[np.float32], params: Mapping[str, Any]) -> None:
        self.items = items
        self.item_vectors = item_vectors
        self.params = params

    def represent(self, histories: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """(n, d); an empty history gives the zero vector, which scores every item 0."""
        row, column = distinct_pairs(histories)
        rows = Rows(row, column, len(histories), len(self.items))
        with threadpool_limits(1, user_api="blas"):
            return solve_rows(rows, self.item_vectors, self.params)[0]


class Rows:
    """Pairs grouped by row; rows of about equal length share a bucket, and so one stacked product.

    A row is padded to its bucket's width, which depends on its own length alone: its solution is bit-equal
    whatever other rows are solved with it, alone or in any shard.
    """

    def __init__(self, row: NDArray[np.int64], column: NDArray[np.int64], n_rows: int, n_columns: int) -> None:
        order = np.lexsort((column, row))
        self.row, self.column = row[order], column[order]
        self.n_rows, self.n_columns = n_rows, n_columns
        self.counts = np.bincount(self.row, minlength=n_rows).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int64) if n_rows else self.counts
        self.widths = _width(self.counts)

    def padded(self, rows: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """(len(rows), width) column numbers; ``n_columns`` stands for nothing."""
        place = np.arange(width, dtype=np.int64)[None, :]
        inside = place < self.counts[rows][:, None]
        taken = np.where(inside, self.starts[rows][:, None] + place, 0)
        return np.where(inside, self.column[taken], self.n_columns)


def _width(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket a row length belongs to: the listed widths, above them multiples of the last."""
    last = int(_BUCKETS[-1])
    listed = _BUCKETS[np.minimum(np.searchsorted(_BUCKETS, counts), len(_BUCKETS) - 1)]
    return np.where(counts > last, -(-counts // last) * last, listed)


def solve_rows(
    rows: Rows, factors: NDArray[np.float32], params: Mapping[str, Any]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Least squares of every row against fixed ``factors`` (n_columns, d): iALS, equations 6 and 14.

    Row r solves (a0 G + sum x x' + reg (n_r + a0 n_columns)^nu I) w = sum x =: b, over its seen columns' factors x.
    Returns (n_rows, d) solutions and (n_rows,) b'w: at the optimum the row's objective is n_r - b'w.
    """
    d = factors.shape[1]
    weight = float(params["unobserved_weight"])
    exponent = float(params["regularization_exponent"])
    solution, explained = np.zeros((rows.n_rows, d), dtype=np.float32), np.zeros(rows.n_rows)
    regular = (float(params["regularization"]) * (rows.counts + weight * rows.n_columns) ** exponent).astype(np.float32)
    base = np.float32(weight) * (factors.T @ factors)
    values, basis = np.linalg.eigh(base)
    extended = np.vstack([factors, np.zeros((1, d), dtype=np.float32)])
    rotated = extended @ basis
    for width in np.unique(rows.widths[rows.counts > 0]):
        members = np.flatnonzero((rows.widths == width) & (rows.counts > 0))
        short = int(width) < d and float(params["regularization"]) > 0
        size = max(1, _CHUNK_FLOATS // (int(width) * d + 2 * d * d))
        for chunk in (members[i : i + size] for i in range(0, len(members), size)):
            seen = (rotated if short else extended)[rows.padded(chunk, int(width))]
            if short:
                solution[chunk], explained[chunk] = _short_rows(seen, rows.counts[chunk], values, regular[chunk])
            else:
                solution[chunk], explained[chunk] = _long_rows(seen, base, regular[chunk])
        if short:
            solution[members] = np.matmul(solution[members][:, None, :], basis.T)[:, 0, :]  # one by one, as if alone
    return solution, explained


def _long_rows(
    seen: NDArray[np.float32], base: NDArray[np.float32], regular: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows with more items than factors: the d normal equations as they are. ``seen`` (rows, width, d)."""
    left = np.matmul(seen.transpose(0, 2, 1), seen)
    left += base
    diagonal = np.arange(base.shape[0])
    left[:, diagonal, diagonal] += regular[:, None]
    right = seen.sum(axis=1)
    solved = np.linalg.solve(left, right[:, :, None])[:, :, 0]
    return solved, (right * solved).sum(axis=1)


def _short_rows(
    seen: NDArray[np.float32], counts: NDArray[np.int64], values: NDArray[np.float32], regular: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows with fewer items than factors, by the push-through identity, in the eigenbasis of the shared part.

    With C = a0 G + reg I diagonal: (C + X'X)^-1 X' 1 = C^-1 X' z with (I + X C^-1 X') z = 1, and b'w = n - sum z.
    """
    inverse = 1.0 / (np.maximum(values, 0.0)[None, :] + regular[:, None])
    left = np.matmul(seen * inverse[:, None, :], seen.transpose(0, 2, 1))
    diagonal = np.arange(seen.shape[1])
    left[:, diagonal, diagonal] += np.float32(1.0)
    ones = np.ones((len(seen), seen.shape[1], 1), dtype=np.float32)
    z = np.linalg.solve(left, ones)[:, :, 0] * (diagonal[None, :] < counts[:, None])
    return inverse * np.matmul(z[:, None, :], seen)[:, 0, :], counts - z.sum(axis=1)
