"""Values as Azure cost exports write them: dates as month/day/year, tags as JSON without its braces."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.convert import Place
from mlcost_pipeline.tables import TEXT, TIME

_US = re.compile(r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})")
_ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})(T00:00:00(\.0+)?Z?)?")
_GERMAN = re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})")


def dates(place: Place, column: str, values: pa.Array) -> pa.Array:
    """Midnights UTC of dates: M/D/YYYY, YYYY-MM-DD or D.M.YYYY; null stays null.

    Raises:
        BillError: a date is written in another way; names file, line and column.
    """
    encoded = values.cast(TEXT).dictionary_encode()
    made = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        day = _date(text.strip())
        if day is None:
            row = encoded.indices.to_pylist().index(number)
            raise place.fault(row, column, f"expected a date such as 9/30/2026 (month first), found {text!r}")
        made.append(day)
    return pa.array(made, TIME).take(encoded.indices)


def _date(text: str) -> datetime | None:
    for pattern in (_US, _ISO, _GERMAN):
        if found := pattern.fullmatch(text):
            try:
                return datetime(int(found["year"]), int(found["month"]), int(found["day"]), tzinfo=UTC)
            except ValueError:
                return None
    return None


def with_braces(tags: pa.Array) -> pa.Array:
    """Tags as whole JSON objects."""
    plain = pc.utf8_trim_whitespace(tags.cast(TEXT))
    bare = pc.and_(pc.invert(pc.starts_with(plain, pattern="{")), pc.not_equal(plain, ""))
    return pc.if_else(bare, pc.binary_join_element_wise("{", plain, "}", ""), plain)
