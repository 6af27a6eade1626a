"""Rows checked against their table: the one gate through which anything enters the warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from mlcost_pipeline.errors import SchemaError
from mlcost_pipeline.tables import RECORDED_AT, TableSchema


def conform(table: TableSchema, rows: Sequence[Mapping[str, Any]] | pa.Table) -> pa.Table:
    """The rows as an Arrow table in the table's columns and types, without ``recorded_at``.

    Raises:
        SchemaError: names the table, the row (counted from 0) and the column of the first fault.
    """
    names = rows.column_names if isinstance(rows, pa.Table) else _names(rows)
    extra = _open_columns(table, names)
    if isinstance(rows, pa.Table):
        columns = [_from_arrow(table, rows, field) for field in table.schema]
        fields = list(table.schema) + [rows.schema.field(name) for name in extra]
        columns += [rows.column(name).combine_chunks() for name in extra]
    else:
        columns = [_from_rows(table, rows, field) for field in table.schema]
        opened = [pa.array([row.get(name) for row in rows]) for name in extra]
        fields = list(table.schema) + [pa.field(name, array.type) for name, array in zip(extra, opened, strict=True)]
        columns += opened
    return pa.table(columns, schema=pa.schema(fields))


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _open_columns(table: TableSchema, names: Sequence[str]) -> list[str]:
    extra = [name for name in names if name not in table.schema.names and name != RECORDED_AT]
    unknown = [name for name in extra if not (table.open_prefix and name.startswith(table.open_prefix))]
    if unknown:
        raise SchemaError(
            f"table {table.name}: unknown column {', '.join(unknown)}; its columns are {', '.join(table.columns)}"
        )
    return sorted(extra)


def _from_arrow(table: TableSchema, rows: pa.Table, field: pa.Field) -> pa.Array:
    if field.name not in rows.column_names:
        column: pa.Array = pa.nulls(rows.num_rows, field.type)
    else:
        found = rows.schema.field(field.name).type
        if pa.types.is_timestamp(found) and found.tz is None and found != field.type:
            raise SchemaError(f"table {table.name}, column {field.name}: times without a zone; make them UTC first")
        if pa.types.is_floating(found) and pa.types.is_decimal(field.type):
            raise SchemaError(f"table {table.name}, column {field.name}: money arrived as binary floats; use decimals")
        try:
            column = _whole(rows.column(field.name), field.type)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"table {table.name}, column {field.name}: {error}") from error
    if not field.nullable and column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise SchemaError(f"table {table.name}, row {row}, column {field.name}: is missing, and it must not be")
    return column


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column as one array of a type, not copied where it is one already."""
    typed = column if column.type == kind else column.cast(kind)
    if typed.num_chunks == 1:
        return typed.chunk(0)
    return pa.concat_arrays(typed.chunks) if typed.num_chunks else pa.nulls(0, kind)


def _from_rows(table: TableSchema, rows: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    values = [row.get(field.name) for row in rows]
    for number, value in enumerate(values):
        if value is None and not field.nullable:
            raise SchemaError(f"table {table.name}, row {number}, column {field.name}: is missing, and it must not be")
        if isinstance(value, datetime) and value.tzinfo is None:
            raise SchemaError(f"table {table.name}, row {number}, column {field.name}: time without a zone: {value}")
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        number, value = _first_fault(values, field.type)
        raise SchemaError(
            f"table {table.name}, row {number}, column {field.name}: expected {field.type}, found {value!r}"
        ) from None


def _first_fault(values: Sequence[Any], kind: pa.DataType) -> tuple[int, Any]:
    for number, value in enumerate(values):
        try:
            pa.array([value], type=kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
            return number, value
    return 0, values[0]
