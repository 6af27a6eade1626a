"""Cells of CSV files that a spreadsheet opens without running what stands in them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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


def neutral_column(texts: pa.Array) -> pa.Array:
    """:func:`neutral` of a whole column of texts; null stays null.

    >>> neutral_column(pa.array(["=1+1", "plain", None])).to_pylist()
    ["'=1+1", 'plain', None]
    """
    runs = pc.starts_with(texts, _FORMULA[0])
    for sign in _FORMULA[1:]:
        runs = pc.or_(runs, pc.starts_with(texts, sign))
    return pc.if_else(runs, pc.binary_join_element_wise("'", texts, ""), texts)
