"""A change of spend split exactly over the factors that it is the product of.

Spend = count × busy device hours per unit ÷ utilisation × Σ (share of a pool × price in that pool). Each factor's part
is its Shapley value: its effect averaged over every order in which the factors can change (Shapley 1953; Shorrocks
2013, "Decomposition procedures for distributional analysis", J. Econ. Inequality 11:99). Nothing depends on an order,
nothing is left over, and everything is rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import factorial

COUNT, HOURS, UTILISATION, PRICE, MIX, OTHER = "count", "hours", "utilisation", "price", "mix", "other"
_FACTORS = (COUNT, HOURS, UTILISATION, PRICE, MIX)
_ONE = Fraction(1)


@dataclass(frozen=True)
class Factors:
    """What a model's stage did in a month. Money is in whole units (1e-18), hours are billed device hours.

    `count` None has no unit of work, `utilisation` None is unknown; `hours` and `spend` are by pool; `other` is money
    on which no hour stands. Spend of a pool without hours counts as `other`.
    """

    count: int | None
    hours: Mapping[str, Fraction] = field(default_factory=dict)
    spend: Mapping[str, int] = field(default_factory=dict)
    utilisation: Fraction | None = None
    other: int = 0

    @property
    def total_hours(self) -> Fraction:
        return sum(self.hours.values(), Fraction(0))

    @property
    def priced(self) -> dict[str, Fraction]:
        """Price of an hour by pool, in units, where there were hours."""
        return {pool: Fraction(self.spend.get(pool, 0)) / hours for pool, hours in self.hours.items() if hours}

    @property
    def without_hours(self) -> int:
        return self.other + sum(amount for pool, amount in self.spend.items() if not self.hours.get(pool))

    @property
    def total(self) -> int:
        return self.other + sum(self.spend.values())


@dataclass(frozen=True)
class Terms:
    """The factors of one month as they are multiplied; `per_unit` are busy hours where utilisation counts."""

    count: Fraction
    per_unit: Fraction
    utilisation: Fraction
    prices: Mapping[str, Fraction]
    shares: Mapping[str, Fraction]

    def of(self, factor: str) -> object:
        return {COUNT: self.count, HOURS: self.per_unit, UTILISATION: self.utilisation, PRICE: self.prices,
                MIX: self.shares}[factor]  # fmt: skip

    @property
    def price(self) -> Fraction:
        """The mean price of a billed hour."""
        return sum((share * self.prices[pool] for pool, share in self.shares.items()), Fraction(0))


def counts(before: Factors, after: Factors) -> bool:
    """Whether both months can be told by the unit: a month with hours and nothing counted cannot."""
    return all(month.count is not None and (month.count > 0 or not month.total_hours) for month in (before, after))


def measured(before: Factors, after: Factors) -> bool:
    """Whether utilisation is known wherever there were hours; otherwise its effect is inside hours per unit."""
    months = [month for month in (before, after) if month.total_hours]
    return bool(months) and all(month.utilisation for month in months)


def terms(before: Factors, after: Factors) -> tuple[Terms, Terms]:
    """Both months as factors; what one month cannot tell (the price of a pool not used) is as in the other."""
    counted, busy = counts(before, after), measured(before, after)
    pair = before, after
    count = [Fraction(month.count or 0) if counted else _ONE for month in pair]
    used = [(month.utilisation or Fraction(0)) if busy and month.total_hours else None for month in pair]
    used = [each if each is not None else other for each, other in zip(used, reversed(used), strict=True)]
    busy_share = [_ONE if each is None else each for each in used]
    each = [
        month.total_hours * share / n if n else None for month, share, n in zip(pair, busy_share, count, strict=True)
    ]
    per_unit = [one if one is not None else other for one, other in zip(each, reversed(each), strict=True)]
    pools = sorted({*before.hours, *after.hours})
    price = [{**other.priced, **month.priced} for month, other in zip(pair, reversed(pair), strict=True)]
    share = [
        _shares(month if month.total_hours else other, pools) for month, other in ((before, after), (after, before))
    ]
    first, second = (
        Terms(
            count[i], per_unit[i] or Fraction(0), busy_share[i],
            {pool: price[i].get(pool, Fraction(0)) for pool in pools}, share[i],
        )
        for i in (0, 1)
    )  # fmt: skip
    return first, second


def split_change(before: Factors, after: Factors) -> dict[str, Fraction]:
    """The change of spend from `before` to `after` in units, by factor; the parts add up to it exactly.

    A factor that did not change has 0; where only one changed, it has everything; the way back is the negative.

    >>> one = Factors(2, {"a": Fraction(4)}, {"a": 8})
    >>> {k: int(v) for k, v in split_change(one, Factors(6, {"a": Fraction(12)}, {"a": 24})).items() if v}
    {'count': 16}
    """
    old, new = terms(before, after)
    changed = [factor for factor in _FACTORS if old.of(factor) != new.of(factor)]
    n = len(changed)
    worth = {
        chosen: _spend(old, new, frozenset(chosen)) for size in range(n + 1) for chosen in combinations(changed, size)
    }
    found = dict.fromkeys((*_FACTORS, OTHER), Fraction(0))
    for factor in changed:
        for chosen, value in worth.items():
            if factor in chosen:
                without = worth[tuple(name for name in chosen if name != factor)]
                orders = factorial(len(chosen) - 1) * factorial(n - len(chosen))
                found[factor] += Fraction(orders, factorial(n)) * (value - without)
    found[OTHER] = Fraction(after.without_hours - before.without_hours)
    return found


def whole_units(parts: Sequence[Fraction]) -> list[int]:
    """Fractions as whole units by cumulative rounding (half to even, so that negatives are mirrored).

    Parts that add up to a whole number still do, and a part of 0 stays 0.

    >>> whole_units([Fraction(1, 2), Fraction(1, 2), Fraction(-1, 3), Fraction(1, 3)])
    [0, 1, -1, 1]
    """
    made, reached, run = [], 0, Fraction(0)
    for part in parts:
        run += part
        made.append(round(run) - reached)
        reached = round(run)
    return made


def _spend(old: Terms, new: Terms, moved: frozenset[str]) -> Fraction:
    def of(factor: str) -> Terms:
        return new if factor in moved else old

    prices = of(PRICE).prices
    mean = sum((share * prices[pool] for pool, share in of(MIX).shares.items()), Fraction(0))
    return of(COUNT).count * of(HOURS).per_unit / of(UTILISATION).utilisation * mean


def _shares(month: Factors, pools: Sequence[str]) -> dict[str, Fraction]:
    whole = month.total_hours
    return {pool: month.hours.get(pool, Fraction(0)) / whole if whole else Fraction(0) for pool in pools}
