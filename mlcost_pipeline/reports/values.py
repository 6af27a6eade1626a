"""How a value is written for a reader: unknown, infinite, money, shares, durations, times.

Rounding happens here and nowhere else; what is computed stays exact.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from mlcost_pipeline.cost.exact import ROUND

#: What a number can be before it is shown.
Numeric = Decimal | float | int

UNKNOWN = "unknown"
INFINITE = "∞"
MINUS = "\u2212"
SHARE = "share"
SECONDS = "s"
_CURRENCY = re.compile(r"^[A-Z]{3}$")


@dataclass(frozen=True)
class Quantity:
    """A number with its unit: a currency code is money, ``share`` is shown in per cent, ``s`` as a duration.

    ``exact`` shows every digit that is there (money held against a bill to the last unit).
    """

    value: Numeric | None
    unit: str = ""
    exact: bool = False

    def __str__(self) -> str:
        return show_number(self.value, self.unit, exact=self.exact)


#: What a table's cell can hold.
Cell = Quantity | Decimal | float | int | str | datetime | date | None


def show(value: Cell) -> str:
    """A cell as text: None is "unknown", times are UTC to the minute, booleans are yes and no."""
    if isinstance(value, Quantity):
        return str(value)
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value
    return show_number(value)


def show_number(value: Numeric | None, unit: str = "", *, exact: bool = False) -> str:
    """A number with its unit as text; never in exponent notation, thousands set apart by a thin space.

    >>> show_number(Decimal("-1234.5"), "USD"), show_number(0.1234, "share"), show_number(None, "USD")
    ('−1\u202f234.50 USD', '12.3 %', 'unknown')
    """
    if value is None or (isinstance(value, float | Decimal) and value != value):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | Decimal) and math.isinf(value):
        return _signed(value < 0, INFINITE, "" if unit in (SHARE, SECONDS) else unit)
    exact_value = value if isinstance(value, Decimal) else Decimal(str(value))
    negative, size = exact_value < 0, exact_value.copy_abs()
    if exact:
        return _signed(negative, _grouped(_plain(size)), unit)
    if unit == SHARE:
        return _signed(negative, _plain(_rounded(size.scaleb(2, context=ROUND), 1)), "%")
    if unit == SECONDS:
        return _signed(negative, _duration(size), "")
    if _CURRENCY.match(unit):
        return _signed(negative and _money(size).strip("0.") != "", _money(size), unit)
    if isinstance(value, int):
        return _signed(negative, _grouped(str(size)), unit)
    return _signed(negative, _grouped(_plain(_significant(size, 4))), unit)


def printable(text: str) -> str:
    """Text without control characters (they steer terminals and are forbidden in XML); they show as U+FFFD."""
    return "".join("\ufffd" if _forbidden(char) else char for char in text)


def _forbidden(char: str) -> bool:
    return (unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n") or ord(char) in (0xFFFE, 0xFFFF)


def is_number(value: Cell) -> bool:
    """Whether a cell is set to the right, as numbers are."""
    return isinstance(value, Quantity | Decimal | float | int) and not isinstance(value, bool)


def _signed(negative: bool, text: str, unit: str) -> str:
    return f"{MINUS if negative else ''}{text}{' ' + unit if unit else ''}"


def _money(size: Decimal) -> str:
    """Two decimals from one unit up; below that three digits that say something, at least two decimals."""
    if size == 0 or size >= 1:
        return _grouped(f"{_rounded(size, 2):f}")
    small = _plain(_significant(size, 3))
    whole, _, rest = small.partition(".")
    return f"{whole}.{rest.ljust(2, '0')}"


def _duration(seconds: Decimal) -> str:
    for limit, divisor, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{_plain(_rounded(seconds / divisor, 1))} {name}"
    return f"{_grouped(_plain(_rounded(seconds / 86400, 1)))} d"


def _rounded(size: Decimal, places: int) -> Decimal:
    return size.quantize(Decimal(1).scaleb(-places), context=ROUND)


def _significant(size: Decimal, digits: int) -> Decimal:
    if size == 0:
        return size
    places = max(0, digits - 1 - size.adjusted())
    return _rounded(size, places)


def _plain(size: Decimal) -> str:
    text = f"{size:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _grouped(text: str) -> str:
    whole, dot, rest = text.partition(".")
    return f"{int(whole):,}".replace(",", "\u202f") + dot + rest
