"""One file's columns → a table's columns, as ``sources`` in mlcost.yaml says, with every dropped row counted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Choice, Column, Condition, Source
from mlcost_pipeline.sources.convert import Unfit, as_text, convert, day_and_hour, plain
from mlcost_pipeline.sources.identity import content_ids
from mlcost_pipeline.tables import REAL, TEXT, TableSchema


@dataclass(frozen=True)
class Mapped:
    """Rows of one file in the table's schema, and why others were dropped.

    ``numbers[i]`` is the row of the file (from 1, the header not counted) that row i came from.
    """

    rows: pa.Table
    rows_read: int
    dropped: dict[str, int]
    numbers: pa.Array


def referenced(source: Source) -> list[str]:
    """Every column of the file that the mapping names, sorted."""
    names: set[str] = {condition.column for condition in source.keep}
    for column in source.columns.values():
        names.update(name for name in (column.column, column.hour_column) if name)
        names.update(condition.column for choice in column.choices or [] for condition in choice.when)
    return sorted(names)


def id_column(schema: TableSchema, source: Source) -> str | None:
    """The key that the mapping leaves out and that is filled with a hash of the row's content."""
    first = schema.key[0]
    return first if first not in source.columns else None


def as_written(source: Source, found: Iterable[str], schema: TableSchema) -> Source:
    """A source without a mapping takes each column of the file that the table has, as it is."""
    if source.columns:
        return source
    ours = {name: Column(column=name) for name in found if name in schema.columns}
    return source.model_copy(update={"columns": ours})


