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
