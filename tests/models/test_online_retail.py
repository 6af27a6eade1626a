"""The quality claim on a real order log, with one seed; benchmarks/recommendation_quality.py measures it whole."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mlcost_pipeline.errors import NothingCompared, SourceError

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "recommendation_quality.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recommendation_quality", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_our_factorisation_is_not_below_its_peer_on_online_retail(benchmark: ModuleType) -> None:
    pytest.importorskip("implicit", reason="the peer `implicit` is not installed (extra: dev)")
    if not (benchmark.DATA / benchmark.FILE).is_file():
        pytest.skip(f"{benchmark.DATA / benchmark.FILE} is absent: the public data folder is not beside the checkout")
    split = benchmark.load_split(benchmark.DATA)
    assert (len(split.items), split.n_users, len(split.user)) == (3659, 4335, 261_891)
    rows = benchmark.compare(split, seeds=1)
    claim = next(row for row in rows if row["limit"] is not None)
    assert claim["count"] > 4000
    assert claim["low"] >= -0.01, claim
    assert claim["met"] is True
    hits = {row["policy"]: row["value"] for row in rows if row["metric"] == "HR@10"}
    assert hits["ours als"] > 2 * hits["popular"]


def test_a_rank_counts_unseen_items_only_and_breaks_ties_by_number(benchmark: ModuleType) -> None:
    scores = np.array([5.0, 3.0, 3.0, 3.0, 9.0])
    assert benchmark.rank_of(scores, 2, np.array([4])) == 2
    assert benchmark.rank_of(scores, 1, np.array([4, 0])) == 0
    assert scores[4] == 9.0


def test_absent_data_and_no_users_are_errors(benchmark: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="--data"):
        benchmark.load_split(tmp_path)
    with pytest.raises(NothingCompared):
        benchmark.interval(np.zeros(0))
