"""What a month's ledgers say about each model and stage: money and device hours by pool, and units of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from mlcost_pipeline.cost.books import Book, asking, books, require_closed, versions_of
from mlcost_pipeline.cost.bridge_split import Factors
from mlcost_pipeline.cost.device_ladder import NO_STAGE, ladders_of
from mlcost_pipeline.cost.predictions import predictions_by_month
from mlcost_pipeline.cost.slots import to_units
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: Utilisation is taken as known where at least this share of the billed time was measured.
MEASURED = 0.9

# Money and hours of a run go by its pool, else its market, else the kind of what it held; of no run by the kind of the
# resource. Both sides look it up in the same way, so that money stands on its hours.
_POOLS = """
kinds AS (SELECT lower(resource_id) AS resource, max_by(kind, valid_from) AS kind FROM resources GROUP BY ALL),
held AS (SELECT run_id, min(k.kind) AS kind FROM device_time d JOIN kinds k ON k.resource = lower(d.resource_id)
  WHERE run_id IS NOT NULL GROUP BY run_id),
run_pools AS (SELECT r.run_id, r.job_id, coalesce(r.pool, r.market, h.kind) AS pool
  FROM run_records r LEFT JOIN held h USING (run_id))"""

_SPENT = f"""
WITH {_POOLS.strip()},
parts AS (
  SELECT period, model, stage, coalesce(reason, method) AS reason, run_id,
    CASE WHEN model IS NOT NULL AND run_id IS NULL THEN slot_id END AS slot_id, sum(effective) AS effective
  FROM cost_ledger GROUP BY ALL),
bare AS (SELECT slot_id, any_value(lower(resource_id)) AS resource FROM billing_slots
  WHERE slot_id IN (SELECT slot_id FROM parts) GROUP BY slot_id)
SELECT p.period, p.model, CASE WHEN p.model IS NOT NULL THEN coalesce(p.stage, '{NO_STAGE}') END AS stage,
  CASE WHEN p.model IS NULL THEN p.reason END AS reason,
  CASE WHEN p.model IS NOT NULL THEN coalesce(r.pool, k.kind, 'no pool') END AS pool,
  sum(p.effective) AS effective,
  list(DISTINCT coalesce(r.job_id, p.run_id)) FILTER (p.stage = 'training') AS jobs
FROM parts p LEFT JOIN run_pools r USING (run_id) LEFT JOIN bare b USING (slot_id) LEFT JOIN kinds k USING (resource)
GROUP BY ALL ORDER BY ALL
"""

_HOURS = f"""
WITH {_POOLS.strip()}
SELECT d.period, d.model, coalesce(d.stage, '{NO_STAGE}') AS stage,
  coalesce(r.pool, k.kind, 'no pool') AS pool, sum(round(d.billed_seconds * 1e6)::HUGEINT) AS micros
FROM device_time d LEFT JOIN run_pools r USING (run_id) LEFT JOIN kinds k ON k.resource = lower(d.resource_id)
WHERE d.model IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

_TABLES = ("cost_ledger", "device_time", "billing_slots", "run_records", "resources")


@dataclass(frozen=True)
class MonthFacts:
    """One month over all accounts: factors by (model, stage), money without a model by reason, in units (1e-18)."""

    period: str
    stages: Mapping[tuple[str, str], Factors]
    rest: Mapping[str, int]
    accounts: frozenset[str]
    provisional: bool
    open_deliveries: tuple[str, ...]

    @property
    def models(self) -> set[str]:
        return {model for model, _ in self.stages}

    def only(self, model: str) -> MonthFacts:
        """The same month with nothing but this model's money."""
        return replace(self, stages={key: each for key, each in self.stages.items() if key[0] == model}, rest={})

    @property
    def total(self) -> int:
        return sum(factors.total for factors in self.stages.values()) + sum(self.rest.values())


def month_facts(warehouse: Warehouse, settings: Settings, periods: Sequence[str]) -> list[MonthFacts]:
    """The facts of some months, each of which must have a bill that closes.

    Raises:
        BillError: there is no bill in the settings' currency for one of them.
        Unreconciled, NothingCompared: a bill's parts do not add up to it, or no ledger was built.
    """
    found = {period: books(warehouse, settings.currency, period) for period in periods}
    for period, of in found.items():
        if not of:
            raise BillError(f"{period}: no bill in {settings.currency} was taken over; see: mlcost bill status")
        for book in of:
            require_closed(warehouse, book)
    every = [book for of in found.values() for book in of]
    read = _Read.of(warehouse, settings, every)
    return [read.month(period, found[period]) for period in periods]


@dataclass(frozen=True)
class _Read:
    spent: Sequence[dict[str, Any]]
    timed: Sequence[dict[str, Any]]
    used: Mapping[tuple[str, str, str], Fraction]
    predictions: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings, every: Sequence[Book]) -> _Read:
        versions = {**versions_of(every), "billing_slots": [(book.scope, book.bill.delivery_id) for book in every]}
        spent = warehouse.query(_SPENT, tables=_TABLES, versions=versions).to_pylist()
        timed = warehouse.query(_HOURS, tables=_TABLES, versions=versions).to_pylist()
        used = {
            (ladder.period, str(ladder.model), str(ladder.stage)): Fraction(
                round(ladder.active * 1e6), round(ladder.measured * 1e6)
            )
            for ladder in ladders_of(asking(warehouse, every))
            if ladder.model is not None and ladder.coverage >= MEASURED and ladder.active > 0
        }
        models = sorted({row["model"] for row in spent if row["model"] is not None})
        return cls(spent, timed, used, {model: predictions_by_month(warehouse, settings, model) for model in models})

    def month(self, period: str, of: Sequence[Book]) -> MonthFacts:
        spent = [row for row in self.spent if row["period"] == period]
        keys = sorted({(row["model"], row["stage"]) for row in spent if row["model"] is not None})
        rest: dict[str, int] = {}
        for row in spent:
            if row["model"] is None:
                rest[row["reason"]] = rest.get(row["reason"], 0) + to_units(row["effective"])
        unsettled = tuple(book.bill.delivery_id for book in of if book.bill.state != "final")
        return MonthFacts(
            period,
            {key: self._factors(period, *key) for key in keys},
            rest,
            frozenset(book.bill.account for book in of),
            bool(unsettled),
            unsettled,
        )

    def _factors(self, period: str, model: str, stage: str) -> Factors:
        mine = (period, model, stage)
        spent = [row for row in self.spent if (row["period"], row["model"], row["stage"]) == mine]
        timed = [row for row in self.timed if (row["period"], row["model"], row["stage"]) == mine]
        count = None
        if stage == "training":
            count = len({job for row in spent for job in row["jobs"] or () if job is not None})
        elif stage == "serving":
            count = self.predictions[model].get(period, 0)
        return Factors(
            count,
            {row["pool"]: Fraction(int(row["micros"]), 3_600_000_000) for row in timed if row["micros"]},
            {row["pool"]: to_units(row["effective"]) for row in spent},
            self.used.get(mine),
        )
