"""Control sums of raw files: what a file's own columns add up to, exactly, by another path than the readers'.

Readers use Arrow; here DuckDB reads, or Python's csv module what DuckDB does not take (zip archives, lines that
end in several ways). Plain decimals are summed in the database; numbers with exponents or more than 18 decimals, and
binary floats, are summed here without rounding.
"""

from __future__ import annotations

import csv
import glob
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.cost.bills.control_terms import Columns, Control, control_of
from mlcost_pipeline.cost.bills.files import NULLS, columns_of, opened
from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.database import connect
from mlcost_pipeline.tables import TEXT

#: Account and billing period, None where a row does not say it plainly.
Key = tuple[str | None, str | None]
Sums = dict[Key, dict[str, Decimal]]

ControlMaker = Callable[[Columns], Control]

_PLAIN = "'[+-]?[0-9]{1,19}([.][0-9]{0,18})?'"
_FLOATS = ("DOUBLE", "FLOAT")
_INTEGERS = frozenset(f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")) | {
    "INTEGER", "UINTEGER",
}  # fmt: skip
_HALF, _HALF_OF_FLOAT = Decimal("5e-19"), Decimal("5e-13")  # decimals are kept with 18 places, binary floats with 12
_ROWS = 1 << 16
_LONGEST_FIELD = 1 << 24
_LOW_BITS, _FRACTION_BITS = 26, 52
_BIAS = 1075  # of the exponent of a double whose fraction is read as an integer


@dataclass
class ControlSums:
    """What files add up to: by account and period the exact sum of each measure, and how many rows there are.

    `half_units` is, by measure, the most that rounding a row may take off: half a unit of the last place kept, for each
    column that the row's amount is made of.
    """

    sums: Sums = field(default_factory=dict)
    rows: Counter[Key] = field(default_factory=Counter)
    half_units: dict[str, Decimal] = field(default_factory=dict)

    def add(self, key: Key, measure: str, amount: Decimal) -> None:
        kept = self.sums.setdefault(key, {})
        kept[measure] = EXACT.add(kept.get(measure, Decimal(0)), amount)


def control_sums(format: str, files: Sequence[Path], *, by_csv_module: bool = False) -> ControlSums | None:
    """What the columns of the files add up to; None where it is not said how files of that format are added up.

    `by_csv_module` reads every CSV with Python's csv module, which is slower and takes some that DuckDB takes wrongly.
    """
    found = ControlSums()
    for file in files:
        made = control_of(format, file)
        if made is None:
            return None
        _add_file(found, file, made, by_csv_module=by_csv_module)
    return found


def _add_file(found: ControlSums, file: Path, made: ControlMaker, *, by_csv_module: bool) -> None:
    names, connection = columns_of(file), connect()
    try:
        if file.suffix == ".parquet":
            source = f"read_parquet({_quoted(file)}, hive_partitioning = false)"
            wide = _too_wide(file)
            return _Summed(connection, partial(_with_texts, file, wide) if wide else source, made).add_to(found)
        if file.suffix != ".zip" and not by_csv_module:
            try:
                return _Summed(connection, _read_csv(file, names), made, names).add_to(found)
            except duckdb.Error:  # the csv module takes more than DuckDB, such as lines that end in several ways
                connection.close()
                connection = connect()
        return _Summed(connection, partial(_rows_of, file, len(names)), made, names).add_to(found)
    finally:
        connection.close()


