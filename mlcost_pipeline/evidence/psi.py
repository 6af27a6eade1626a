"""The population stability index on the reference's own quantiles, and what it reads where nothing drifted.

PSI = Σ (p_i − q_i)·ln(p_i / q_i) over bins, p the current and q the reference share. Bins are quantiles of the
reference, so the verdict does not depend on a feature's unit, on row order or on one wild value. Without drift
PSI ≈ (1/n_ref + 1/n_cur)·χ²_{B−1} (B. Yurdakul, "Statistical Properties of Population Stability Index", Western
Michigan University, 2018; B. Yurdakul and J. Naranjo, Journal of Risk Model Validation 14(4), 2020).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 10
SMOOTHING = 0.5

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def psi(reference: Counts, current: Counts) -> float:
    """PSI of two count vectors over the same bins; half a count is added to each bin."""
    q = (reference + SMOOTHING) / (reference.sum() + SMOOTHING * len(reference))
    p = (current + SMOOTHING) / (current.sum() + SMOOTHING * len(current))
    return float(np.sum((p - q) * np.log(p / q)))


def null_bound(reference_rows: int, current_rows: int, bins: int, quantile: float) -> float:
    """What PSI stays below with probability `quantile` if nothing drifted, at these sample sizes."""
    from scipy.special import gammaincinv

    if bins < 2:
        return 0.0
    chi_square = 2.0 * float(gammaincinv((bins - 1) / 2.0, quantile))
    return (1.0 / reference_rows + 1.0 / current_rows) * chi_square


def quantile_edges(reference: Floats, bins: int = BINS) -> Floats:
    """Inner edges of at most `bins` bins at the reference's quantiles; equal edges are one (discrete columns).

    A value equal to an edge belongs to the bin below it. The largest reference value that is no edge of its own
    keeps a bin, so a column of two values has two bins.
    """
    inner = np.quantile(reference, np.linspace(0, 1, bins + 1)[1:-1], method="inverted_cdf")
    edges = np.unique(inner)
    return np.asarray(edges[edges < reference.max()], dtype=np.float64)


def bin_counts(values: Floats, edges: Floats) -> Counts:
    """Rows in each of the ``len(edges) + 1`` bins."""
    places = np.searchsorted(edges, values, side="left")
    return np.bincount(places, minlength=len(edges) + 1).astype(np.int64)
