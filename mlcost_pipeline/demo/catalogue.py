"""Items of the shop: ids with leading zeros, themes, popularity, some introduced late and some withdrawn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.demo.files import write_parquet
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.tables import TEXT, TIME

THEMES = 10
_NEVER = 10**6


@dataclass(frozen=True)
class Catalogue:
    """Items by number: id, theme, log popularity, first and last day on sale, and the item that usually follows."""

    ids: list[str]
    theme: NDArray[np.int64]
    log_popularity: NDArray[np.float64]
    introduced: NDArray[np.int64]
    withdrawn: NDArray[np.int64]
    successor: NDArray[np.int64]

    def on_sale(self, day: int) -> NDArray[np.bool_]:
        """(items,) whether each item can be bought on a day."""
        return (self.introduced <= day) & (day < self.withdrawn)


def make_catalogue(plan: Plan) -> Catalogue:
    """The catalogue of a plan. Successors form one cycle through each theme: what a sequence model can learn."""
    rng, n = plan.rng("catalogue"), plan.items
    theme = np.sort(rng.integers(0, THEMES, n))
    introduced = np.where(rng.random(n) < 0.12, rng.integers(1, max(2, int(plan.days * 0.8)), n), 0)
    leaves = rng.random(n) < 0.08
    withdrawn = np.where(leaves, introduced + rng.integers(max(2, plan.days // 4), max(3, plan.days), n), _NEVER)
    withdrawn = np.where(withdrawn < plan.days, withdrawn, _NEVER)  # nothing of the future is in the catalogue's file
    successor = np.arange(n)
    for number in range(THEMES):
        members = rng.permutation(np.flatnonzero(theme == number))
        successor[members] = np.roll(members, -1)
    ids = [f"{42 + 7 * k:05d}" for k in range(n)]
    return Catalogue(ids, theme, rng.normal(0, 0.8, n), introduced, withdrawn, successor)


def write_items(shop: Path, plan: Plan, catalogue: Catalogue) -> Path:
    """The catalogue as the shop exports it: one Parquet file."""
    valid_to = [plan.midnight(int(day)) if day < _NEVER else None for day in catalogue.withdrawn]
    rows = pa.table(
        {
            "sku": pa.array(catalogue.ids, TEXT),
            "listed": pa.array([plan.opening(int(day)) for day in catalogue.introduced], TIME),
            "delisted": pa.array(valid_to, TIME),
            "details": pa.array([json.dumps({"theme": f"theme-{t}"}) for t in catalogue.theme.tolist()], TEXT),
        }
    )
    return write_parquet(shop / "data" / "items.parquet", rows)
