"""The ledgers in force, summed for display: by account, period, currency, model, stage, method and reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa

from mlcost_pipeline.reports.dress import summed
from mlcost_pipeline.warehouse import Warehouse

_KEYS = ["account", "period", "currency", "model", "stage", "method", "reason"]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Spend:
    """A sum of ledger parts that are equal in all that is shown; `parts` is how many."""

    account: str
    period: str
    currency: str
    model: str | None
    stage: str | None
    method: str
    reason: str | None
    billed: Decimal
    effective: Decimal
    parts: int

    @property
    def attributed(self) -> bool:
        """Whether this money has a model."""
        return self.model is not None


def read_spend(warehouse: Warehouse) -> list[Spend]:
    """All ledgers in force, summed exactly, in a stable order."""
    found: list[Spend] = []
    for scope in warehouse.scopes("cost_ledger"):
        found += summarise(warehouse.read_version("cost_ledger", scope))
    return sorted(found, key=lambda s: tuple("" if getattr(s, key) is None else str(getattr(s, key)) for key in _KEYS))


def summarise(ledger: pa.Table) -> list[Spend]:
    """The parts of one ledger, summed exactly."""
    sums = ledger.group_by(_KEYS).aggregate([("billed", "sum"), ("effective", "sum"), ("part", "count")])
    return [
        Spend(
            **{key: row[key] for key in _KEYS},
            billed=row["billed_sum"],
            effective=row["effective_sum"],
            parts=row["part_count"],
        )
        for row in sums.to_pylist()
    ]


def by(spend: Iterable[Spend], key: Callable[[Spend], K]) -> dict[K, Decimal]:
    """Effective cost by a key, in the order in which keys appear."""
    groups: dict[K, list[Decimal]] = {}
    for entry in spend:
        groups.setdefault(key(entry), []).append(entry.effective)
    return {name: summed(values) for name, values in groups.items()}


def total(spend: Iterable[Spend]) -> Decimal:
    """Effective cost in all."""
    return summed([entry.effective for entry in spend])
