"""Report of payments scored and alerts raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import counted, stage_report
from mlcost_pipeline.reports.pictures import lines_over_days
from mlcost_pipeline.reports.values import Cell, show, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.inference.predict import PredictResult
    from mlcost_pipeline.settings import Settings


def predictions_report(made: PredictResult, settings: Settings) -> Document:
    """How many payments were scored, and how many alerts that made of the capacity there is."""
    capacity = settings.model(made.model).alerts_per_day
    scored = [day for day in made.days if day.state == "scored"]
    before = sum(day.state == "said_before" for day in made.days)
    kept = f", {counted(before, 'day')} said before and left as they are" if before else ""
    rows: list[list[Cell]] = [
        [day.day, day.state.replace("_", " "), day.transactions, day.alerted, _threshold(day.threshold),
         day.model_version or "none"]
        for day in made.days
    ]  # fmt: skip
    days = [day.day for day in made.days]
    doc = Document(
        title=f"Payments scored by {made.model}",
        summary=(
            f"{made.model}: {counted(made.transactions, 'payment')} from {show(made.start)} to before "
            f"{show(made.end)}, "
            f"{counted(made.alerted, 'alert')} raised of at most {capacity} a day{kept}, "
            f"{counted(len(made.empty_days), 'day')} without a payment."
        ),
        numbers=[
            Number("transactions", "payments", made.transactions),
            Number("alerts", "alerts", made.alerted, bound=f"at most {show_number(capacity)} a day"),
            Number("days_scored", "days scored now", len(scored)),
            Number("empty_days", "days without a payment", len(made.empty_days)),
        ],
        tables=[Table("Days", ["day", "state", "payments", "alerts", "score of the last alert", "version"], rows)],
        pictures=[
            lines_over_days(
                f"Payments a day, {made.model}", days, {"payments": [float(d.transactions) for d in made.days]}
            )
        ]
        if len(days) > 1
        else [],
        ids={"model_version": made.model_version},
    )
    return stage_report(doc, settings, model=made.model)


def _threshold(score: float | None) -> Cell:
    return "no alert" if score is None else score
