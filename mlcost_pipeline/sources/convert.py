"""Values of a file → values of a table, column by column: text stays text, money becomes decimal, times become UTC.

A value that does not fit is found by bisection, so the error can name its row at no cost to the good case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.tables import DAY, FLAG, INTEGER, MONEY, REAL, TAGS, TEXT, TEXTS, TIME

_WIDE = pa.decimal256(76, 38)
_DIGITS = 18
_FLOAT_DIGITS = 12  # 0.1 + 0.2 in binary has no eighteen true digits
_ZONED = r"(?:[Zz]|[+-]\d{2}:?\d{2})\s*$"
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_EXPECTED: dict[pa.DataType, str] = {
    TEXT: "text",
    TIME: "a time such as 2025-03-01T07:12:00Z",
    DAY: "a day such as 2025-03-01",
    MONEY: "an amount such as 12.34",
    INTEGER: "a whole number",
    REAL: "a number",
    FLAG: "true or false",
    TEXTS: "a list (in CSV: a JSON list of texts)",
    TAGS: "a map (in CSV: a JSON object of texts)",
}
_FAULTS = (pa.ArrowException, ValueError, TypeError, OverflowError)


class Unfit(Exception):
    """One value does not fit: its index, the value, what was expected."""

    def __init__(self, index: int, found: Any, expected: str) -> None:
        super().__init__(f"expected {expected}, found {found!r}")
        self.index, self.found, self.expected = index, found, expected


def plain(column: pa.ChunkedArray | pa.Array, null_values: list[str]) -> pa.Array:
    """A column as one array without dictionaries; texts that stand for null, and NaN, become null."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(TEXT)
    if array.type == TEXT and null_values:
        array = pc.if_else(pc.is_in(array, value_set=pa.array(null_values, TEXT)), pa.scalar(None, TEXT), array)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def convert(array: pa.Array, kind: pa.DataType, zone: str = "UTC", *, is_json: bool = False) -> pa.Array:
    """`array` (from :func:`plain`) as `kind`; times without a zone are read in `zone`.

    Raises:
        Unfit: the first value that does not fit.
    """
    function: Callable[[pa.Array], pa.Array]
    if is_json:
        function = _as_json
    elif kind == TIME:
        function = lambda values: _as_time(values, zone)  # noqa: E731
    else:
        function = _CONVERSIONS.get(kind, lambda values: values.cast(kind))
    try:
        return function(array)
    except _FAULTS as error:
        index = _first_fault(array, function)
        found = array[index].as_py() if len(array) else None
        detail = "" if array.type == TEXT else f" ({error})"
        raise Unfit(index, found, ("JSON" if is_json else _EXPECTED.get(kind, str(kind))) + detail) from error


def as_text(array: pa.Array) -> pa.Array:
    """Ids and other words as text: whole numbers without a point, whatever type the file gave them."""
    kind = array.type
    if kind == TEXT:
        return array
    if pa.types.is_boolean(kind):
        return pc.if_else(array, "true", "false")
    if pa.types.is_floating(kind):
        return _float_as_text(array)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise ValueError(f"a column of type {kind} is no text")
    return array.cast(TEXT)


def local_to_utc(array: pa.Array, zone: str) -> pa.Array:
    """Local times without zone → UTC. An hour that occurs twice (autumn) is taken as its first pass; a time that
    never was (spring) is read with the offset that held before the gap. Both are fixed rules (PEP 495, fold 0)."""
    if zone == "UTC":
        return array.cast(TIME)
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"time_zone {zone!r} is unknown; use a name such as Europe/London") from error
    coded = array.cast(pa.timestamp("us")).dictionary_encode()
    zoned = [None if at is None else at.replace(tzinfo=place).astimezone(UTC) for at in coded.dictionary.to_pylist()]
    return pa.array(zoned, TIME).take(coded.indices)


def _as_time(array: pa.Array, zone: str) -> pa.Array:
    kind = array.type
    if pa.types.is_null(kind):
        return array.cast(TIME)
    if pa.types.is_timestamp(kind):
        return (
            array.cast(TIME, safe=False) if kind.tz else local_to_utc(array.cast(pa.timestamp("us"), safe=False), zone)
        )
    if pa.types.is_date(kind):
        return local_to_utc(array.cast(pa.timestamp("us")), zone)
    if kind != TEXT:
        raise ValueError(f"{kind} carries no unit of time; give a timestamp, or count days with day_origin")
    trimmed = pc.utf8_trim_whitespace(array)
    zoned = pc.fill_null(pc.match_substring_regex(trimmed, _ZONED), False)
    nothing = pa.scalar(None, TEXT)
    with_zone = pc.if_else(zoned, trimmed, nothing).cast(pa.timestamp("ns", "UTC")).cast(TIME, safe=False)
    without = pc.if_else(zoned, nothing, trimmed).cast(pa.timestamp("ns")).cast(pa.timestamp("us"), safe=False)
    return pc.coalesce(with_zone, local_to_utc(without, zone))


