"""What became of the money that runs cost: kept, redone, failed, interrupted, lost, or never shipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.slots import from_units, money_sum, to_units
from mlcost_pipeline.warehouse import Warehouse

NEVER_SHIPPED, SUPERSEDED, REDONE, NO_RUN = "never_shipped", "superseded", "redone", "no_run"


def run_outcomes(warehouse: Warehouse, runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The outcome of each run: its status, except that work which nobody uses is named as that.

    A retrain that succeeded is `never_shipped` when its job has ended and its version was not promoted.
    """
    promoted = {
        row["job_id"] for row in warehouse.rows("model_versions", where="promoted_at IS NOT NULL", columns=["job_id"])
    }
    ended = {row["job_id"] for row in warehouse.rows("jobs", where="state <> 'open'", columns=["job_id"])}
    found = {}
    for run in runs:
        outcome = run["status"]
        if run["superseded_by"] is not None:
            outcome = SUPERSEDED
        elif outcome == "succeeded" and run["purpose"] == "retrain" and run["job_id"] in ended - promoted:
            outcome = NEVER_SHIPPED
        found[str(run["run_id"])] = str(outcome)
    return found


def by_run_outcome(
    parts: Sequence[tuple[str | None, Decimal]], outcomes: Mapping[str, str], runs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Decimal]:
    """Money by outcome; of a run that repeated steps, the repeated share is `redone`. The sum is the sum of `parts`."""
    groups: dict[str, list[Decimal]] = {}
    for run_id, amount in parts:
        outcome = outcomes.get(run_id, NO_RUN) if run_id is not None else NO_RUN
        redone = _redone(amount, runs.get(run_id or "", {})) if outcome == "succeeded" else 0
        if redone:
            groups.setdefault(REDONE, []).append(from_units(redone))
        groups.setdefault(outcome, []).append(from_units(to_units(amount) - redone))
    return {name: money_sum(amounts) for name, amounts in sorted(groups.items())}


def _redone(amount: Decimal, run: Mapping[str, Any]) -> int:
    done, redone = run.get("steps_done"), run.get("steps_redone")
    return to_units(amount) * min(redone, done) // done if done and redone else 0
