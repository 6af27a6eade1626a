"""Threads of the machine must not show in a model: the same weights on one core and on two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlcost_pipeline.models.features import FeatureSet

PROGRAM = """
import hashlib, sys
from datetime import datetime
from pathlib import Path
import numpy as np
from mlcost_pipeline.models.registry import family
name, features, cut, out = sys.argv[1], Path(sys.argv[2]), datetime.fromisoformat(sys.argv[3]), Path(sys.argv[4])
small = {"forest": {"trees": 10}, "mlp": {"epochs": 1}, "sasrec": {"epochs": 1, "factors": 16}}
model = family(name)(small[name], 1)
model.start(features, cut)
for step in range(2 if model.stepped else 1):
    model.step(np.arange(min(model.batch_size, model.samples)), step)
out.mkdir()
model.save(out)
print(hashlib.sha256(b"".join(file.read_bytes() for file in sorted(out.iterdir()))).hexdigest())
"""


@pytest.mark.parametrize("name", ["forest", "mlp", "sasrec"])
def test_artefacts_are_bit_equal_at_one_and_two_threads(
    name: str, lists_features: FeatureSet, fraud_features: FeatureSet, tmp_path: Path
) -> None:
    features = lists_features if name == "sasrec" else fraud_features
    cut = features.cuts.training_cut.isoformat()
    answers = []
    for count in ("1", "2"):
        environment = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, name, str(features.folder), cut, str(tmp_path / count)],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        answers.append(done.stdout.strip())
    assert answers[0] == answers[1]
    assert len(answers[0]) == 64