def check_columns(file: Path, found: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse a file that lacks a column which the mapping names.

    Raises:
        SourceError: with the columns that the file does have, and the nearest name.
    """
    has = list(found)
    for name in needed:
        if name not in has:
            near = difflib.get_close_matches(name, has, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SourceError(
                f"{file}: column {name!r} is missing{hint} (the file has: {', '.join(has)}); "
                "correct the mapping in mlcost.yaml or the file, nothing of it was taken"
            )


def map_rows(file: Path, raw: pa.Table, source: Source, schema: TableSchema, hash_columns: list[str]) -> Mapped:
    """Map one file.

    Args:
        hash_columns: columns of the file whose content makes the id, where the mapping names none.

    Raises:
        SourceError: a missing column, a value that does not fit, a required value that is null.
    """
    source = as_written(source, raw.column_names, schema)
    open_id = id_column(schema, source)
    check_columns(file, raw.column_names, [*referenced(source), *(hash_columns if open_id else [])])
    mapper = _Mapper(file, raw, source)
    keep, dropped = mapper.keep()
    columns: dict[str, pa.Array] = {}
    for name, column in source.columns.items():
        kind = schema.schema.field(name).type if name in schema.columns else REAL
        is_json = name in schema.columns and name in _json_columns(schema)
        columns[name] = mapper.column(name, column, kind, keep, is_json)
    if open_id is not None:
        columns[open_id] = content_ids({name: mapper.plain(name) for name in sorted(hash_columns)}).filter(keep)
    numbers = pa.array(range(1, raw.num_rows + 1)).filter(keep)
    for field in schema.schema:
        column_now = columns.setdefault(field.name, pa.nulls(len(numbers), field.type))
        if not field.nullable and column_now.null_count:
            _refuse_null(file, source, field.name, numbers[pc.index(pc.is_null(column_now), True).as_py()].as_py())
    return Mapped(pa.table(columns), raw.num_rows, dropped, numbers)


def _json_columns(schema: TableSchema) -> frozenset[str]:
    """JSON and text share an Arrow type; of the tables that have sources only these hold JSON."""
    return frozenset({"attributes", "values", "faults", "slices", "budget", "gate"} & set(schema.columns))


def _refuse_null(file: Path, source: Source, name: str, row: int) -> None:
    mapped = source.columns.get(name)
    if mapped is None:
        raise SourceError(f"{file}: {name} must have a value, and the mapping has no such column; add it to columns")
    theirs = mapped.column or name
    raise SourceError(
        f"{file}, row {row}, column {theirs!r}: is empty, and {name} must have a value; correct the file, "
        f"or drop such rows with keep: [{{column: {theirs}, not_null: true}}]"
    )


class _Mapper:
    """The columns of one file as plain arrays, made once each."""

    def __init__(self, file: Path, raw: pa.Table, source: Source) -> None:
        self._file, self._raw, self._source = file, raw, source
        self._plain: dict[str, pa.Array] = {}

    def plain(self, name: str) -> pa.Array:
        if name not in self._plain:
            self._plain[name] = plain(self._raw.column(name), self._source.null_values)
        return self._plain[name]

    def keep(self) -> tuple[pa.Array, dict[str, int]]:
        """The mask of rows to keep, and how many rows each condition was the first to drop."""
        kept = pa.repeat(pa.scalar(True), self._raw.num_rows)
        dropped: dict[str, int] = {}
        for condition in self._source.keep:
            holds = self._holds(condition)
            lost = pc.sum(pc.and_(kept, pc.invert(holds))).as_py() or 0
            if lost:
                dropped[f"keep: {_say(condition)}"] = int(lost)
            kept = pc.and_(kept, holds)
        return kept, dropped

    def column(self, name: str, column: Column, kind: pa.DataType, keep: pa.Array, is_json: bool) -> pa.Array:
        """One column of ours over the kept rows."""
        zone = self._source.time_zone
        if column.choices is not None:
            array = self._choose(column.choices, column.otherwise).filter(keep)
        elif column.column is None:
            array = pa.repeat(_constant(column.value), int(pc.sum(keep).as_py() or 0))
        else:
            array = self.plain(column.column).filter(keep)
        try:
            if column.day_origin is not None:
                hours = self.plain(column.hour_column).filter(keep) if column.hour_column else None
                return day_and_hour(array, hours, datetime.combine(column.day_origin, time()), zone)
            for step in column.transform:
                array = _TRANSFORMS[step](as_text(array))
            return convert(array, kind, zone, is_json=is_json)
        except Unfit as fault:
            row = pc.indices_nonzero(keep)[fault.index].as_py() + 1 if len(array) else 0
            raise self._refused(name, column, row, fault) from fault
        except (pa.ArrowException, ValueError) as fault:  # day counts: no single conversion to bisect
            raise self._refused(name, column, self._first_bad_day(column, keep), fault) from fault

    def _refused(self, name: str, column: Column, row: int, fault: Exception) -> SourceError:
        theirs = column.column or "(constant)"
        return SourceError(
            f"{self._file}, row {row}, column {theirs!r} (our {name}): {fault}; "
            "correct the file, or its mapping in mlcost.yaml; nothing of it was taken"
        )

    def _first_bad_day(self, column: Column, keep: pa.Array) -> int:
        for name, kind in ((column.column, pa.int64()), (column.hour_column, REAL)):
            if name is None:
                continue
            try:
                convert(self.plain(name).filter(keep), kind)
            except Unfit as fault:
                return int(pc.indices_nonzero(keep)[fault.index].as_py()) + 1
        return 0

    def _choose(self, choices: list[Choice], otherwise: str | float | bool | None) -> pa.Array:
        """The value of the first choice whose conditions all hold."""
        values = [choice.value for choice in choices] + ([] if otherwise is None else [otherwise])
        as_words = any(isinstance(value, str) for value in values)
        kind = TEXT if as_words else _constant(values[0]).type
        chosen = pa.repeat(pa.scalar(otherwise, kind), self._raw.num_rows)
        for choice in reversed(choices):
            holds = pa.repeat(pa.scalar(True), self._raw.num_rows)
            for condition in choice.when:
                holds = pc.and_(holds, self._holds(condition))
            chosen = pc.if_else(holds, pa.scalar(choice.value, kind), chosen)
        return chosen

    def _holds(self, condition: Condition) -> pa.Array:
        """Whether the condition holds, row by row; null holds for nothing but ``not_null: false``."""
        array = self.plain(condition.column)
        if condition.not_null is not None:
            return pc.is_valid(array) if condition.not_null else pc.is_null(array)
        if condition.matches is not None:
            found = pc.match_substring_regex(as_text(array), f"^(?:{condition.matches})$")
        elif condition.starts_with is not None:
            found = pc.starts_with(as_text(array), condition.starts_with)
        elif condition.equals is not None:
            found = self._equal(condition, array, condition.equals)
        elif condition.not_equals is not None:
            found = pc.invert(self._equal(condition, array, condition.not_equals))
        else:
            numbers = self._numbers(condition, array)
            if condition.above is not None:
                found = pc.greater(numbers, condition.above)
            elif condition.at_least is not None:
                found = pc.greater_equal(numbers, condition.at_least)
            else:
                found = pc.less(numbers, condition.below)
        return pc.fill_null(found, False)

    def _equal(self, condition: Condition, array: pa.Array, value: str | float | bool) -> pa.Array:
        if isinstance(value, str):
            return pc.equal(as_text(array), value)
        if isinstance(value, bool):
            return pc.equal(self._converted(condition, array, pa.bool_()), value)
        return pc.equal(self._numbers(condition, array), value)

    def _numbers(self, condition: Condition, array: pa.Array) -> pa.Array:
        return self._converted(condition, array, REAL)

    def _converted(self, condition: Condition, array: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return convert(array, kind)
        except Unfit as fault:
            raise SourceError(
                f"{self._file}, row {fault.index + 1}, column {condition.column!r} (condition {_say(condition)}): "
                f"{fault}; correct the file, or its mapping in mlcost.yaml; nothing of it was taken"
            ) from fault


_TRANSFORMS = {"upper": pc.utf8_upper, "lower": pc.utf8_lower, "strip": pc.utf8_trim_whitespace}


def _constant(value: str | float | bool | None) -> pa.Scalar:
    return pa.scalar(value, TEXT if isinstance(value, str) else None)


def _say(condition: Condition) -> str:
    comparison = condition.model_dump(exclude_none=True, exclude={"column"})
    return " ".join(f"{condition.column} {name} {value}" for name, value in comparison.items())
