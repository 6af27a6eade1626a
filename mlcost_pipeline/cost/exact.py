"""Decimals without loss: the unit that money is kept in, and contexts that are never too narrow.

Both are wide enough for sums of binary floats, whose last digit may be the 1074th.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact

UNIT = Decimal("1e-18")
#: Refuses whatever would have to be rounded.
EXACT = Context(prec=1200, traps=[Inexact])
#: Rounds half to even where a result is asked for in fewer places.
ROUND = Context(prec=1200, rounding=ROUND_HALF_EVEN)


def plain(amount: Decimal) -> str:
    """All digits that matter, and no other; ``normalize`` would round to 28 of them.

    >>> plain(Decimal("12345678901234567890.120000000000000000")), plain(Decimal("5E+2")), plain(Decimal("-0.0"))
    ('12345678901234567890.12', '500', '0')
    """
    text = f"{amount:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text
