"""The seven questions to each model, and the lever to pull first."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.cost.books import books, left_out
from mlcost_pipeline.levers.plan import plan
from mlcost_pipeline.levers.question import Answer
from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import dressed, listed
from mlcost_pipeline.reports.stages.levers import plan_sentence, plan_table
from mlcost_pipeline.reports.values import Cell, Quantity
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "What to do next, by the lever plan"


def lever_plan(warehouse: Warehouse, settings: Settings) -> Document:
    """The plan of each model, the trials that it rests on, and the levers in force."""
    plans = {model: _plan(warehouse, settings, model) for model in settings.models}
    answers = [answer for found in plans.values() for answer in found]
    doc = Document(
        title=TITLE,
        summary=listed([plan_sentence(m, found, settings) for m, found in plans.items()], "no model is configured")
        + ".",
        numbers=[
            Number("levers_to_pull", "levers to pull", sum(a.verdict == "pull" for a in answers)),
            Number("levers_to_leave", "levers to leave", sum(a.verdict == "leave" for a in answers)),
            Number("questions_open", "questions open", sum(a.verdict in ("not_shown", "not_yet") for a in answers)),
        ],
        tables=[plan_table(plans, settings), _trials(warehouse, settings), _applied(warehouse, settings)],
        notes=[
            "The questions are asked in their order: a saving is promised only where those before it are settled.",
            *(f"{said}." for said in left_out(books(warehouse, settings.currency), settings)),
        ],
    )
    return dressed(doc, settings)


def _plan(warehouse: Warehouse, settings: Settings, model: str) -> list[Answer]:
    """The plan from what is on record; nothing is tried from here."""
    return plan(warehouse, settings, model, may_try=False)


def _trials(warehouse: Warehouse, settings: Settings) -> Table:
    rows: list[list[Cell]] = [
        [row["model"], row["lever"].replace("_", " "), row["verdict"], _money(row["cost_before"], settings),
         _money(row["cost_after"], settings), row["outcome_before"], row["outcome_after"], row["difference_low"],
         row["difference_high"], row["reason"], row["trial_id"]]
        for row in warehouse.rows("lever_trials")
    ]  # fmt: skip
    columns = ["model", "lever", "verdict", "cost before", "cost after", "outcome before", "outcome after",
               "difference, low", "difference, high", "why", "trial"]  # fmt: skip
    return Table("Trials", columns, rows, empty="no lever was tried yet")


def _applied(warehouse: Warehouse, settings: Settings) -> Table:
    found = sorted(warehouse.rows("lever_ledger"), key=lambda row: (row["applied_at"], row["lever"]), reverse=True)
    rows: list[list[Cell]] = [
        [row["model"], row["lever"].replace("_", " "), row["applied_at"], _money(row["promised"], settings),
         _money(row["realised"], settings), row["reverted_at"] or "in force", row["reason"] or ""]
        for row in found
    ]  # fmt: skip
    columns = ["model", "lever", "applied (UTC)", "promised", "realised", "reverted (UTC)", "reason"]
    return Table("Levers pulled", columns, rows, empty="no lever was pulled yet")


def _money(amount: Decimal | None, settings: Settings) -> Cell:
    return "not known" if amount is None else Quantity(amount, settings.currency)
