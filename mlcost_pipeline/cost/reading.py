"""The monthly reading of a model: what its spend and its cost per outcome, together, say about it.

A bill that stays while each outcome costs more is a model being starved; a bill that rises while each outcome costs
the same is a model that grows. Months that cannot be compared are not, and the reading says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcost_pipeline.cost.ratio import Ratio
from mlcost_pipeline.cost.trend import Direction, Trend, ratio_trend, spend_trend
from mlcost_pipeline.cost.unit_cost import UnitCost

UNKNOWN, PARTIAL, NOT_COMPARABLE, FIRST = "unknown", "partial", "not_comparable", "first"

#: (spend, cost per outcome) → the name of it, and what it means.
NAMES: dict[tuple[Direction, Direction], tuple[str, str]] = {
    ("flat", "rising"): ("starved", "the same money earns less"),
    ("rising", "flat"): ("growing", "more money earns more, at the same price"),
    ("flat", "flat"): ("steady", "the same money earns the same"),
    ("flat", "falling"): ("improving", "the same money earns more"),
    ("rising", "rising"): ("overspending", "more money earns less for each unit of it"),
    ("rising", "falling"): ("scaling", "more money earns more, at a lower price"),
    ("falling", "rising"): ("cut_too_deep", "what was saved had been earning more than its cost"),
    ("falling", "flat"): ("shrinking", "less money earns less, at the same price"),
    ("falling", "falling"): ("leaner", "less money, and each unit of it earns more"),
}


@dataclass(frozen=True)
class Reading:
    """One model's month beside the month before it.

    `name` is one of :data:`NAMES`, or `first` (nothing to compare with), `unknown` (no cost per outcome), `partial`
    (a month that is not over, or whose outcomes cover a part of it), `not_comparable` (outcomes were defined
    otherwise). `spend` is given wherever both months are over; `each`, the cost per outcome, is unknown where the name
    is none of :data:`NAMES`. `provisional` readings may still change.
    """

    model: str
    period: str
    name: str
    spend: Trend | None
    each: Trend | None
    provisional: bool
    sentence: str


def readings(costs: Sequence[UnitCost]) -> list[Reading]:
    """The reading of every month of one model, in order; `costs` as :func:`unit_costs` gives them."""
    known = {cost.period: cost for cost in costs}
    return [reading(known.get(_month_before(cost.period)), cost) for cost in costs]


def reading(before: UnitCost | None, now: UnitCost) -> Reading:
    """What `now` says beside `before`, the calendar month before it (None: nothing is known of that month)."""
    provisional = now.provisional or (before is not None and before.provisional)
    name, why = _obstacle(before, now)
    spend = None
    if before is not None and _over(before) and _over(now):
        spend = spend_trend(before.total, now.total, before.days, now.days)
    if name is not None or before is None or spend is None:
        sentence = _sentence(now, f"{(name or UNKNOWN).replace('_', ' ')}: {why}", provisional)
        return Reading(now.model, now.period, name or UNKNOWN, spend, None, provisional, sentence)
    each = ratio_trend(before.per_outcome, now.per_outcome)
    name, meaning = NAMES[spend.direction, each.direction]
    moved = f"{_spend_words(spend, now.currency)} and {_each_words(each, before, now)}: {meaning}"
    sentence = _sentence(now, f"{name.replace('_', ' ')}, {moved}", provisional)
    return Reading(now.model, now.period, name, spend, each, provisional, sentence)


def _obstacle(before: UnitCost | None, now: UnitCost) -> tuple[str | None, str]:
    """Why the two months cannot be read together: a name and a sentence; (None, "") where they can."""
    for cost in (now, before):
        if cost is None:
            return FIRST, f"{_spent(now)}, and nothing is known of the month before"
        if not _over(cost):
            return PARTIAL, f"{cost.period} has {cost.known_days} of {cost.days} days so far, with {_spent(cost)}"
        if cost.outcome is None:
            return UNKNOWN, f"no outcome of {cost.period} was measured, for {_spent(cost)}"
        if cost.covered is not None and not cost.covered.whole:
            return PARTIAL, f"in {cost.period} {cost.covered.reason}, for {_spent(cost)} of the whole month"
    assert before is not None and before.outcome is not None and now.outcome is not None
    if before.outcome.definition != now.outcome.definition:
        return NOT_COMPARABLE, (
            f"{before.period} counts {before.outcome.definition} at {before.per_outcome.show(before.currency)} each, "
            f"{now.period} counts {now.outcome.definition} at {now.per_outcome.show(now.currency)}"
        )
    if before.currency != now.currency:
        return NOT_COMPARABLE, f"{before.period} is in {before.currency} and {now.period} in {now.currency}"
    return None, ""


def _over(cost: UnitCost) -> bool:
    return cost.known_days >= cost.days


def _spent(cost: UnitCost) -> str:
    return f"{cost.total:,.2f} {cost.currency} spent"


def _spend_words(spend: Trend, currency: str) -> str:
    assert spend.before is not None and spend.now is not None
    moved = {"rising": "spend rose", "falling": "spend fell", "flat": "spend is flat"}[spend.direction]
    change = "" if spend.change is None else f", {spend.change:+.1%} a day"
    return f"{moved} ({spend.before:,.2f} to {spend.now:,.2f} {currency}{change})"


def _each_words(each: Trend, before: UnitCost, now: UnitCost) -> str:
    assert now.outcome is not None
    moved = {"rising": "rose", "falling": "fell", "flat": "is flat"}[each.direction]
    change = "" if each.change is None else f", {each.change:+.1%}"
    old, new = _shown(before.per_outcome, before.currency), _shown(now.per_outcome, now.currency)
    return f"the cost of one of its {now.outcome.words} {moved} ({old} to {new}{change})"


def _shown(ratio: Ratio, currency: str) -> str:
    """As the ratio shows itself, without an interval that is none."""
    if ratio.value is not None and ratio.low == ratio.value == ratio.high:
        return Ratio(ratio.value, None, None, None).show(currency).partition(" (")[0]
    return ratio.show(currency).replace("(", "[").replace(")", "]")


def _sentence(now: UnitCost, text: str, provisional: bool) -> str:
    lower = f"; {now.unpriced_runs} runs of unknown price are not in it" if now.unpriced_runs else ""
    return f"{now.model}, {now.period}: {text}{lower}{' (provisional, may still change)' if provisional else ''}"


def _month_before(period: str) -> str:
    year, month = map(int, period.split("-"))
    return f"{year - (month == 1)}-{(month - 2) % 12 + 1:02d}"
