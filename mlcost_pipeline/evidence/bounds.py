"""One-sided bounds of a decay by the block bootstrap: days (or users) are drawn whole.

Rows of one block depend on each other. With few blocks the percentile bootstrap is too narrow; the tail is widened
as in T. Hesterberg, "What Teachers Should Know About the Bootstrap" (The American Statistician 69(4), 2015, section
5.2). The anchor is a measurement too: its binomial error is drawn along, so that a lucky gate does not read as decay
for ever after.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REPLICATES = 4000
SEED = 20260


def bounds(
    had: NDArray[np.float64], possible: NDArray[np.float64], anchor: float, anchor_units: int | None, confidence: float
) -> tuple[float, float]:
    """(low, high) of anchor − Σ had / Σ possible; each bound alone holds with `confidence`.

    Args:
        had: (blocks,) outcomes had in each block.
        possible: (blocks,) outcomes that could have been had; at least two blocks, not all zero.
        anchor_units: units behind the anchor; None takes it as exact.
    """
    generator = np.random.default_rng(SEED)
    cells, counts = np.unique(np.column_stack([had, possible]), axis=0, return_counts=True)
    blocks = int(counts.sum())
    drawn = generator.multinomial(blocks, counts / blocks, size=REPLICATES)
    below = drawn @ cells[:, 1]
    kept = below > 0
    levels = (drawn @ cells[:, 0])[kept] / below[kept]
    spread = 0.0 if not anchor_units else float(np.sqrt(anchor * (1 - anchor) / anchor_units))
    anchors = anchor + spread * generator.standard_normal(REPLICATES)[kept]
    decay = anchors - levels
    tail = _expanded(1 - confidence, blocks)
    return float(np.quantile(decay, tail)), float(np.quantile(decay, 1 - tail))


def _expanded(tail: float, blocks: int) -> float:
    from scipy.special import ndtr, stdtrit

    wide = np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 1 - tail)
    return float(ndtr(-wide))
