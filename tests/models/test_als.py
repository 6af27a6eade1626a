"""The arithmetic of ALS: the normal equations, counts that do not matter, threads that do not matter."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from mlcost_pipeline.models.als import DEFAULTS, Als, AlsRecommender, Rows, solve_rows

PROGRAM = """
import hashlib, numpy as np
from threadpoolctl import threadpool_info
from mlcost_pipeline.models.als import Als
rng = np.random.default_rng(0)
user, item = rng.integers(0, 300, 6000), rng.zipf(1.3, 6000) % 200
pairs = np.unique(np.stack([user, item]), axis=1)
model = Als({"factors": 48, "iterations": 3}, 5)
model.fit_on(pairs[0], pairs[1], [str(i) for i in range(200)], 300)
for epoch in range(3):
    model.step(np.zeros(1, dtype=np.int64), epoch)
vectors = model.recommender().represent([np.arange(70), np.arange(3)])
print(max([entry["num_threads"] for entry in threadpool_info()]))
print(hashlib.sha256(model.item_factors.tobytes() + vectors.tobytes()).hexdigest())
"""


def test_weights_are_bit_equal_at_one_and_two_blas_threads() -> None:
    answers = []
    for count in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        answers.append(done.stdout.split())
    assert answers[0][1] == answers[1][1]
    assert len(answers[0][1]) == hashlib.sha256().digest_size * 2


@pytest.mark.parametrize("count", [1, 7, 40, 1500])
def test_a_row_solves_its_normal_equations(count: int) -> None:
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(2000, 5)).astype(np.float32)
    seen = rng.choice(2000, count, replace=False)
    params = {**DEFAULTS, "unobserved_weight": 0.2, "regularization": 0.05, "regularization_exponent": 0.5}
    found, explained = solve_rows(Rows(np.zeros(count, dtype=np.int64), seen, 1, 2000), factors, params)
    x = factors.astype(np.float64)
    left = 0.2 * x.T @ x + x[seen].T @ x[seen] + 0.05 * (count + 0.2 * 2000) ** 0.5 * np.eye(5)
    expected = np.linalg.solve(left, x[seen].sum(axis=0))
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-5)
    assert explained[0] == pytest.approx(x[seen].sum(axis=0) @ expected, rel=1e-3)


def test_repeats_and_order_in_a_history_change_nothing() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    recommender = AlsRecommender([str(i) for i in range(9)], vectors, DEFAULTS)
    once, again = recommender.represent([np.array([1, 5, 8]), np.array([8, 1, 1, 5, 8])])
    np.testing.assert_array_equal(once, again)


def test_the_loss_falls_monotonically() -> None:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 30, size=(2, 300)), axis=1)
    model = Als({"factors": 4, "iterations": 10, "regularization": 0.0001}, 0)
    model.fit_on(pairs[0], pairs[1], [str(i) for i in range(30)], 30)
    losses = [model.step(np.zeros(1, dtype=np.int64), epoch) for epoch in range(10)]
    assert all(later <= earlier + 1e-3 for earlier, later in pairwise(losses))
