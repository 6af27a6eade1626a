"""Report of a decision: the verdict in its own words, how far each threshold is, and the money on both sides."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import stage_report
from mlcost_pipeline.reports.values import Cell, Quantity

if TYPE_CHECKING:
    from mlcost_pipeline.evidence.decision import Decision
    from mlcost_pipeline.settings import Settings

#: The numbers of a decision that are plotted over time; the table below them has all.
_PLOTTED = {"new_rows": "new labelled rows", "decay_low": "lower bound of decay", "largest_psi": "largest PSI",
            "age_days": "age of the model in days"}  # fmt: skip


def decision_report(decision: Decision, settings: Settings) -> Document:
    """A hold says as much as a retrain."""
    sentence = " ".join(decision.sentence.split())
    became = f" Not acted on: {decision.not_acted}." if decision.not_acted else ""
    currency = str(decision.money.get("currency") or settings.currency)
    doc = Document(
        title=f"Decision on {decision.model}",
        summary=f"{decision.verdict.capitalize()} ({decision.reason}): {sentence}{became}",
        numbers=[
            *(_distance(decision, name, label) for name, label in _PLOTTED.items()),
            *(Number(name, label, _money(decision, name), currency, bound=bound) for name, label, bound in _MONEY),
        ],
        tables=[_distances(decision), _sides(decision, currency)],
        ids={
            "decision_id": decision.decision_id,
            "evidence_id": decision.evidence_id,
            "policy_version": decision.policy_version,
            "review": decision.review,
            "act_id": decision.act_id,
        },
        notes=[f"Mode {decision.mode}; its job is {'open' if decision.job_open else 'not open'}."],
    )
    return stage_report(doc, settings, model=decision.model)


_MONEY = (
    ("retrain_cost", "cost of a retrain", None),
    ("decay_cost_per_day", "what the decay surely costs a day", "unknown without a worth of one outcome"),
)


def _money(decision: Decision, name: str) -> Decimal | None:
    amount = decision.money.get(name)
    return None if amount is None else Decimal(str(amount))


def _distance(decision: Decision, name: str, label: str) -> Number:
    found = decision.distances.get(name) or {}
    threshold = found.get("threshold")
    bound = None if threshold is None else f"threshold {Quantity(threshold)}"
    return Number(name, label, found.get("value"), bound=bound)


def _distances(decision: Decision) -> Table:
    rows: list[list[Cell]] = [
        [_PLOTTED.get(name, name.replace("_", " ")), found.get("value"), found.get("threshold"), found.get("distance")]
        for name, found in decision.distances.items()
    ]
    columns = ["what", "value", "threshold", "still apart"]
    return Table("Distance to each threshold", columns, rows, empty="no threshold was compared")


def _sides(decision: Decision, currency: str) -> Table:
    days = decision.money.get("horizon_days")
    over = f" over {days} days" if days else ""
    source = str(decision.money.get("retrain_cost_source") or "")
    rows: list[list[Cell]] = [
        ["retrain now", Quantity(_money(decision, "expected_if_retrain"), currency), source],
        ["hold", Quantity(_money(decision, "expected_if_hold"), currency), "the lower bound of decay, at its worth"],
    ]
    return Table(f"Expected cost of either choice{over}", ["choice", "cost", "from"], rows)
