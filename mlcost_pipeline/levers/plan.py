"""The plan: the seven questions asked in order, and none promised before those above it are settled."""

from __future__ import annotations

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.levers.question import Answer, Context
from mlcost_pipeline.levers.questions import questions
from mlcost_pipeline.levers.spending import month_of
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def plan(warehouse: Warehouse, settings: Settings, model: str, *, may_try: bool = True) -> list[Answer]:
    """Answers in order. A lever to pull that has not been pulled, or a missing precondition, keeps its question open.

    While a question is open, the ones below it are answered ``not_yet``, with what is known but without a saving: a
    saving is a share of what the levers above leave, and savings are never added up twice. With `may_try` false nothing
    is run: what was not tried yet is answered as not shown.
    """
    clock = model_clock(warehouse, settings, model)
    context = Context(warehouse, settings, clock, model, month_of(warehouse, settings, model), may_try)
    applied = _applied(warehouse, model)
    answers: list[Answer] = []
    open_lever: str | None = None
    for question in questions():
        answer = question.ask(context)
        answers.append(answer if open_lever is None else answer.waiting_for(open_lever))
        unsettled = answer.verdict == "not_yet" or (answer.verdict == "pull" and answer.lever not in applied)
        if open_lever is None and unsettled:
            open_lever = answer.lever
    return answers


def _applied(warehouse: Warehouse, model: str) -> set[str]:
    """Levers in force: the newest entry of each in the ledger of levers has not been reverted."""
    newest = {
        row["lever"]: row
        for row in sorted(
            warehouse.rows("lever_ledger", where="model = ?", params=[model]), key=lambda row: row["applied_at"]
        )
    }
    return {lever for lever, row in newest.items() if row["reverted_at"] is None}
