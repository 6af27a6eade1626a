"""Intervals for paired differences: two models on the same units, resampled in blocks that belong together.

A block is a user (recommendation) or a day (scoring: the rows of a day depend on each other). Blocks with equal
sums are drawn together as one multinomial cell, which is the same bootstrap at a fraction of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import NothingCompared

REPLICATES = 4000
SEED = 20231
_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class PairedDifference:
    """Mean of candidate minus reference per unit, with its bootstrap replicates (sorted).

    `low` and `high` are one-sided: each alone holds with the confidence asked for.
    """

    difference: float
    candidate: float
    reference: float
    units: int
    blocks: int
    replicates: NDArray[np.float64]

    def low(self, confidence: float) -> float:
        """One-sided lower bound."""
        return float(np.quantile(self.replicates, _expanded(1 - confidence, self.blocks)))

    def high(self, confidence: float) -> float:
        """One-sided upper bound."""
        return float(np.quantile(self.replicates, 1 - _expanded(1 - confidence, self.blocks)))

    def share_at_least(self, value: float) -> float:
        """Share of replicates at or above `value`, never quite 0: a one-sided p-value against "at least `value`"."""
        at_least = len(self.replicates) - int(np.searchsorted(self.replicates, value, side="left"))
        return (1 + at_least) / (1 + len(self.replicates))


def paired_difference(
    candidate: NDArray[np.float64],
    reference: NDArray[np.float64],
    blocks: NDArray[np.int64],
    *,
    replicates: int = REPLICATES,
    seed: int = SEED,
) -> PairedDifference:
    """Bootstrap the mean difference per unit over blocks; the order of the units does not matter.

    Args:
        candidate: (n,) value of each unit under the candidate.
        reference: (n,) value of the same units under the reference.
        blocks: (n,) number of the block a unit belongs to.
        replicates: how many resamples.
        seed: of the resampling, so that a repeat gives the same bounds.

    Raises:
        NothingCompared: there are no units, or they lie in a single block.
    """
    if not len(candidate) == len(reference) == len(blocks):
        raise NothingCompared(f"{len(candidate)} units against {len(reference)}: these are not pairs")
    if len(candidate) == 0:
        raise NothingCompared("no unit was compared")
    _, inverse = np.unique(blocks, return_inverse=True)
    size = np.bincount(inverse)
    if len(size) < 2:
        raise NothingCompared(f"{len(candidate)} units lie in one block: no spread can be told from it")
    change = np.bincount(inverse, weights=candidate - reference)
    sums = np.column_stack([change, size.astype(np.float64)])
    cells, counts = np.unique(sums, axis=0, return_counts=True)
    drawn = _replicates(cells, counts, replicates, seed)
    return PairedDifference(
        difference=float(change.sum() / size.sum()),
        candidate=float(candidate.mean()),
        reference=float(reference.mean()),
        units=len(candidate),
        blocks=len(size),
        replicates=np.sort(drawn),
    )


def loss_p_value(lost: int, won: int) -> float:
    """Exact one-sided McNemar test: the chance of at least `lost` losses among the changed pairs if none is likelier.

    McNemar (1947), the binomial form.
    """
    if lost == 0:
        return 1.0
    from scipy.special import bdtrc

    return float(bdtrc(lost - 1, lost + won, 0.5))


def holm(p_values: list[float]) -> list[float]:
    """Adjust p-values for having looked at all of them (Holm, 1979); the order is kept."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _replicates(
    cells: NDArray[np.float64], counts: NDArray[np.int64], replicates: int, seed: int
) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    blocks, share = int(counts.sum()), counts / counts.sum()
    at_once = max(1, _CELLS_AT_ONCE // len(cells))
    parts = []
    for start in range(0, replicates, at_once):
        drawn = rng.multinomial(blocks, share, size=min(at_once, replicates - start))
        parts.append((drawn @ cells[:, 0]) / (drawn @ cells[:, 1]))
    return np.concatenate(parts)


def _expanded(tail: float, blocks: int) -> float:
    """The tail at which the percentile bootstrap of few blocks covers as asked (Hesterberg 2015, section 5.2)."""
    from scipy.special import ndtr, stdtrit

    wide = np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 1 - tail)
    return float(ndtr(-wide))
