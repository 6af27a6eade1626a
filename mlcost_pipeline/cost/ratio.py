"""Money per count: exact spend over a count that may be uncertain, nought or unknown.

The interval is spend ÷ the count's upper bound to spend ÷ its lower bound (of a net credit the other way round): spend
is exact and the count is not, so it is never a ratio ± an error. Where the count may be nought or less there is no
finite bound on that side; where nobody gave a bound of the count, that end is unknown, and not the value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

from mlcost_pipeline.cost.exact import UNIT

_DIVIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)
NO_OUTCOME, NOT_MEASURED, UNBOUNDED, UNKNOWN_BOUNDS = "no_outcome", "not_measured", "unbounded", "unknown_bounds"


@dataclass(frozen=True)
class Ratio:
    """`value` None is ∞ (reason `no_outcome`) or unknown (`not_measured`).

    An end that is None has no finite bound, or is unknown if the reason is `unknown_bounds`.
    """

    value: Decimal | None
    low: Decimal | None
    high: Decimal | None
    reason: str | None

    def show(self, currency: str) -> str:
        """For a person: ``0.42 USD (0.35 to ∞)``, ``∞ (no outcome)``, ``unknown (not measured)``."""
        if self.reason == NOT_MEASURED:
            return "unknown (not measured)"
        if self.value is None:
            floor = "" if self.low is None else f", at least {_short(self.low)} {currency}"
            return f"∞ (no outcome{floor})"
        none = ("?", "?") if self.reason == UNKNOWN_BOUNDS else ("−∞", "∞")
        low, high = (
            end if bound is None else _short(bound) for bound, end in zip((self.low, self.high), none, strict=True)
        )
        return f"{_short(self.value)} {currency} ({low} to {high})"


def per_count(spend: Decimal, count: float | None, low: float | None = None, high: float | None = None) -> Ratio:
    """Spend per one of `count`, with the bounds that the count's bounds give.

    >>> per_count(Decimal(10), 4.0, 2.0, 5.0).high
    Decimal('5.000000000000000000')
    >>> per_count(Decimal(10), 4.0, -1.0, 5.0).reason
    'unbounded'
    """
    if count is None:
        return Ratio(None, None, None, NOT_MEASURED)
    by_most = None if high is None else divided(spend, high)
    if count <= 0:
        return Ratio(None, by_most if spend >= 0 else None, None, NO_OUTCOME)
    by_least = None if low is None else divided(spend, low)
    ends = (by_most, by_least) if spend >= 0 else (by_least, by_most)
    if low is None or high is None:
        return Ratio(divided(spend, count), *ends, UNKNOWN_BOUNDS)
    return Ratio(divided(spend, count), *ends, UNBOUNDED if by_least is None else None)


def divided(spend: Decimal, count: float) -> Decimal | None:
    """`spend` ÷ `count` at scale 18, or None where `count` is not above nought."""
    if count <= 0:
        return None
    return _DIVIDE.divide(spend, Decimal(str(count))).quantize(UNIT, context=_DIVIDE)


def _short(amount: Decimal) -> str:
    return f"{amount:.4f}" if abs(amount) < 10 else f"{amount:,.2f}"
