"""What a question is asked with, and what it answers: the small interface all levers share.

A lever is a module with ``NAME``, ``QUESTION`` and ``ask(context) -> Answer``, named in ``questions.ORDER``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Literal, Protocol

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.unit_cost import UnitCost
from mlcost_pipeline.settings import ModelSettings, Settings
from mlcost_pipeline.warehouse import Warehouse

Verdict = Literal["pull", "leave", "not_shown", "not_yet"]


@dataclass(frozen=True)
class Context:
    """One model, its clock, and the month whose money is asked about (None: no bill and no run knows this model).

    `may_try`: whether a question may run its experiment; otherwise it answers from the trials on record.
    """

    warehouse: Warehouse
    settings: Settings
    clock: Clock
    model: str
    month: UnitCost | None
    may_try: bool = True

    @property
    def config(self) -> ModelSettings:
        return self.settings.model(self.model)


@dataclass(frozen=True)
class Effect:
    """What a lever does to the outcome: difference and one-sided 95 % bounds, as shares of the compared units."""

    metric: str
    difference: float
    low: float
    high: float
    margin: float


@dataclass(frozen=True)
class Answer:
    """The answer to one question. Savings are money a month in `currency`; None where they are not known.

    `facts` are the numbers the sentence rests on, each measured or read from a table.
    """

    lever: str
    question: str
    verdict: Verdict
    sentence: str
    saving_low: Decimal | None = None
    saving_high: Decimal | None = None
    currency: str | None = None
    effect: Effect | None = None
    trial_id: str | None = None
    facts: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values; money as text."""
        plain = asdict(self)
        for name in ("saving_low", "saving_high"):
            plain[name] = None if plain[name] is None else str(plain[name])
        return plain

    def waiting_for(self, lever: str) -> Answer:
        """The same facts, but an earlier question is open, so nothing is promised yet."""
        text = f"Not yet: the question {lever} comes first and is open. Known so far: {self.sentence}"
        return replace(self, verdict="not_yet", sentence=text, saving_low=None, saving_high=None)


class Question(Protocol):
    """A lever's module."""

    NAME: str
    QUESTION: str

    def ask(self, context: Context) -> Answer: ...
