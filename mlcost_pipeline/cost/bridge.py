"""Why the bill moved between two months, split exactly: how often, how long, how busy, at what price, on what, by whom.

Only bills count, at effective cost, and only months that close. Per model and stage the change is split by
:func:`mlcost_pipeline.cost.bridge_split.split_change`; money without a model is compared reason by reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.bridge_facts import MonthFacts, month_facts
from mlcost_pipeline.cost.bridge_split import (
    COUNT,
    HOURS,
    MIX,
    OTHER,
    PRICE,
    UTILISATION,
    Factors,
    counts,
    measured,
    split_change,
    terms,
    whole_units,
)
from mlcost_pipeline.cost.bridge_words import factor_words, mix_words, moved_sentence
from mlcost_pipeline.cost.counted import month_bounds
from mlcost_pipeline.cost.deliveries import bills_in_force
from mlcost_pipeline.cost.slots import from_units
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.settings_faults import PLATFORM
from mlcost_pipeline.warehouse import Warehouse

NEW, VANISHED, UNATTRIBUTED = "new model", "vanished model", "unattributed"
_UNITS = {"training": ("number of trainings", "hours per training"), "serving": ("predictions", "hours per prediction")}


@dataclass(frozen=True)
class BridgeRow:
    """One cause: what moved, of which model and stage (None: of money without a model), and by how much money.

    `share` is that of the whole change, None where the bill did not move; `before` and `after` are the factor in words.
    """

    cause: str
    model: str | None
    stage: str | None
    amount: Decimal
    share: float | None
    before: str
    after: str

    @property
    def name(self) -> str:
        """The cause with whose it is."""
        return self.cause if self.model is None else f"{self.model}: {self.cause}"


@dataclass(frozen=True)
class Bridge:
    """From month `a` to month `b`: the rows add up to `difference` to the last unit, the largest first."""

    a: str
    b: str
    model: str | None
    currency: str
    rows: tuple[BridgeRow, ...]
    total_a: Decimal
    total_b: Decimal
    difference: Decimal
    notes: tuple[str, ...]
    provisional: bool
    open_deliveries: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One line for a person: how far the bill moved, and the largest cause first."""
        return moved_sentence(
            self.a, self.b, self.model, self.currency, self.total_a, self.total_b,
            [(row.name, row.before, row.after, row.amount) for row in self.rows], self.open_deliveries,
        )  # fmt: skip


def bridge(warehouse: Warehouse, settings: Settings, a: str, b: str, model: str | None = None) -> Bridge:
    """Why the bill, or the part of it that is `model`'s, moved from period `a` to `b` ("YYYY-MM").

    Trainings are the jobs that a month's bill charges: one that goes on over midnight of the month counts in both.

    Raises:
        BillError: there is no bill in the settings' currency for one of the months, or it is no month.
        Unreconciled, NothingCompared: a bill's parts do not add up to it, or none were compared.
    """
    for period in (a, b):
        _require_month(period)
    if model is not None and model not in settings.owners:
        settings.model(model)  # says which models there are
    before, after = month_facts(warehouse, settings, (a, b))
    if model is not None:
        before, after = before.only(model), after.only(model)
    causes = [*_causes(before, after)]
    units = whole_units([cause.amount for cause in causes])
    difference = after.total - before.total
    rows = [
        BridgeRow(
            cause.name, cause.model, cause.stage, from_units(amount),
            float(Fraction(amount, difference)) if difference else None, cause.before, cause.after,
        )
        for cause, amount in zip(causes, units, strict=True)
        if amount
    ]  # fmt: skip
    return Bridge(
        a, b, model, settings.currency,
        tuple(sorted(rows, key=lambda row: (-abs(row.amount), row.name))),
        from_units(before.total), from_units(after.total), from_units(difference),
        tuple(_notes(before, after)), before.provisional or after.provisional,
        before.open_deliveries + after.open_deliveries,
    )  # fmt: skip


