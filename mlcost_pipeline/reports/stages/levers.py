"""Report of the lever plan: seven questions in their order, each with its answer and what it would save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from textwrap import shorten
from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import counted, stage_report, summed
from mlcost_pipeline.reports.values import Cell, Quantity, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.levers.question import Answer
    from mlcost_pipeline.settings import Settings

VERDICTS = {"pull": "pull", "leave": "leave", "not_shown": "not shown", "not_yet": "not yet"}


def lever_plan_report(model: str, answers: Sequence[Answer], settings: Settings) -> Document:
    """What to pull first, what that saves a month and what it does to the outcome."""
    pulled = [answer for answer in answers if answer.verdict == "pull"]
    low = summed([answer.saving_low for answer in pulled if answer.saving_low is not None])
    high = summed([answer.saving_high for answer in pulled if answer.saving_high is not None])
    currency = next((answer.currency for answer in answers if answer.currency), settings.currency)
    known = any(answer.saving_low is not None for answer in pulled)
    doc = Document(
        title=f"Levers for {model}",
        summary=plan_sentence(model, answers, settings) + ".",
        numbers=[
            Number("levers_to_pull", "levers to pull", len(pulled)),
            Number("saving_low", "saving a month, at least", low if known else None, currency),
            Number("saving_high", "saving a month, at most", high if known else None, currency),
            Number("questions_open", "questions open", sum(a.verdict in ("not_shown", "not_yet") for a in answers)),
        ],
        tables=[plan_table({model: answers}, settings)],
    )
    return stage_report(doc, settings, model=model)


def plan_sentence(model: str, answers: Sequence[Answer], settings: Settings) -> str:
    """The first lever to pull with its saving, or that there is none and which question is open first."""
    if not answers:
        return f"{model}: no question was asked yet"
    pull = next((answer for answer in answers if answer.verdict == "pull"), None)
    if pull is not None:
        return f"{model}: pull {_name(pull)} first, which saves {_saving(pull, settings)} a month ({_said(pull)})"
    waiting = next((answer for answer in answers if answer.verdict in ("not_shown", "not_yet")), None)
    if waiting is None:
        return (
            f"{model}: leave all {counted(len(answers), 'lever')} as they are; the first answer is: {_said(answers[0])}"
        )
    return f"{model}: no lever to pull yet; {_name(waiting)} is {VERDICTS[waiting.verdict]} ({_said(waiting)})"


def plan_table(plans: Mapping[str, Sequence[Answer]], settings: Settings) -> Table:
    """All answers of all models, in the order of the questions."""
    rows: list[list[Cell]] = []
    for model, answers in plans.items():
        for number, answer in enumerate(answers, start=1):
            currency = answer.currency or settings.currency
            effect = answer.effect
            rows.append([
                model, number, answer.question, VERDICTS.get(answer.verdict, answer.verdict), answer.sentence,
                _cell(answer.saving_low, currency), _cell(answer.saving_high, currency),
                Quantity(effect.difference, "share") if effect else "not measured",
                Quantity(effect.low, "share") if effect else "not measured",
            ])  # fmt: skip
    columns = ["model", "no.", "question", "answer", "why", "saves a month, at least", "at most", "outcome",
               "its lower bound"]  # fmt: skip
    return Table("The seven questions", columns, rows, empty="no question was asked yet")


def _cell(amount: Decimal | None, currency: str) -> Cell:
    return "not known" if amount is None else Quantity(amount, currency)


def _name(answer: Answer) -> str:
    return answer.lever.replace("_", " ")


def _said(answer: Answer) -> str:
    """The answer's sentence, cut where it gets long; the table has all of it."""
    return shorten(answer.sentence, 170, placeholder=" …").rstrip(".")


def _saving(answer: Answer, settings: Settings) -> str:
    currency = answer.currency or settings.currency
    if answer.saving_low is None and answer.saving_high is None:
        return "an amount not known yet"
    if answer.saving_low == answer.saving_high or answer.saving_high is None:
        return show_number(answer.saving_low, currency)
    return f"{show_number(answer.saving_low, currency)} to {show_number(answer.saving_high, currency)}"
