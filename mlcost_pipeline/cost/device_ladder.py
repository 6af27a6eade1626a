"""The ladder of device time: billed ≥ allocated ≥ active ≥ kept, per model and stage, the denominator from the bill.

Allocated is the billed time that a run held; active is what was measured busy of it; kept is the active time of work
that was of use. A run without samples is unknown, and so is one of which nobody says how much was sampled: it counts
with no bound above, never as full (opencost#3900). Times are seconds of one device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mlcost_pipeline.cost.books import Ask, asking, books, closed, settled_months
from mlcost_pipeline.cost.run_months import run_months
from mlcost_pipeline.cost.run_outcomes import RUN_OUTCOMES
from mlcost_pipeline.cost.run_outcomes import TABLES as RUN_TABLES
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: Stage of billed time that names a model and no stage.
NO_STAGE = "no stage"


@dataclass(frozen=True)
class Ladder:
    """Device seconds of one model and stage in one month; `model` None is the whole bill, idle time and all.

    `measured` is the billed time of which it is known how busy it was; `active` and `kept` are what was found busy in
    it, and so lower bounds of the whole. `metrics` names how busy was measured. `waiting` is the allocated time that
    work is known to have waited for data, None where no run reports it. `rests_on` are the months whose bills have a
    say in it (runs may go on from one into another); those that may still change are `unsettled`.
    """

    period: str
    model: str | None
    stage: str | None
    billed: float
    allocated: float
    measured: float
    active: float
    kept: float
    metrics: tuple[str, ...]
    waiting: float | None = None
    rests_on: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()

    @property
    def provisional(self) -> bool:
        return bool(self.unsettled)

    @property
    def coverage(self) -> float:
        """The share of the billed time that was measured; what is left is unknown, not idle."""
        return min(1.0, self.measured / self.billed) if self.billed > 0 else 0.0

    @property
    def complete(self) -> bool:
        """Whether all billed time was measured, so that `active` and `kept` are more than lower bounds."""
        return self.billed > 0 and self.coverage > 1 - 1e-9

    @property
    def busy_low(self) -> float | None:
        """Active ÷ billed, taking what nobody measured as idle; None where nothing was billed."""
        return self.active / self.billed if self.billed > 0 else None

    @property
    def busy_high(self) -> float | None:
        """As :attr:`busy_low`, exactly, where everything was measured; None (unknown) where anything was not."""
        return self.busy_low if self.complete else None

    @property
    def sentence(self) -> str:
        """One line for a person: every rung in hours, and what is unknown named so."""
        who = "all billed devices" if self.model is None else f"{self.model}, {self.stage}"
        waited = "" if self.waiting is None else f" (of it {_hours(self.waiting)} waiting for data)"
        allocated = f"{_hours(self.allocated)} allocated{waited}"
        head = f"{who}, {self.period}: {_hours(self.billed)} device hours billed, {allocated}"
        months = " and ".join(self.unsettled)
        changes = f"; provisional: a bill of {months} is open or to come" if self.provisional else ""
        if self.measured <= 0 or self.busy_low is None:
            return f"{head}, active and kept unknown (nobody measured){changes}"
        least = "" if self.complete else "at least "
        known = "" if self.complete else f"; {self.coverage:.0%} of the billed time was measured"
        active = f"{least}{_hours(self.active)} active ({self.busy_low:.0%}, {', '.join(self.metrics)})"
        return f"{head}, {active}, {least}{_hours(self.kept)} kept{known}{changes}"


def ladders(
    warehouse: Warehouse, settings: Settings, *, model: str | None = None, period: str | None = None
) -> list[Ladder]:
    """Ladders of every month, model and stage that a bill in force charged device time to; months in order.

    Args:
        model: of this model only; otherwise each month begins with the ladder of its whole bill (`model` None).
        period: of this month only.

    Raises:
        Unreconciled: the parts of a bill do not add up to it.
    """
    every = books(warehouse, settings.currency)
    found = with_unsettled(ladders_of(asking(warehouse, closed(warehouse, every))), settled_months(every))
    return [
        ladder for ladder in found if model in (None, ladder.model) and period in (None, ladder.period)
    ]  # a run's time in one month depends on what other months were billed, so the choice comes after


def ladders_of(ask: Ask) -> list[Ladder]:
    """:func:`ladders` of all that `ask` can see."""
    tables = ["device_time", "occupancy", *RUN_TABLES]
    return [_ladder(row) for row in ask(f"WITH {RUN_OUTCOMES}, {_RUNGS}", [], tables).to_pylist()]


def with_unsettled(found: Iterable[Ladder], settled: frozenset[str]) -> list[Ladder]:
    """The ladders with those of their months that are not `settled`."""
    return [replace(each, unsettled=tuple(m for m in each.rests_on if m not in settled)) for each in found]


# Of a run that several bills charge, each has the part of its hold and of its busy time that goes with the time billed
# there. An open hold is as long as what was billed. Busy time beyond what was sampled of the hold (CPU time may be) is
# not counted: of a hold of which nobody says how much was sampled, none is.
_RUNGS = f"""{run_months("device_time").strip()},
held AS (
  SELECT run_id, CASE WHEN bool_and("end" IS NOT NULL) THEN
    sum(greatest(0, epoch_us("end") - epoch_us(start)) * (share_milli / 1000)) / 1e6 END AS seconds
  FROM occupancy GROUP BY run_id),
