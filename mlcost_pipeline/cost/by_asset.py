"""Cost by asset and partition, of this pipeline and of any other Dagster project whose runs are on record."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.cost.books import asking, closed_books
from mlcost_pipeline.cost.run_outcomes import RUN_OUTCOMES
from mlcost_pipeline.cost.run_outcomes import TABLES as RUN_TABLES
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

_SPENT = f"""
WITH {RUN_OUTCOMES}
SELECT r.asset, r.partition, r.model, coalesce(r.source, 'mlcost') AS source, o.outcome,
  count(DISTINCT r.run_id) AS runs, l.currency, sum(l.effective) AS effective
FROM cost_ledger l JOIN run_records r USING (run_id) JOIN run_outcomes o USING (run_id) WHERE r.asset IS NOT NULL
GROUP BY ALL ORDER BY l.currency, effective DESC, r.asset, r.partition, o.outcome
"""


@dataclass(frozen=True)
class AssetCost:
    """Effective cost of the runs of one asset and partition that came out alike."""

    asset: str
    partition: str | None
    model: str
    source: str
    outcome: str
    runs: int
    currency: str
    effective: Decimal


def cost_by_asset(warehouse: Warehouse, settings: Settings, period: str | None = None) -> list[AssetCost]:
    """The dearest first, of one month or of all; the settings' currency before others, which are never added to it.

    Raises:
        Unreconciled: the parts of a ledger do not add up to its bill.
    """
    found = closed_books(warehouse, None, period)
    if not found:
        return []
    tables = [*dict.fromkeys(["cost_ledger", "run_records", *RUN_TABLES])]
    rows = asking(warehouse, found)(_SPENT, [], tables)
    costs = [AssetCost(**row) for row in rows.to_pylist()]
    return sorted(costs, key=lambda each: each.currency != settings.currency)
