"""Is our matrix factorisation as good as `implicit` on a real order log, and what does each cost to fit?

Protocol: Online Retail; each user's last new item in time is held out, everything else is training; all items are
ranked, those the user has in training removed; HR@10 and NDCG@10 per user, mean over seeds; the difference is
bootstrapped over users, paired. Run: python benchmarks/recommendation_quality.py [--data DIR] [--json FILE] [--seeds 5]
"""

# ruff: noqa: E402 -- thread counts must be set before numpy is imported
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

for _library in ("OPENBLAS", "OMP", "MKL"):  # before numpy: implicit wants one BLAS thread, and CPU seconds compare
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.errors import NothingCompared, SourceError
from mlcost_pipeline.models.als import Als

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FILE = Path("interactions") / "online_retail.parquet"
K = 10
MARGIN = 0.01
FACTORS = 64
ROUNDS = 2000


@dataclass(frozen=True)
class Split:
    """Distinct training pairs, and for each test user the one item to find."""

    items: list[str]
    n_users: int
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    test_users: NDArray[np.int64]
    test_items: NDArray[np.int64]

    def histories(self) -> list[NDArray[np.int64]]:
        """Training items of every user."""
        order = np.argsort(self.user, kind="stable")
        bounds = np.searchsorted(self.user[order], np.arange(self.n_users + 1))
        items = self.item[order]
        return [items[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Measured:
    """Per test user and seed: hit and discounted gain; CPU seconds of each fit."""

    hits: NDArray[np.float64]
    gains: NDArray[np.float64]
    seconds: list[float]


def load_split(data: Path, *, skip_last: int = 0) -> Split:
    """The split of the protocol; ``skip_last=1`` drops each user's held-out item and holds out the one before.

    Kept rows: with a customer, a product code (five digits and letters) and a quantity above 0. Of a user's items
    the first purchase counts; those of one minute (one basket) keep the order of the file. Users whose item nobody
    else has, or who have nothing else, are no test users.
    """
    path = data / FILE
    if not path.is_file():
        raise SourceError(f"{path}: not there; give --data the folder that holds {FILE}")
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    firsts: pa.Table = connection.sql(
        f"""
        WITH kept AS (
            SELECT CAST(CustomerID AS VARCHAR) AS user_id, StockCode AS item_id,
                   InvoiceDate AS bought_at, file_row_number AS place
            FROM read_parquet('{str(path).replace("'", "''")}', file_row_number=true)
            WHERE CustomerID IS NOT NULL AND Quantity > 0 AND regexp_full_match(StockCode, '[0-9]{{5}}[A-Za-z]*')
        ), firsts AS (
            SELECT user_id, item_id, min(bought_at) AS bought_at, min(place) AS place
            FROM kept GROUP BY user_id, item_id
        )
        SELECT user_id, item_id, row_number() OVER (PARTITION BY user_id ORDER BY bought_at DESC, place DESC) AS back
        FROM firsts ORDER BY user_id, back DESC
        """
    ).to_arrow_table()
    items = sorted(set(firsts["item_id"].to_pylist()))
    number = {name: i for i, name in enumerate(items)}
    item = np.array([number[name] for name in firsts["item_id"].to_pylist()], dtype=np.int64)
    users, user = np.unique(np.array(firsts["user_id"].to_pylist()), return_inverse=True)
    back = firsts["back"].to_numpy()
    train, held = back > skip_last + 1, back == skip_last + 1
    known_items, known_users = np.unique(item[train]), np.unique(user[train])
    fair = held & np.isin(item, known_items) & np.isin(user, known_users)
    return Split(items, len(users), user[train], item[train], user[fair], item[fair])


def rank_of(scores: NDArray[Any], wanted: int, seen: NDArray[np.int64]) -> int:
    """Place of the wanted item (0 is first) among all unseen ones; of equal scores the lower item number is first."""
    scores = scores.copy()
    scores[seen] = -np.inf
    mine = scores[wanted]
    return int(np.sum(scores > mine) + np.sum(scores[:wanted] == mine))


def measure(split: Split, score: Callable[[int], NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(hit, gain) of every test user; ``score(user)`` gives a score for every item."""
    histories = split.histories()
    ranks = np.array(
        [rank_of(score(int(u)), int(i), histories[u]) for u, i in zip(split.test_users, split.test_items, strict=True)]
    )
    inside = ranks < K
    return inside.astype(float), np.where(inside, 1 / np.log2(ranks + 2.0), 0.0)


def ours(split: Split, seed: int, params: dict[str, Any]) -> tuple[Callable[[int], NDArray[Any]], float]:
    """Our scores, and the CPU seconds of the fit."""
    started = time.process_time()
    model = Als(params, seed)
    model.fit_on(split.user, split.item, split.items, split.n_users)
    for epoch in range(model.epochs):
        model.step(np.zeros(1, dtype=np.int64), epoch)
    seconds = time.process_time() - started
    recommender = model.recommender()
    vectors = recommender.represent(split.histories())
    return lambda u: recommender.item_vectors @ vectors[u], seconds


def peer(split: Split, seed: int) -> tuple[Callable[[int], NDArray[Any]], float]:
    """Scores of `implicit` (reg .01, alpha 1, 15 iterations, its defaults otherwise), and its CPU seconds."""
    import implicit
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    ones = np.ones(len(split.user), dtype=np.float32)
    matrix = csr_matrix((ones, (split.user, split.item)), shape=(split.n_users, len(split.items)))
    started = time.process_time()
    with threadpool_limits(1, user_api="blas"):
        model = implicit.cpu.als.AlternatingLeastSquares(
            factors=FACTORS, regularization=0.01, alpha=1.0, iterations=15, num_threads=1, random_state=seed
        )
        model.fit(matrix, show_progress=False)
    seconds = time.process_time() - started
    return lambda u: model.item_factors @ model.user_factors[u], seconds


def popular(split: Split) -> Callable[[int], NDArray[Any]]:
    """The number of users who have the item, for everybody."""
    counts = np.bincount(split.item, minlength=len(split.items)).astype(float)
    return lambda u: counts


def over_seeds(
    split: Split, seeds: int, fit: Callable[[Split, int], tuple[Callable[[int], NDArray[Any]], float]]
) -> Measured:
    """Fit and measure once a seed, 0 to seeds - 1."""
    hits, gains, seconds = [], [], []
    for seed in range(seeds):
        score, spent = fit(split, seed)
        hit, gain = measure(split, score)
        hits.append(hit)
        gains.append(gain)
        seconds.append(spent)
    return Measured(np.array(hits), np.array(gains), seconds)


def interval(per_user: NDArray[np.float64], *, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over users, ``ROUNDS`` resamples.

    Raises:
        NothingCompared: there are no users.
    """
    if len(per_user) == 0:
        raise NothingCompared("no test users: nothing was compared")
    rng = np.random.default_rng(seed)
    n = len(per_user)
    means = np.array([per_user[rng.integers(0, n, n)].mean() for _ in range(ROUNDS)])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def compare(split: Split, seeds: int, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """All rows of the benchmark; the row with a limit is the claim."""
    mine = over_seeds(split, seeds, lambda s, seed: ours(s, seed, {"factors": FACTORS, **(params or {})}))
    theirs = over_seeds(split, seeds, peer)
    hit, gain = measure(split, popular(split))
    flat = Measured(hit[None, :], gain[None, :], [])
    rows = []
    for policy, found in (("ours als", mine), ("implicit als", theirs), ("popular", flat)):
        rows.append(_row(policy, f"HR@{K}", found.hits.mean(axis=0)))
        rows.append(_row(policy, f"NDCG@{K}", found.gains.mean(axis=0)))
        if found.seconds:
            rows.append(_seconds(policy, found.seconds))
    rows.append(_row("ours als - implicit als", f"HR@{K}", (mine.hits - theirs.hits).mean(axis=0), limit=-MARGIN))
    rows.append(_row("ours als - implicit als", f"NDCG@{K}", (mine.gains - theirs.gains).mean(axis=0)))
    return rows


def _row(policy: str, metric: str, per_user: NDArray[np.float64], limit: float | None = None) -> dict[str, Any]:
    low, high = interval(per_user)
    met = None if limit is None else bool(low >= limit)
    return _line(policy, metric, float(per_user.mean()), low, high, len(per_user), limit, met)


def _seconds(policy: str, seconds: list[float]) -> dict[str, Any]:
    middle = float(np.median(seconds))
    return _line(policy, "fit CPU seconds, median", middle, min(seconds), max(seconds), len(seconds), None, None)


def _line(
    policy: str, metric: str, value: float, low: float, high: float, count: int, limit: float | None, met: bool | None
) -> dict[str, Any]:
    return {
        "claim": f"ALS at {FACTORS} factors is not below implicit by more than {MARGIN} HR@{K}",
        "set": "online_retail, last new item, full ranking, seen removed",
        "policy": policy, "metric": metric, "value": value, "low": low, "high": high, "count": count,
        "limit": limit, "met": met,
    }  # fmt: skip


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{rows[0]['claim']}\n{rows[0]['set']}")
    for name in ("policy", "metric", "value", "low", "high", "count", "limit", "met"):
        table.add_column(name, justify="left" if name in ("policy", "metric") else "right")
    for row in rows:
        cells = [row["policy"], row["metric"], *(f"{row[name]:.4f}" for name in ("value", "low", "high"))]
        limit = "" if row["limit"] is None else f"low >= {row['limit']}"
        table.add_row(*cells, str(row["count"]), limit, {None: "", True: "yes", False: "NO"}[row["met"]])
    Console().print(table)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 if the claim is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds interactions/online_retail.parquet")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    rows = compare(load_split(given.data), given.seeds)
    show(rows)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
