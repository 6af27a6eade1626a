"""PyTorch made repeatable: a seed that leaks nowhere, a fixed number of threads, snapshots that stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

INFERENCE_BLOCK = 64
"""Rows per forward pass. Always padded to this many, so that a row's result never depends on its company."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from ``seed`` alone inside; the process's own generator goes on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """``count`` threads and only deterministic kernels inside, then as before."""
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(max(1, count))
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(strict)


def snapshot(value: Any) -> Any:
    """A copy of a nested state that later steps do not change."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [snapshot(inner) for inner in value]
    return value
