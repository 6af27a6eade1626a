"""Cells of CSV files that a spreadsheet opens without running what stands in them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

#: A cell that begins so is a formula to a spreadsheet (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def neutral(value: Any) -> str:
    """A cell as text: numbers and times as they are, text that a spreadsheet would run led by an apostrophe.

    >>> neutral("=1+1"), neutral(Decimal("-1.50")), neutral(None)
    ("'=1+1", '-1.50', '')
    """
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