class _Summed:
    """One file and how it is added up; `source` is SQL that reads it, or gives its rows anew each time it is called.

    `names` are the columns of a CSV, whose rows have them as c0, c1 and so on.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, source: str | Callable[[], pa.RecordBatchReader],
        made: ControlMaker, names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self._connection, self._source = connection, source
        if names is None:
            with self._read() as rows:
                shape = connection.sql(f"DESCRIBE FROM {rows}").fetchall()
            types = {name: str(kind) for name, kind, *_ in shape}
            columns = Columns({name: _sql_of(name, kind) for name, kind in types.items()}, types)
        else:
            columns = Columns({name: f"c{n}" for n, name in enumerate(names)}, dict.fromkeys(names, "VARCHAR"))
        self._control = made(columns)
        self._types = [columns.types[term.column] for term in self._control.terms]
        rows = ", ".join(f"CASE WHEN {term.where} THEN {columns.sql[term.column]} END AS t{n}"
                         for n, term in enumerate(self._control.terms))  # fmt: skip
        self._rows = f"SELECT {self._control.account} AS account, {self._control.period} AS period, {rows} FROM "

    def add_to(self, found: ControlSums) -> None:
        """Add the file's rows and sums; nothing is added where the file cannot be read to its end."""
        wanted = ", ".join(f"{self._plain_sum(n)} AS s{n}, count(*) FILTER ({self._odd(n)}) AS m{n}"
                           for n in range(len(self._types)))  # fmt: skip
        with self._read() as source:
            sql = f"SELECT account, period, count(*), {wanted} FROM ({self._rows}{source}) GROUP BY account, period"
            told = self._connection.sql(sql).fetchall()
        odd = [n for n in range(len(self._types)) if any(row[4 + 2 * n] for row in told)]
        more = list(self._odd_sums(odd)) if odd else []
        for account, period, rows, *numbers in told:
            found.rows[account, period] += rows
            more += [((account, period), n, Decimal(amount or 0)) for n, amount in enumerate(numbers[::2])]
        for key, n, amount in more:
            term = self._control.terms[n]
            found.add(key, term.measure, EXACT.multiply(amount, Decimal(term.sign)))
        for term, kind in zip(self._control.terms, self._types, strict=True):
            half = EXACT.multiply(_HALF_OF_FLOAT if kind in _FLOATS else _HALF, Decimal(term.columns_a_row))
            found.half_units[term.measure] = max(half, found.half_units.get(term.measure, half))

    def _odd_sums(self, odd: Sequence[int]) -> Iterator[tuple[Key, int, Decimal]]:
        """What the database cannot add up exactly."""
        columns = ", ".join(f"CASE WHEN {self._odd(n)} THEN t{n} END AS t{n}" for n in odd)
        anywhere = " OR ".join(self._odd(n) for n in odd)
        with self._read() as source:
            sql = f"SELECT account, period, {columns} FROM ({self._rows}{source}) WHERE {anywhere}"
            for batch in self._connection.sql(sql).to_arrow_reader(_ROWS):
                keys = pa.table(batch.columns[:2], ["account", "period"]).group_by(["account", "period"])
                for pair in keys.aggregate([]).to_pylist():
                    mine = batch.filter(_same(batch, pair))
                    for n in odd:
                        values = mine.column(f"t{n}").drop_null()
                        exact = _of_floats if self._types[n] in _FLOATS else _of_texts
                        yield (pair["account"], pair["period"]), n, exact(values)

    def _plain_sum(self, n: int) -> str:
        if self._types[n] in _FLOATS:
            return "NULL"
        if not _is_exact(self._types[n]):
            return f"sum(CAST(CASE WHEN regexp_full_match(t{n}, {_PLAIN}) THEN t{n} END AS DECIMAL(38, 18)))"
        return f"sum(t{n})"

    def _odd(self, n: int) -> str:
        if self._types[n] in _FLOATS:
            return f"t{n} IS NOT NULL"
        return "false" if _is_exact(self._types[n]) else f"NOT regexp_full_match(t{n}, {_PLAIN})"

    @contextmanager
    def _read(self) -> Iterator[str]:
        if isinstance(self._source, str):
            yield self._source
            return
        self._connection.register("control_rows", self._source())
        try:
            yield "control_rows"
        finally:
            self._connection.unregister("control_rows")


