"""Columns of a billing export → exact values. Every fault names file, line and column; nothing is guessed.

Decimals are rounded half-even to 18 places and what that takes off is kept. Binary floats are rounded half-even to
12 places first: at 18 places 0.1 + 0.2 would become 0.300000000000000044.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.binary_floats import rounded
from mlcost_pipeline.cost.exact import EXACT, ROUND, UNIT
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.tables import MONEY, TAGS, TEXT, TIME

_FLOAT_UNIT = Decimal("1e-12")
_LIMIT = Decimal("1e20")
_SAFE = "^[+-]?[0-9]{1,18}([.][0-9]{0,18})?([eE]-[0-9])?$"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")


@dataclass(frozen=True)
class Place:
    """Where a batch of rows came from; `first_line` is its first row, the header being line 1."""

    file: str
    first_line: int

    def fault(self, row: int, column: str, text: str) -> BillError:
        return BillError(f"{self.file}, line {self.first_line + row}, column {column}: {text}; nothing was taken over")


def to_money(place: Place, column: str, values: pa.Array, *, required: bool) -> tuple[pa.Array, dict[int, Decimal]]:
    """Exact decimals of scale 18, and per line number what rounding took off (exact minus stored)."""
    if (quick := _quick_money(values)) is not None:
        if required:
            _refuse_nulls(place, column, quick)
        return quick, {}
    if pa.types.is_floating(values.type) and (quick := rounded(values)) is not None:
        if required:
            _refuse_nulls(place, column, quick)
        return quick, _taken_off(place, values, quick)
    convert = _money_of_float if pa.types.is_floating(values.type) else _money_of_text
    residues: dict[str | float, Decimal] = {}

    def one(value: Any) -> Decimal:
        exact, stored = convert(value)
        if exact != stored:
            residues[value] = EXACT.subtract(exact, stored)
        return stored

    kept = values if pa.types.is_floating(values.type) else values.cast(TEXT)
    array, indices = _each(place, column, kept, one, MONEY, required)
    if not residues:
        return array, {}
    distinct = indices.dictionary.to_pylist()
    lossy = {number: residues[value] for number, value in enumerate(distinct) if value in residues}
    found = {row: lossy[i] for row, i in enumerate(indices.indices.to_pylist()) if i in lossy}
    return array, {place.first_line + row: residue for row, residue in found.items()}


def to_money_and_residue(
    place: Place, column: str, values: pa.Array, *, required: bool
) -> tuple[pa.Array, dict[int, Decimal] | None]:
    """As :func:`to_money`, but None in place of residues line by line where the whole column's is cheaper to tell
    (:func:`binary_floats.taken_off`)."""
    if pa.types.is_floating(values.type) and (quick := rounded(values)) is not None:
        if required:
            _refuse_nulls(place, column, values)
        return quick, None
    return to_money(place, column, values, required=required)


def to_stored_money(place: Place, column: str, values: pa.Array) -> pa.Array:
    """As :func:`to_money` of an optional column, without what rounding took off."""
    if pa.types.is_floating(values.type) and (quick := rounded(values)) is not None:
        return quick
    return to_money(place, column, values, required=False)[0]


def _taken_off(place: Place, values: pa.Array, stored: pa.Array) -> dict[int, Decimal]:
    pairs = zip(values.to_pylist(), stored.to_pylist(), strict=True)
    lost = (None if value is None else EXACT.subtract(Decimal(value), kept) for value, kept in pairs)
    return {line: amount for line, amount in enumerate(lost, place.first_line) if amount}


def _quick_money(values: pa.Array) -> pa.Array | None:
    """A whole column at once where every value is a decimal that fits; None where one needs a closer look."""
    if pa.types.is_floating(values.type) or not _is_safe(values):
        return None
    try:
        if pa.types.is_decimal(values.type):  # Arrow overflows without a word where it widens a decimal of 128 bits
            values = values.cast(pa.decimal256(76, max(values.type.scale, MONEY.scale)))
        return values.cast(MONEY)
    except pa.ArrowInvalid:
        return None


def _is_safe(values: pa.Array) -> bool:
    """Whether Arrow casts every text as it is: of wider ones it makes wrong numbers without a word (1e30 becomes
    18960114910927365649.47…, 20 digits with 19 decimals a negative number)."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return True
    return bool(pc.all(pc.match_substring_regex(values, _SAFE)).as_py())


def to_times(place: Place, column: str, values: pa.Array) -> pa.Array:
    """UTC times; a text or timestamp without a zone is UTC."""
    if pa.types.is_timestamp(values.type):
        aware = values if values.type.tz else values.cast(pa.timestamp(values.type.unit, tz="UTC"))
        values = aware.cast(TIME, safe=False)
        _refuse_nulls(place, column, values)
        return values
    return _each(place, column, values.cast(TEXT), _time, TIME, True)[0]


def to_texts(place: Place, column: str, values: pa.Array, *, required: bool) -> pa.Array:
    """Text with outer blanks removed; blank is null."""
    trimmed = pc.utf8_trim_whitespace(values.cast(TEXT))
    array = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, TEXT), trimmed)
    if required:
        _refuse_nulls(place, column, array)
    return array


