"""Money per count: exact spend over a count that may be uncertain, nought or unknown.

The interval is spend ÷ the count's upper bound to spend ÷ its lower bound: spend is exact and the count is not, so
it is never a ratio ± an error. Where the count may be nought or less there is no finite upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

from mlcost_pipeline.cost.exact import UNIT

_DIVIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)
NO_OUTCOME, NOT_MEASURED, UNBOUNDED = "no_outcome", "not_measured", "unbounded"


@dataclass(frozen=True)
class Ratio:
    """`value` None is ∞ (reason `no_outcome`) or unknown (`not_measured`); `high` None has no finite bound."""

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
        high = "∞" if self.high is None else _short(self.high)
        low = "?" if self.low is None else _short(self.low)
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
    lower = divided(spend, count if high is None else high)
    if count <= 0:
        return Ratio(None, lower, None, NO_OUTCOME)
    upper = divided(spend, count if low is None else low)
    return Ratio(divided(spend, count), lower, upper, UNBOUNDED if upper is None else None)


def divided(spend: Decimal, count: float) -> Decimal | None:
    """`spend` ÷ `count` at scale 18, or None where `count` is not above nought."""
    if count <= 0:
        return None
    return _DIVIDE.divide(spend, Decimal(str(count))).quantize(UNIT, context=_DIVIDE)


def _short(amount: Decimal) -> str:
    return f"{amount:.4f}" if abs(amount) < 10 else f"{amount:,.2f}"
