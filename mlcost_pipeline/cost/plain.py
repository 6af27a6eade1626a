"""Cost per outcome from plain rows: no warehouse, no settings; for a notebook, or another team's pipeline.

The very rules of the ledger on whatever mappings are at hand, so that the answer is the one the ledger would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.attribution import attribute
from mlcost_pipeline.cost.bills.resource_ids import canonical
from mlcost_pipeline.cost.ratio import Ratio, per_count
from mlcost_pipeline.cost.run_outcomes import by_run_outcome
from mlcost_pipeline.cost.slots import Slot, from_units, money_sum, to_units
from mlcost_pipeline.cost.snapshot import Owner, build
from mlcost_pipeline.cost.utilisation import Utilisation, billed_time, utilisation
from mlcost_pipeline.errors import NothingCompared


@dataclass(frozen=True)
class PlainCost:
    """What a model cost (effective), by stage and by what became of its runs, and each outcome."""

    model: str
    total: Decimal
    by_stage: Mapping[str, Decimal]
    by_run_outcome: Mapping[str, Decimal]
    per_outcome: Ratio
    training: Utilisation
    serving: Utilisation


def cost_per_outcome(
    billing: Iterable[Mapping[str, Any]],
    runs: Iterable[Mapping[str, Any]],
    outcomes: Iterable[Mapping[str, Any]],
    model: str,
    *,
    resources: Iterable[Mapping[str, Any]] = (),
) -> PlainCost:
    """Spend of `model` divided by its outcomes.

    Args:
        billing: charges of one currency: ``effective``, ``charge_start``, ``charge_end``, ``category``,
            ``resource_id``; optionally ``billed`` and ``tags``.
        runs: ``run_id``, ``model``, ``stage``, ``resource_id``, ``started_at``, ``ended_at``; optionally
            ``share_milli`` (1000), ``status``, ``busy_seconds``, ``busy_metric``, ``steps_done``, ``steps_redone``.
        outcomes: ``model``, ``count``; optionally ``low`` and ``high``. Counts are added up, and so are bounds.
        resources: rows of the table ``resources``; without them no capacity is known and nothing is idle.

    Raises:
        NothingCompared: there is no charge at all.
    """
    slots = [_slot(number, row) for number, row in enumerate(billing)]
    if not slots:
        raise NothingCompared("cost per outcome: no charge was given, so nothing was attributed")
    records = [{"status": "succeeded", **_OPTIONAL, **run} for run in runs]
    holds = [_hold(run) for run in records]
    owners = {str(run["run_id"]): Owner(run["model"], run["stage"]) for run in records}
    known = [{"kind": "unknown", **row, "resource_id": canonical(row["resource_id"])} for row in resources]
    snapshot = build(owners, holds, known, {model, *(owner.model for owner in owners.values())})
    parts = [part for _, found in attribute(slots, snapshot) for part in found if part.model == model]
    amounts = [(part.run_id, part.stage, from_units(part.amounts["effective"])) for part in parts]
    counts = [row for row in outcomes if row["model"] == model]
    ours = {str(run["run_id"]): run for run in records if run["model"] == model}
    held = {str(hold["run_id"]): [hold] for hold in holds}
    billed = billed_time(slots, snapshot)
    total = money_sum(amount for *_, amount in amounts)
    return PlainCost(
        model=model,
        total=total,
        by_stage={
            stage: money_sum(amount for _, other, amount in amounts if (other or "no stage") == stage)
            for stage in sorted({stage or "no stage" for _, stage, _ in amounts})
        },
        by_run_outcome=by_run_outcome(
            [(run_id, amount) for run_id, _, amount in amounts],
            {run_id: str(run["status"]) for run_id, run in ours.items()},
            ours,
        ),
        per_outcome=per_count(total, *_bounds(counts)),
        training=utilisation([run for run in ours.values() if run["stage"] == "training"], billed, held),
        serving=utilisation([run for run in ours.values() if run["stage"] == "serving"], billed, held),
    )


_OPTIONAL = {"busy_seconds": None, "busy_metric": None, "busy_coverage": None, "steps_done": None, "steps_redone": None}


def _slot(number: int, row: Mapping[str, Any]) -> Slot:
    effective = to_units(row["effective"])
    billed = effective if row.get("billed") is None else to_units(row["billed"])
    resource = None if row["resource_id"] is None else canonical(row["resource_id"])
    tags = dict(row.get("tags") or {})
    return Slot(
        f"{number:012d}", resource, row["charge_start"], row["charge_end"], row["category"], tags, billed, effective
    )


def _hold(run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_id": str(run["run_id"]),
        "resource_id": canonical(run["resource_id"]),
        "start": run["started_at"],
        "end": run["ended_at"],
        "share_milli": run.get("share_milli", 1000),
    }


def _bounds(counts: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None, float | None]:
    if not counts:
        return None, None, None
    lows, highs = [row.get("low") for row in counts], [row.get("high") for row in counts]
    return (
        float(sum(row["count"] for row in counts)),
        None if None in lows else float(sum(low for low in lows if low is not None)),
        None if None in highs else float(sum(high for high in highs if high is not None)),
    )