def _same(batch: pa.RecordBatch, pair: dict[str, str | None]) -> pa.Array:
    equal = [
        pc.is_null(batch.column(name)) if value is None else pc.fill_null(pc.equal(batch.column(name), value), False)
        for name, value in pair.items()
    ]
    return pc.and_(*equal)


def _rows_of(file: Path, width: int) -> pa.RecordBatchReader:
    """The rows of a CSV by Python's csv module, as texts."""
    schema = pa.schema([(f"c{n}", TEXT) for n in range(width)])

    def rows() -> Iterator[pa.RecordBatch]:
        before = csv.field_size_limit(_LONGEST_FIELD)
        try:
            with opened(file) as stream:
                lines = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
                next(lines, None)
                while chosen := list(islice((line for line in lines if line), _ROWS // 8)):
                    columns = [
                        [None if text in NULLS else text for text in texts] for texts in zip(*chosen, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays([pa.array(texts, TEXT) for texts in columns], schema=schema)
        finally:
            csv.field_size_limit(before)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _too_wide(file: Path) -> list[str]:
    """Columns of decimals of more than 38 digits, which DuckDB would read as doubles."""
    return [field.name for field in pq.read_schema(file) if pa.types.is_decimal256(field.type)]


def _with_texts(file: Path, wide: Sequence[str]) -> pa.RecordBatchReader:
    """The rows of a Parquet file, with texts in place of decimals that DuckDB does not have."""
    schema = pa.schema([(f.name, TEXT if f.name in wide else f.type) for f in pq.read_schema(file)])

    def rows() -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(file, pre_buffer=False) as stored:
            for batch in stored.iter_batches():
                columns = zip(batch.columns, schema, strict=True)
                yield pa.RecordBatch.from_arrays([column.cast(field.type) for column, field in columns], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _read_csv(file: Path, names: Sequence[str]) -> str:
    columns = ", ".join(f"'c{n}': 'VARCHAR'" for n in range(len(names)))
    nulls = ", ".join(f"'{text}'" for text in NULLS)
    packed = "gzip" if file.suffix == ".gz" else "none"
    return (
        f"read_csv({_quoted(file)}, auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"columns = {{{columns}}}, nullstr = [{nulls}], compression = '{packed}', hive_partitioning = false)"
    )


def _quoted(file: Path) -> str:
    return "'" + glob.escape(str(file)).replace("'", "''") + "'"


def _sql_of(name: str, kind: str) -> str:
    """SQL of a Parquet column: a number, or the text of whatever else it is."""
    named = '"' + name.replace('"', '""') + '"'
    return named if kind in _FLOATS or _is_exact(kind) else f"CAST({named} AS VARCHAR)"


def _is_exact(kind: str) -> bool:
    return kind.startswith("DECIMAL") or kind in _INTEGERS


def _of_texts(values: pa.Array) -> Decimal:
    total = Decimal(0)
    for text, times in Counter(values.to_pylist()).items():
        total = EXACT.add(total, EXACT.multiply(Decimal(text.strip()), Decimal(times)))
    return total


def _of_floats(values: pa.Array) -> Decimal:
    """The exact sum of finite doubles: fractions added up as integers, exponent by exponent, from their bits."""
    bits = values.cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
    exponents = (bits >> _FRACTION_BITS) & 0x7FF
    fractions = (bits & ((1 << _FRACTION_BITS) - 1)) | np.where(exponents > 0, np.int64(1 << _FRACTION_BITS), 0)
    exponents, signs = np.maximum(exponents, 1), np.where(bits < 0, -1, 1)
    # Sums of halves of 26 bits over a batch stay far below 2^53, so doubles hold them exactly.
    low = np.bincount(exponents, weights=signs * (fractions & ((1 << _LOW_BITS) - 1)))
    high = np.bincount(exponents, weights=signs * (fractions >> _LOW_BITS))
    total = sum(((int(high[e]) << _LOW_BITS) + int(low[e])) << int(e) for e in np.unique(exponents))
    return EXACT.divide(Decimal(total), Decimal(2**_BIAS))