def _as_money(array: pa.Array) -> pa.Array:
    """Exact decimals; more digits than the column holds are rounded half to even, as are binary floats."""
    kind, digits = array.type, _DIGITS
    if pa.types.is_floating(kind):
        array, digits = array.cast(TEXT), _FLOAT_DIGITS
    elif kind == TEXT:
        array = pc.utf8_trim_whitespace(array)
    elif pa.types.is_boolean(kind) or not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ValueError(f"{kind} is no amount")
    elif pa.types.is_integer(kind):
        array = array.cast(TEXT)
    return pc.round(array.cast(_WIDE), digits, "half_to_even").cast(MONEY)


def _as_integer(array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        raise ValueError("a flag is no number")
    return (pc.utf8_trim_whitespace(array) if array.type == TEXT else array).cast(INTEGER)


def _as_real(array: pa.Array) -> pa.Array:
    return (pc.utf8_trim_whitespace(array) if array.type == TEXT else array).cast(REAL)


def _as_flag(array: pa.Array) -> pa.Array:
    if pa.types.is_boolean(array.type):
        return array
    words = pc.utf8_lower(pc.utf8_trim_whitespace(as_text(array)))
    true = pc.is_in(words, value_set=pa.array(_TRUE))
    known = pc.or_(pc.or_(true, pc.is_in(words, value_set=pa.array(_FALSE))), pc.is_null(words))
    if not pc.all(known, min_count=0).as_py():
        raise ValueError("neither true nor false")
    return pc.if_else(pc.is_null(words), pa.scalar(None, FLAG), true)


def _float_as_text(array: pa.Array) -> pa.Array:
    whole = pc.all(pc.equal(pc.floor(array), array), min_count=0).as_py()
    if not whole:
        return array.cast(TEXT)
    exact = 2**24 if array.type == pa.float32() else 2**53
    if not pc.all(pc.less_equal(pc.abs(array), exact), min_count=0).as_py():
        raise ValueError("an id stored as a binary number this large has lost digits; export it as text")
    return array.cast(INTEGER).cast(TEXT)


def _as_json(array: pa.Array) -> pa.Array:
    def canonical(text: str) -> str:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    return _by_value(as_text(array), TEXT, canonical)


def _as_texts(array: pa.Array) -> pa.Array:
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths, values = pc.list_value_length(array).to_pylist(), array.to_pylist()
        flat = as_text(plain(pc.list_flatten(array), [])).to_pylist()
        flowing = iter(flat)
        return pa.array(
            [None if v is None else [next(flowing) for _ in range(n)] for v, n in zip(values, lengths, strict=True)],
            TEXTS,
        )

    def listed(text: str) -> list[str]:
        value = json.loads(text)
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [str(item) for item in value]

    return _by_value(array, TEXTS, listed)


def _as_tags(array: pa.Array) -> pa.Array:
    if array.type != TEXT:
        return array.cast(TAGS)

    def tags(text: str) -> list[tuple[str, str]]:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return [(str(key), word if isinstance(word, str) else json.dumps(word)) for key, word in value.items()]

    return _by_value(array, TAGS, tags)


def _by_value(array: pa.Array, kind: pa.DataType, function: Callable[[str], Any]) -> pa.Array:
    """Apply a function once to each distinct text."""
    coded = array.cast(TEXT).dictionary_encode()
    values = [None if text is None else function(text) for text in coded.dictionary.to_pylist()]
    return pa.array(values, kind).take(coded.indices)


def day_and_hour(days: pa.Array, hours: pa.Array | None, origin: datetime, zone: str) -> pa.Array:
    """Day counts and (fractional) hours after `origin` (local, without zone) → UTC, to the second."""
    seconds = pc.multiply(_as_integer(days), pa.scalar(86_400, INTEGER))
    if hours is not None:
        seconds = pc.add(seconds, pc.round(pc.multiply(_as_real(hours), 3600.0)).cast(INTEGER))
    start = pa.scalar(origin, pa.timestamp("s"))
    return local_to_utc(pc.add(start, seconds.cast(pa.duration("s"))).cast(pa.timestamp("us")), zone)


def _first_fault(array: pa.Array, function: Callable[[pa.Array], pa.Array]) -> int:
    """Index of the first value without which the conversion would go further (bisection over prefixes)."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            function(array[:middle])
            good = middle
        except _FAULTS:
            bad = middle
    return good


_CONVERSIONS: dict[pa.DataType, Callable[[pa.Array], pa.Array]] = {
    TEXT: as_text,
    MONEY: _as_money,
    INTEGER: _as_integer,
    REAL: _as_real,
    FLAG: _as_flag,
    TEXTS: _as_texts,
    TAGS: _as_tags,
}
