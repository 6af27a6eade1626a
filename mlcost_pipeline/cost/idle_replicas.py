"""Serving capacity that did nothing: what nobody held of a resource that served, and what a service held and left idle.

The first is the ledger's, the second needs a measurement of the service: where nobody measured it is unknown, never
idle and never busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import Ask
from mlcost_pipeline.cost.slots import from_units, money_sum, to_units


@dataclass(frozen=True)
class IdleReplica:
    """A resource that served in a month, or was left on after it, and what it cost; models by name.

    `unheld` is the part that no run held, `unused` what services held of it and were measured to leave idle (a lower
    bound where a part was not measured, None where nothing was), `unmeasured` what they cost while nobody measured.
    """

    period: str
    resource_id: str
    models: tuple[str, ...]
    spent: Decimal
    unheld: Decimal
    unused: Decimal | None
    unmeasured: Decimal
    provisional: bool

    @property
    def idle(self) -> Decimal:
        """All that is known to have stood idle."""
        return money_sum((self.unheld, self.unused or Decimal(0)))


# A service that runs still serves now. Its last month is that of its last moment, for intervals are half open. What
# served and is billed on, while no run holds it, was left on: it counts for the models that it served last. Times are
# microseconds of a device, so that shares of money stay exact; busy time beyond the hold does not count.
_IDLE = """
WITH holds AS (SELECT r.run_id, lower(o.resource_id) AS resource, r.model, o.start, o.share_milli,
    greatest(o.start, coalesce(o."end", r.ended_at, ?)) AS until, r.busy_seconds, r.busy_coverage
  FROM run_records r JOIN occupancy o USING (run_id) WHERE r.stage = 'serving' AND r.purpose = 'online'),
serving AS (SELECT resource, strftime(m.month, '%Y-%m') AS period, list_sort(list(DISTINCT model)) AS models FROM holds,
    unnest(generate_series(date_trunc('month', start), greatest(start, until - INTERVAL 1 MICROSECOND),
      INTERVAL 1 MONTH)) AS m(month) GROUP BY ALL),
services AS (SELECT run_id, sum((epoch_us(until) - epoch_us(start)) * share_milli // 1000)::BIGINT AS held,
    any_value(round(busy_seconds * 1e6)::BIGINT) AS busy, any_value(coalesce(busy_coverage, 0.0)) AS coverage
  FROM holds GROUP BY run_id),
parts AS (SELECT l.period, s.resource_id, lower(s.resource_id) AS resource, l.run_id,
    l.method = 'idle' OR coalesce(l.reason = 'no_run_at_that_time', false) AS unheld, sum(l.effective) AS paid
  FROM cost_ledger l JOIN billing_slots s USING (delivery_id, slot_id)
  WHERE lower(s.resource_id) IN (SELECT resource FROM serving) GROUP BY ALL),
left_on AS (SELECT p.resource, p.period, arg_max(v.models, v.period) AS models
  FROM (SELECT resource, period FROM parts GROUP BY ALL HAVING count(run_id) = 0) p
  JOIN serving v ON v.resource = p.resource AND v.period < p.period
  ANTI JOIN serving now ON now.resource = p.resource AND now.period = p.period GROUP BY ALL),
months AS (FROM serving UNION ALL BY NAME FROM left_on)
SELECT v.period, coalesce(min(p.resource_id) OVER (PARTITION BY v.period, v.resource), v.resource) AS resource_id,
  v.models, p.unheld, p.paid, x.run_id IS NOT NULL AS service, x.held, least(x.busy, x.held) AS busy,
  CASE WHEN x.busy IS NULL THEN 0 ELSE floor(x.held * least(1.0, x.coverage))::BIGINT END AS measured
FROM months v LEFT JOIN parts p USING (resource, period) LEFT JOIN services x USING (run_id)
ORDER BY v.period DESC, v.resource, p.run_id
"""


def idle_replicas(ask: Ask, now: datetime, may_change: frozenset[str]) -> tuple[list[IdleReplica], list[str]]:
    """Every resource and month of serving, newest month first, and what is not known of them, in words.

    Args:
        may_change: months whose bills are open.
    """
    rows = ask(_IDLE, [now], ["cost_ledger", "billing_slots", "run_records", "occupancy"]).to_pylist()
    months: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        months.setdefault((row["period"], row["resource_id"]), []).append(row)
    billed = {key: parts for key, parts in months.items() if parts[0]["paid"] is not None}
    found = [_replica(key, parts, key[0] in may_change) for key, parts in billed.items()]
    return found, list(_unknown(found, len(months)))


def _replica(key: tuple[str, str], parts: Sequence[Mapping[str, Any]], provisional: bool) -> IdleReplica:
    services = [part for part in parts if part["service"] and not part["unheld"]]
    measured = [part for part in services if part["measured"] and part["held"]]
    return IdleReplica(
        *key,
        tuple(parts[0]["models"]),
        money_sum(part["paid"] for part in parts),
        money_sum(part["paid"] for part in parts if part["unheld"]),
        money_sum(_share(part, max(0, part["measured"] - part["busy"])) for part in measured) if measured else None,
        money_sum(_share(part, part["held"] - part["measured"]) if part["held"] else part["paid"] for part in services),
        provisional,
    )


def _share(part: Mapping[str, Any], time: int) -> Decimal:
    """The part's amount for some of the time held, to the unit below."""
    return from_units(to_units(part["paid"]) * time // part["held"])


def _unknown(found: Sequence[IdleReplica], months: int) -> Iterator[str]:
    if months > len(found):
        yield (
            f"Idle time is told by bills, and {months - len(found)} of {months} months of a resource that served are "
            "in no ledger."
        )
    unmeasured = sum(each.unmeasured > 0 for each in found)
    if unmeasured:
        yield (
            f"How busy services were was not measured, or not all the time, in {unmeasured} of {len(found)} months of "
            "a resource that served; what they held then is not called idle."
        )
