"""A bridge in words: each factor before and after, and one sentence with the largest cause first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from mlcost_pipeline.cost.slots import SCALE

_SHOWN = 2


def factor_words(before: Fraction, after: Fraction, kind: str) -> tuple[str, str]:
    """A factor in both months: a count (`n`), hours (`h`), a share (`%`), money (`money`) or money an hour (`rate`)."""
    first, second = (_word(value, kind) for value in (before, after))
    return first, second


def mix_words(before: Mapping[str, Fraction], after: Mapping[str, Fraction]) -> tuple[str, str]:
    """The share of the hours in the pools that gained or lost most."""
    moved = sorted(before, key=lambda pool: (-abs(after[pool] - before[pool]), pool))[:_SHOWN]
    first, second = (", ".join(f"{pool} {float(month[pool]):.0%}" for pool in moved) for month in (before, after))
    return first, second


def moved_sentence(
    a: str, b: str, model: str | None, currency: str, total_a: Decimal, total_b: Decimal,
    rows: Sequence[tuple[str, str, str, Decimal]], unsettled: Sequence[str],
) -> str:  # fmt: skip
    """What happened to the bill, then its largest cause, the next one, and the largest that pulled the other way."""
    difference = total_b - total_a
    whose = "the bill" if model is None else f"the bill of {model}"
    tail = f" (provisional: {', '.join(unsettled)} not final)" if unsettled else ""
    was = f"from {total_a:,.2f} {currency} in {a} to {total_b:,.2f} in {b}"
    if not rows:
        return f"{whose} did not move, {was}{tail}"
    verb = "rose" if difference > 0 else "fell" if difference < 0 else "stayed"
    factor = total_b / total_a if total_a > 0 else None
    times = "" if factor is None else f" ({factor:,.1f} times)" if factor >= 2 else f" ({float(factor - 1):+.1%})"
    along = [row for row in rows if row[3] * difference > 0] or list(rows)
    against = [row for row in rows if row[3] * difference < 0]
    causes = [f"mostly {_cause(along[0], currency)}", *(f"then {_cause(row, currency)}" for row in along[1:2])]
    causes += [f"against it {_cause(row, currency)}" for row in against[:1]]
    return f"{whose} {verb} {was}{times}: {', '.join(causes)}{tail}"


def _cause(row: tuple[str, str, str, Decimal], currency: str) -> str:
    name, before, after, amount = row
    moved = f", {before} to {after}" if before and after else ""
    return f"{name} ({amount:+,.2f} {currency}{moved})"


def _word(value: Fraction, kind: str) -> str:
    if kind == "%":
        return f"{float(value):.1%}"
    if kind == "n":
        return f"{int(value):,}"
    number = value if kind == "h" else value / 10**SCALE
    return _significant(number) + {"h": " h", "rate": "/h"}.get(kind, "")


def _significant(number: Fraction) -> str:
    """Two decimals, or as many more as four digits need."""
    amount = Decimal(number.numerator) / Decimal(number.denominator)
    places = max(2, 3 - amount.adjusted()) if amount else 2
    return f"{amount:,.{min(places, 12)}f}"
