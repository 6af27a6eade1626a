"""Whether a figure rose, fell or stayed from one month to the next, given what is not known of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from mlcost_pipeline.cost.ratio import NOT_MEASURED, Ratio

Direction = Literal["rising", "flat", "falling", "unknown"]

#: A change within a tenth is none: bills move by more than that with the weekdays of a month.
BAND = Decimal("0.1")
_INFINITE = Decimal("Infinity")


@dataclass(frozen=True)
class Trend:
    """A figure before and now, and which way it went. `change` is (now − before) ÷ before, None where that is not
    finite; an infinite figure is a ``Decimal('Infinity')`` and an unknown one None."""

    direction: Direction
    before: Decimal | None
    now: Decimal | None
    change: float | None


def spend_trend(before: Decimal, now: Decimal, days_before: int, days_now: int) -> Trend:
    """The trend of a month's spend, compared by the day: February is not a saving, nor is March a rise.

    >>> spend_trend(Decimal(310), Decimal(280), 31, 28).direction
    'flat'
    """
    each_before, each_now = before / max(days_before, 1), now / max(days_now, 1)
    return Trend(_of_band(each_before, each_now), before, now, _change(each_before, each_now))


def ratio_trend(before: Ratio, now: Ratio) -> Trend:
    """The trend of a cost per outcome: a change within a tenth, or inside the interval of either month, is none.

    A month without any outcome costs ∞ each; from one such month to the next nothing changed.
    """
    old, new = _value(before), _value(now)
    if old is None or new is None:
        return Trend("unknown", old, new, None)
    below, above = (before, now) if old <= new else (now, before)
    inside = max(old, new) <= _high(below) or min(old, new) >= _low(above)
    return Trend("flat" if inside else _of_band(old, new), old, new, _change(old, new))


def _of_band(before: Decimal, now: Decimal) -> Direction:
    if before == now or (before.is_finite() and now.is_finite() and abs(now - before) <= BAND * abs(before)):
        return "flat"
    return "rising" if now > before else "falling"


def _change(before: Decimal, now: Decimal) -> float | None:
    if not before.is_finite() or not now.is_finite() or before == 0:
        return None
    return float((now - before) / abs(before))


def _value(ratio: Ratio) -> Decimal | None:
    if ratio.reason == NOT_MEASURED:
        return None
    return _INFINITE if ratio.value is None else ratio.value


def _low(ratio: Ratio) -> Decimal:
    if ratio.low is not None:
        return ratio.low
    return _INFINITE if ratio.value is None else -_INFINITE


def _high(ratio: Ratio) -> Decimal:
    return _INFINITE if ratio.high is None else ratio.high
