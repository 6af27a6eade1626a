"""Splitting an amount over weights in integers, so that the parts always add up to it.

part_i = floor(c·W_i / D) − floor(c·W_{i−1} / D) with W cumulative over the run ids in order, D = max(ΣW, capacity);
what is left is idle. No part is off by a whole unit, and negative amounts (credits) are split the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mlcost_pipeline.errors import BillError

#: Products beyond this do not fit the 128-bit integers of a database engine; they are refused and never wrap.
LIMIT = 2**127
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_GRIDS = (1, 1_000, 1_000_000)  # microseconds of a step of time: as fine as the amounts allow


@dataclass(frozen=True)
class Hold:
    """A stretch of time in which `owner` holds `share_milli` of a resource; `end` None is not over yet."""

    owner: str
    start: datetime
    end: datetime | None
    share_milli: int


def split(amount: int, weights: Sequence[int], capacity: int) -> tuple[list[int], int]:
    """Parts of `amount` by `weights` (in their order) and the idle rest, given the `capacity` in the same unit.

    >>> split(97, [1, 1, 1], 0)
    ([32, 32, 33], 0)
    >>> split(-500, [1800], 3600)
    ([-250], -250)

    Raises:
        BillError: amount × weight does not fit 128 bits.
    """
    total = sum(weights)
    denominator = max(total, capacity)
    if denominator == 0:
        return [0] * len(weights), amount
    if abs(amount) * denominator >= LIMIT:
        raise BillError(
            f"an amount of {amount} units over a weight of {denominator} exceeds 128 bits; split the charge"
        )
    parts, before, cumulative = [], 0, 0
    for weight in weights:
        cumulative += weight
        upto = amount * cumulative // denominator
        parts.append(upto - before)
        before = upto
    return parts, amount - before


def weigh(
    holds: Sequence[Hold], capacities: Sequence[Hold], start: datetime, end: datetime, largest: int
) -> tuple[dict[str, int], int]:
    """Time × milli-share of each owner in [start, end), by owner in order, and the capacity in the same unit.

    Time is counted in steps of a microsecond, or of a millisecond or second where amounts as large as `largest`
    would not fit otherwise. Instants are rounded down to the grid, so that adjacent stretches stay additive.
    """
    for grid in _GRIDS:
        weights = _weights(holds, start, end, grid)
        capacity = sum(_weights(capacities, start, end, grid).values())
        if largest * max(sum(weights.values()), capacity) < LIMIT:
            break
    return weights, capacity


def _weights(holds: Sequence[Hold], start: datetime, end: datetime, grid: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for hold in holds:
        until = end if hold.end is None else min(end, hold.end)
        steps = _steps(until, grid) - _steps(max(start, hold.start), grid)
        if steps > 0:
            found[hold.owner] = found.get(hold.owner, 0) + steps * hold.share_milli
    return dict(sorted(found.items()))


def _steps(instant: datetime, grid: int) -> int:
    return (instant - _EPOCH) // _MICROSECOND // grid