charged AS (
  SELECT period, model, coalesce(stage, 'no stage') AS stage, run_id, sum(billed_seconds) AS here
  FROM device_time GROUP BY ALL),
everywhere AS (SELECT run_id, sum(here) AS seconds FROM charged WHERE run_id IS NOT NULL GROUP BY run_id),
runs AS (
  SELECT e.run_id, coalesce(h.seconds, e.seconds) AS held, greatest(h.seconds, e.seconds) AS base,
    least(b.busy_seconds, coalesce(h.seconds, e.seconds) * least(1.0, coalesce(b.busy_coverage, 0.0))) AS busy,
    b.busy_metric,
    CASE WHEN b.busy_seconds IS NOT NULL THEN least(1.0, coalesce(b.busy_coverage, 0.0)) ELSE 0.0 END AS coverage,
    CASE WHEN b.data_wait_seconds IS NOT NULL AND b.ended_at > b.started_at THEN
      least(1.0, b.data_wait_seconds * 1e6 / (epoch_us(b.ended_at) - epoch_us(b.started_at))) END AS wait,
    CASE WHEN o.kept THEN 1 - coalesce(o.steps_again / o.steps_done, 0.0) ELSE 0.0 END AS useful, m.months
  FROM everywhere e LEFT JOIN held h USING (run_id) LEFT JOIN run_records b USING (run_id)
    LEFT JOIN run_outcomes o USING (run_id) LEFT JOIN run_months m USING (run_id)),
rungs AS (
  SELECT c.period, c.model, CASE WHEN c.model IS NOT NULL THEN c.stage END AS stage, c.here AS billed,
    coalesce(r.held * c.here / nullif(r.base, 0), 0.0) AS allocated,
    coalesce(c.here * r.coverage, 0.0) AS measured, coalesce(r.busy * c.here / nullif(r.base, 0), 0.0) AS active,
    coalesce(r.busy * c.here / nullif(r.base, 0) * r.useful, 0.0) AS kept,
    CASE WHEN r.wait IS NOT NULL THEN r.held * c.here / nullif(r.base, 0) * r.wait END AS waiting,
    CASE WHEN r.coverage > 0 AND c.here > 0 THEN r.busy_metric END AS metric,
    coalesce(r.months, [c.period]) AS months
  FROM charged c LEFT JOIN runs r USING (run_id)),
every AS (
  SELECT * FROM rungs WHERE model IS NOT NULL
  UNION ALL SELECT period, NULL, NULL, billed, allocated, measured, active, kept, waiting, metric, months FROM rungs)
SELECT period, model, stage, sum(billed) AS billed, sum(allocated) AS allocated, sum(measured) AS measured,
  sum(active) AS active, sum(kept) AS kept, sum(waiting) AS waiting,
  list_sort(list(DISTINCT metric) FILTER (metric IS NOT NULL)) AS metrics,
  list_sort(list_distinct(flatten(list(DISTINCT months)))) AS rests_on
FROM every GROUP BY ALL ORDER BY period, model NULLS FIRST, stage
"""


def _ladder(row: dict[str, Any]) -> Ladder:
    return Ladder(**{**row, "metrics": tuple(row["metrics"] or ()), "rests_on": tuple(row["rests_on"])})


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"
