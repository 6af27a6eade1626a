"""Runs whose work came to nothing, beside whole retrains that did, and idle capacity that serves nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.cost.books import Ask
from mlcost_pipeline.cost.run_costs import RunCosts
from mlcost_pipeline.cost.run_outcomes import REDONE, RUN_OUTCOMES, split_redone
from mlcost_pipeline.cost.run_outcomes import TABLES as RUN_TABLES
from mlcost_pipeline.cost.slots import money_sum


@dataclass(frozen=True)
class FruitlessRuns:
    """Runs of a model and stage that came to the same end: how many, and what they cost.

    `became` is a run's outcome (``failed``, ``cancelled``, ``lost``, ``interrupted``, ``repeated``, ``superseded``,
    ``never_shipped``), or ``redone``: the steps that runs of use did a second time. `unpriced` runs are not in `spent`.
    """

    model: str
    stage: str
    became: str
    runs: int
    spent: Decimal
    unpriced: int
    estimated: bool
    provisional: bool


@dataclass(frozen=True)
class IdlePool:
    """What no run held of a resource in a month, that does not serve."""

    period: str
    resource_id: str
    idle: Decimal
    provisional: bool


# An interrupted attempt of a job that is still open may yet be taken up: it is not over.
_FRUITLESS = f"""
WITH {RUN_OUTCOMES}
SELECT o.run_id, o.model, o.stage, o.outcome, o.job_id, o.kept, o.steps_again, o.steps_done FROM run_outcomes o
LEFT JOIN jobs j USING (job_id)
WHERE o.outcome <> 'running' AND (NOT o.kept OR o.steps_again IS NOT NULL)
  AND NOT (o.outcome = 'interrupted' AND coalesce(j.state = 'open', false))
ORDER BY o.model, o.stage, o.outcome, o.run_id
"""

_IDLE = """
SELECT l.period, s.resource_id, sum(l.effective) AS idle FROM cost_ledger l
JOIN billing_slots s USING (delivery_id, slot_id) WHERE l.method = 'idle' GROUP BY ALL
HAVING sum(l.effective) <> 0 ORDER BY l.period DESC, idle DESC, s.resource_id
"""


def fruitless_runs(ask: Ask, costs: RunCosts, told: Collection[str]) -> list[FruitlessRuns]:
    """By model, stage and end; runs of the jobs in `told`, which are told as retrains of no use, are not among them."""
    groups: dict[tuple[str, str, str], list[tuple[str, Decimal | None]]] = {}
    for row in ask(_FRUITLESS, [], RUN_TABLES).to_pylist():
        if row["job_id"] in told:
            continue
        amount = costs.of_runs([row["run_id"]]).amount
        became = row["outcome"]
        if row["kept"]:
            became = REDONE
            amount = None if amount is None else split_redone(amount, row["steps_again"], row["steps_done"])[1]
        groups.setdefault((row["model"], row["stage"], became), []).append((row["run_id"], amount))
    found = [_group(key, runs, costs) for key, runs in groups.items()]
    return sorted(found, key=lambda each: (-each.spent, each.model, each.stage, each.became))


def _group(key: tuple[str, str, str], runs: Sequence[tuple[str, Decimal | None]], costs: RunCosts) -> FruitlessRuns:
    known = [amount for _, amount in runs if amount is not None]
    paid = costs.of_runs([run for run, _ in runs])
    return FruitlessRuns(*key, len(runs), money_sum(known), len(runs) - len(known), paid.estimated, paid.provisional)


def unpriced_of(found: Sequence[FruitlessRuns]) -> Iterator[str]:
    """What is not known of them, in words."""
    unpriced, runs = sum(each.unpriced for each in found), sum(each.runs for each in found)
    if unpriced:
        yield f"What it cost is in no bill and has no price for {unpriced} of {runs} runs that came to nothing."


def idle_pools(ask: Ask, may_change: Collection[str], serving: Collection[tuple[str, str]]) -> list[IdlePool]:
    """Idle capacity as the ledgers have it, newest month and dearest first.

    Args:
        may_change: months of which a bill is open.
        serving: (month, resource id) of what serves, whose idle time is told with it.
    """
    known = {(period, resource.lower()) for period, resource in serving}
    rows = ask(_IDLE, [], ["cost_ledger", "billing_slots"]).to_pylist()
    return [
        IdlePool(row["period"], row["resource_id"], row["idle"], row["period"] in may_change)
        for row in rows
        if (row["period"], row["resource_id"].lower()) not in known
    ]
