"""Question 6: is the hardware busy? Measured busy time against billed time, by stage; what is unknown stays unknown."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.cost.unit_cost import UnitCost
from mlcost_pipeline.cost.utilisation import Utilisation
from mlcost_pipeline.levers.question import Answer, Context, Verdict
from mlcost_pipeline.levers.spending import facts_of, stage_cost

NAME = "busy_hardware"
QUESTION = "Is the hardware busy while it is billed?"
BUSY_ENOUGH = 0.7
COVERED_ENOUGH = 0.5


def ask(context: Context) -> Answer:
    """Divide busy by billed hours; the idle money is an upper bound of what any remedy can save."""
    month = context.month
    stages = {} if month is None else {name: u for name, u in month.utilisation.items() if u.billed_hours > 0}
    if month is None or not stages:
        return Answer(NAME, QUESTION, "not_shown", "No bill in force charges an hour to a run of this model.")
    known = {name: u for name, u in stages.items() if u.share is not None}
    idle = sum((_idle_money(month, name, u) for name, u in known.items()), Decimal(0))
    busy = all((u.share or 0.0) >= BUSY_ENOUGH and u.coverage >= COVERED_ENOUGH for u in stages.values())
    verdict: Verdict = "leave" if busy else "not_shown"
    told = "; ".join(_told(name, u) for name, u in stages.items())
    sentence = f"In {month.period}: {told}."
    if known:
        sentence += (
            f" Measured idle time cost at most {idle:.2f} {month.currency}; how much of it fewer replicas or larger "
            "batches would save has not been tried."
        )
    facts = {name: {**vars(u), "share": u.share, "coverage": u.coverage} for name, u in stages.items()}
    return Answer(NAME, QUESTION, verdict, sentence, currency=month.currency, facts={**facts_of(month), **facts})


def _idle_money(month: UnitCost, stage: str, found: Utilisation) -> Decimal:
    """Money of the measured hours that were not busy."""
    idle = max(0.0, 1 - (found.share or 0.0)) * found.coverage
    return stage_cost(month.by_stage, stage) * Decimal(repr(idle))


def _told(stage: str, found: Utilisation) -> str:
    if found.share is None:
        return f"{stage} unknown (nobody measured its {found.billed_hours:.1f} billed hours)"
    how = ", ".join(found.metrics)
    text = f"{stage} busy {found.share:.0%} of {found.sampled_hours:.1f} billed hours ({how})"
    return text if found.coverage > 0.995 else f"{text}, {1 - found.coverage:.0%} unknown"
