"""Ids of slots and lines: 96 and 128 bits of what a line says, the same on every machine and in every version.

Texts are hashed once for each distinct one (MD5, for its bits and not for secrecy), numbers and times enter as they
are, and columns are mixed in their order by multiplying and shifting (the steps of splitmix64). A text made of every
column and hashed for every line costs ten times as much.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: What makes two lines one slot; that `list` is missing is part of it.
SLOT_COLUMNS = (
    "account", "resource_id", "charge_start", "charge_end", "category", "charge_class", "service", "tags_text",
    "currency", "invoice_id", "commitment_status", "allocation",
)  # fmt: skip
_LINE_COLUMNS = (
    "period", "sku", "description", "resource_id_raw", "billed", "effective", "list", "quantity", "quantity_unit",
    "provider", "period_closed", "sub_account", "region", "pricing_category", "commitment_id",
)  # fmt: skip
#: What a charge is for, when and with which tags: the same in every delivery of its month, whatever it comes to.
_PLACE_COLUMNS = (
    "resource_id_raw", "sub_account", "charge_start", "charge_end", "category", "charge_class", "service", "region",
    "sku", "description", "tags_text", "pricing_category", "commitment_id", "commitment_status", "allocation",
    "quantity_unit",
)  # fmt: skip
_Lane = NDArray[np.uint64]
_SHIFT = np.uint64(31)
_TIMES = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_APART = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two numbers meet
_NULL = (np.uint64(0x5851F42D4C957F2D), np.uint64(0x14057B7EF767814F))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode("ascii"), dtype="<u2")


def identified(lines: pa.RecordBatch, buckets: int, *, places: bool = False) -> pa.Table:
    """Lines with ``slot_id``, ``bucket`` and two numbers of 64 bits, ``low`` and ``high``, for all that a line says.

    A resource's lines share a bucket, so that attribution can look at one bucket at a time. With `places` there is a
    number more, ``place``, for what is charged for without amounts and invoice.
    """
    rows = lines.num_rows
    state = np.zeros(rows, dtype=np.uint64), np.full(rows, _APART, dtype=np.uint64)
    empty = state
    of = {name: _lanes(lines.column(name)) for name in (*SLOT_COLUMNS, *_LINE_COLUMNS)}
    for name in SLOT_COLUMNS:
        state = _mixed(state, of[name])
    missing = pc.is_null(lines.column("list")).cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64)
    slot = state = _mixed(state, (missing, missing))
    for name in _LINE_COLUMNS:
        state = _mixed(state, of[name])
    nowhere = pc.is_null(lines.column("resource_id")).to_numpy(zero_copy_only=False)
    bucket = np.where(nowhere, slot[0], of["resource_id"][0]) % np.uint64(buckets)
    table = pa.Table.from_batches([lines])
    for added, values in (
        ("slot_id", _hex(slot)), ("low", pa.array(state[0])), ("high", pa.array(state[1])),
        ("bucket", pa.array(bucket.astype(np.int64))),
    ):  # fmt: skip
        table = table.append_column(added, values)
    if not places:
        return table
    place = empty
    for name in _PLACE_COLUMNS:
        place = _mixed(place, of[name])
    return table.append_column("place", pa.array(place[0]))


def _mixed(state: tuple[_Lane, _Lane], lanes: tuple[_Lane, _Lane]) -> tuple[_Lane, _Lane]:
    """One column more; each half of the state sees both lanes, the second by way of the first."""
    first, second = state
    first = (first ^ lanes[0]) * _TIMES[0]
    first ^= first >> _SHIFT
    second = (second ^ lanes[1] ^ first) * _TIMES[1]
    second ^= second >> _SHIFT
    return first, second


def _lanes(column: pa.Array) -> tuple[_Lane, _Lane]:
    """Two numbers of 64 bits for each value; no two values of a column that differ have the same two."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_texts(column)
    if pa.types.is_decimal128(kind):
        halves = _buffer(column, "<u8", 2)
        low, high = halves[:, 0].copy(), halves[:, 1].copy()
    elif pa.types.is_boolean(kind):
        low = pc.fill_null(column, False).cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64)
        high = np.zeros(len(low), dtype=np.uint64)
    else:
        low = _buffer(column.view(pa.int64()), "<i8", 1)[:, 0].view(np.uint64).copy()
        high = np.zeros(len(low), dtype=np.uint64)
    first, second = low, low * _APART + high
    return _without_nulls(column, first, second)


def _of_texts(column: pa.Array) -> tuple[_Lane, _Lane]:
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    digests = b"".join(hashlib.md5(text, usedforsecurity=False).digest() for text in texts)
    lanes = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    if not len(lanes):
        lanes = np.zeros((1, 2), dtype=np.uint64)
    codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return _without_nulls(column, lanes[codes, 0], lanes[codes, 1])


def _without_nulls(column: pa.Array, first: _Lane, second: _Lane) -> tuple[_Lane, _Lane]:
    if column.null_count:
        null = pc.is_null(column).to_numpy(zero_copy_only=False)
        first, second = np.where(null, _NULL[0], first), np.where(null, _NULL[1], second)
    return first, second


def _buffer(column: pa.Array, kind: str, width: int) -> NDArray[np.uint64]:
    whole = np.frombuffer(column.buffers()[1], dtype=kind).reshape(-1, width)
    return whole[column.offset : column.offset + len(column)]


def _hex(state: tuple[_Lane, _Lane]) -> pa.Array:
    """The first 96 bits of each as a text of 24 characters."""
    rows = len(state[0])
    both = np.empty((rows, 12), dtype=np.uint8)
    both[:, :8] = state[0].astype(">u8").view(np.uint8).reshape(rows, 8)
    both[:, 8:] = state[1].astype(">u8").view(np.uint8).reshape(rows, 8)[:, :4]
    offsets = np.arange(rows + 1, dtype=np.int32) * 24
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(_HEX[both].tobytes()))
