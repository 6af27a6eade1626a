"""Whole columns of binary floats → exact decimals of 12 places, half-even, without a Python number for each value.

A product by 10^12 is off by at most one rounding of a double. Where it lies further than that from a tie, its nearest
integer is the exact value's; what lies closer is left to exact arithmetic. What rounding took off is told exactly: a
double is an integer times a power of two, and integers add up exactly.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.tables import MONEY

_PLACES = 12
_LARGEST = 2.0**62
_HALF_BITS = 26


def rounded(values: pa.Array) -> pa.Array | None:
    """Decimals of scale 18 rounded half-even at 12 places; None where a value needs a closer look."""
    floats = _as_numpy(values)
    with np.errstate(over="ignore", invalid="ignore"):
        product = floats * 10.0**_PLACES
    sizes = np.abs(product)
    if not (sizes < _LARGEST).all():  # NaN and infinities too
        return None
    if (np.abs(sizes - np.floor(sizes) - 0.5) <= sizes * 2.0**-52).any():
        return None
    units = np.rint(product).astype(np.int64)
    words = np.empty((len(units), 2), np.int64)
    words[:, 0], words[:, 1] = units, units >> 63
    made = pa.Array.from_buffers(pa.decimal128(38, _PLACES), len(units), [None, pa.py_buffer(words.tobytes())])
    exact = made.cast(MONEY)
    return exact if values.null_count == 0 else pc.if_else(values.is_valid(), exact, pa.scalar(None, MONEY))


def taken_off(values: pa.Array, stored: pa.Array) -> Decimal:
    """The exact sum of doubles minus the sum of what is stored of them; nulls count for nothing."""
    kept = pc.sum(stored).as_py() or Decimal(0)
    return EXACT.subtract(exact_sum(_as_numpy(values)), kept)


def keep_floats(
    residues: dict[tuple[str, str], dict[str, Decimal]], measure: str, values: pa.Array, lines: pa.RecordBatch
) -> None:
    """Add what rounding took off a column to the account and period of its lines."""
    accounts, periods, stored = (lines.column(name) for name in ("account", "period", measure))
    for pair in (
        pa.table({"account": accounts, "period": periods}).group_by(["account", "period"]).aggregate([]).to_pylist()
    ):
        mine = pc.and_(pc.equal(accounts, pair["account"]), pc.equal(periods, pair["period"]))
        amount = taken_off(values.filter(mine), stored.filter(mine))
        if amount:
            kept = residues.setdefault((pair["account"], pair["period"]), {})
            kept[measure] = EXACT.add(kept.get(measure, Decimal(0)), amount)


def exact_sum(floats: np.ndarray) -> Decimal:
    """The sum of finite doubles, exactly."""
    fractions, exponents = np.frexp(floats)
    integers = (fractions * 2.0**53).astype(np.int64)
    total = Decimal(0)
    for exponent in np.unique(exponents).tolist():
        chosen = integers[exponents == exponent]
        low = chosen & ((1 << _HALF_BITS) - 1)
        amount = (int((chosen >> _HALF_BITS).sum()) << _HALF_BITS) + int(low.sum())
        power = EXACT.power(Decimal(2), abs(exponent - 53))
        part = EXACT.multiply(amount, power) if exponent >= 53 else EXACT.divide(Decimal(amount), power)
        total = EXACT.add(total, part)
    return total


def _as_numpy(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False), np.float64)