def to_tags(place: Place, column: str, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Tags as a map with sorted keys, and as canonical JSON text. A tag without a value (``true``) has value "true"."""
    if pa.types.is_map(values.type) or pa.types.is_struct(values.type):
        texts = _texts_of_maps(values)
    else:
        texts = _each(place, column, values.cast(TEXT), _tags_text, TEXT, False)[0]
    return _maps_of(texts), texts


def with_more_tags(maps: pa.Array, texts: pa.Array, more: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Tags with further ones (canonical JSON; null adds nothing), which win where a key is in both."""
    if more.null_count == len(more):
        return maps, texts
    known: dict[tuple[str | None, str], str | None] = {}
    merged: list[str | None] = []
    for text, further in zip(texts.to_pylist(), more.to_pylist(), strict=True):
        if further is not None and (text, further) not in known:
            known[text, further] = tags_json(json.loads(text or "{}") | json.loads(further))
        merged.append(text if further is None else known[text, further])
    whole = pa.array(merged, TEXT)
    return _maps_of(whole), whole


def _maps_of(texts: pa.Array) -> pa.Array:
    distinct = texts.dictionary_encode()
    maps = pa.array([sorted(json.loads(text).items()) for text in distinct.dictionary.to_pylist()], type=TAGS)
    return maps.take(distinct.indices)


def _texts_of_maps(values: pa.Array) -> pa.Array:
    """Canonical JSON of each map, made once for each that differs."""
    same = _told_apart(values)
    if same is None:
        return pa.array([tags_json(value) for value in values.to_pylist()], type=TEXT)
    encoded = same.dictionary_encode()
    rows = pa.table({"code": encoded.indices, "row": pa.array(range(len(values)))}).group_by("code").aggregate(
        [("row", "min")]
    )  # fmt: skip
    first = rows.filter(rows["code"].is_valid()).sort_by("code")["row_min"].combine_chunks()
    return pa.array([tags_json(value) for value in values.take(first).to_pylist()], TEXT).take(encoded.indices)


def _told_apart(values: pa.Array) -> pa.Array | None:
    """A text for each map, null for null, equal only for equal maps; None where that is not cheap to tell."""
    if not pa.types.is_map(values.type) or not (
        pa.types.is_string(values.type.key_type) and pa.types.is_string(values.type.item_type)
    ):
        return None
    lists = pa.ListArray.from_arrays(values.offsets, values.keys) if values.offset == 0 else None
    if lists is None or any(pc.any(pc.match_substring_regex(part, "[\x1c-\x1f]")).as_py() for part in
                            (values.keys, values.items)):  # fmt: skip
        return None
    pairs = pc.binary_join_element_wise(
        values.keys, values.items, "\x1f", null_handling="replace", null_replacement="\x1d"
    )
    joined = pc.binary_join(pa.ListArray.from_arrays(values.offsets, pairs), "\x1e")
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, TEXT))


def _each(
    place: Place, column: str, values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType, required: bool
) -> tuple[pa.Array, pa.DictionaryArray]:
    """Convert each distinct value once; a fault is reported at the first row that has it."""
    encoded = values.dictionary_encode()
    made: list[Any] = []
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            made.append(convert(value))
        except (ValueError, ArithmeticError) as error:
            row = encoded.indices.to_pylist().index(number)
            raise place.fault(row, column, str(error)) from None
    array = pa.array(made, type=kind).take(encoded.indices)
    if required:
        _refuse_nulls(place, column, array)
    return array, encoded


def _refuse_nulls(place: Place, column: str, values: pa.Array) -> None:
    if values.null_count:
        raise place.fault(values.is_null().to_pylist().index(True), column, "is empty, and it must not be")


def _money_of_text(text: str) -> tuple[Decimal, Decimal]:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"expected a plain decimal number, found {text!r}")
    return _rounded(Decimal(text.strip()), UNIT, text)


def _money_of_float(value: float) -> tuple[Decimal, Decimal]:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"expected a number, found {value!r}")
    return _rounded(Decimal(value), _FLOAT_UNIT, str(value))


def _rounded(exact: Decimal, unit: Decimal, shown: str) -> tuple[Decimal, Decimal]:
    stored = exact.quantize(unit, context=ROUND)
    if abs(stored) >= _LIMIT:
        raise ValueError(f"{shown} does not fit 20 digits before the point")
    return exact, stored


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"expected a time such as 2026-05-01T00:00:00Z, found {text!r}") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _tags_text(text: str) -> str | None:
    if not text.strip():
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"expected a JSON object of tags, found {text[:60]!r} (cut off?)") from None
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object of tags, found {text[:60]!r}")
    return tags_json(value)


def tags_json(value: Any) -> str | None:
    """Tags, as a mapping or as pairs, as canonical JSON; None if there are none."""
    pairs = value.items() if isinstance(value, dict) else value or []
    plain = {str(key): tag if isinstance(tag, str) else json.dumps(tag, sort_keys=True) for key, tag in pairs
             if tag is not None}  # fmt: skip
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if plain else None
