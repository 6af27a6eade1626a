"""Question 4: can the model be quantized or distilled? What is at stake, until an engine has been measured here.

Whether a smaller number format is faster at all depends on the machine, so nothing is promised before a trial.
"""

from __future__ import annotations

from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.levers.question import Answer, Context
from mlcost_pipeline.levers.spending import stage_cost

NAME = "quantize"
QUESTION = "Can the model be quantized or distilled to a cheaper one?"
TREES = ("forest",)


def ask(context: Context) -> Answer:
    """Say what the serving share of the bill is, and that no engine has been measured."""
    held = incumbent(context.warehouse, context.model)
    if held is None:
        return Answer(NAME, QUESTION, "not_yet", "No model is in production yet.")
    if held.family in TREES:
        return Answer(
            NAME, QUESTION, "leave",
            f"{held.version} is made of trees: it compares numbers and multiplies none, int8 has nothing to speed up.",
        )  # fmt: skip
    month = context.month
    if month is None:
        stake = "no bill in force names its serving"
    else:
        serving = stage_cost(month.by_stage, "serving")
        stake = f"serving was {serving:.2f} of {month.total:.2f} {month.currency} in {month.period}"
    size = sum(file.stat().st_size for file in held.folder(context.warehouse).rglob("*") if file.is_file())
    sentence = f"No smaller form of {held.version} ({size} bytes) has been measured on this machine; {stake}."
    return Answer(NAME, QUESTION, "not_shown", sentence, facts={"artefact_bytes": size})