def last_two_months(warehouse: Warehouse, settings: Settings) -> tuple[str, str] | None:
    """The last month that is over and has a bill, and the one before it; None unless both are over and have one."""
    now = model_clock(warehouse, settings, PLATFORM).now()
    over = sorted({period for _, period in bills_in_force(warehouse) if month_bounds(period)[1] <= now})
    if len(over) < 2 or month_bounds(over[-2])[1] != month_bounds(over[-1])[0]:
        return None
    return over[-2], over[-1]


@dataclass(frozen=True)
class _Cause:
    name: str
    model: str | None
    stage: str | None
    amount: Fraction
    before: str = ""
    after: str = ""


def _causes(before: MonthFacts, after: MonthFacts) -> Iterator[_Cause]:
    for model in sorted(before.models | after.models):
        if model not in before.models or model not in after.models:
            amount = after.only(model).total - before.only(model).total
            gone = model not in after.models
            yield _Cause(
                VANISHED if gone else NEW, model, None, Fraction(amount), *(("", "gone") if gone else ("none", ""))
            )
            continue
        for stage in sorted({s for m, s in (*before.stages, *after.stages) if m == model}):
            nothing = Factors(0 if stage in _UNITS else None)
            old, new = before.stages.get((model, stage), nothing), after.stages.get((model, stage), nothing)
            yield from _of_stage(model, stage, old, new)
    for reason in sorted(before.rest.keys() | after.rest.keys()):
        moved = after.rest.get(reason, 0) - before.rest.get(reason, 0)
        was, is_now = (f"{from_units(month.rest.get(reason, 0)):,.2f}" for month in (before, after))
        yield _Cause(f"{UNATTRIBUTED}: {reason.replace('_', ' ')}", None, None, Fraction(moved), was, is_now)


def _of_stage(model: str, stage: str, before: Factors, after: Factors) -> Iterator[_Cause]:
    parts, (old, new) = split_change(before, after), terms(before, after)
    counted, busy = stage in _UNITS and counts(before, after), measured(before, after)
    units, per_unit = _UNITS[stage] if counted else ("", f"hours of {stage}")
    hours = f"busy {per_unit}" if busy else per_unit
    yield _Cause(units, model, stage, parts[COUNT], *factor_words(old.count, new.count, "n"))
    yield _Cause(hours, model, stage, parts[HOURS], *factor_words(old.per_unit, new.per_unit, "h"))
    yield _Cause(
        f"utilisation of {stage}",
        model,
        stage,
        parts[UTILISATION],
        *factor_words(old.utilisation, new.utilisation, "%"),
    )
    yield _Cause(f"price of {stage}", model, stage, parts[PRICE], *factor_words(old.price, new.price, "rate"))
    yield _Cause(f"mix of {stage}", model, stage, parts[MIX], *mix_words(old.shares, new.shares))
    money = Fraction(before.without_hours), Fraction(after.without_hours)
    yield _Cause(f"{stage} without hours", model, stage, parts[OTHER], *factor_words(money[0], money[1], "money"))


def _notes(before: MonthFacts, after: MonthFacts) -> Iterator[str]:
    both = sorted(before.stages.keys() & after.stages.keys())
    pairs = [(key, before.stages[key], after.stages[key]) for key in both]
    blind = [" ".join(key) for key, old, new in pairs if (old.hours or new.hours) and not measured(old, new)]
    if blind:
        yield f"Utilisation is not known in both months, so its effect is inside the hours: {', '.join(blind)}."
    uncounted = [" ".join(key) for key, old, new in pairs if key[1] in _UNITS and not counts(old, new)]
    if uncounted:
        yield f"Hours were billed with nothing counted, so they are compared as hours: {', '.join(uncounted)}."
    for month, other in ((before, after), (after, before)):
        if alone := len(month.accounts - other.accounts):
            yield f"{alone} account{'' if alone == 1 else 's'} of {month.period} sent no bill of {other.period}."


def _require_month(period: str) -> None:
    try:
        month_bounds(period)
    except ValueError as error:
        raise BillError(f"{period!r} is no month; give one such as 2026-03") from error
