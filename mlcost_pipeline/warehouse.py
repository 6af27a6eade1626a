"""Where tables, artefacts and state live; the only truth that anything decides on.

Rows never change: parts are immutable Parquet files, written aside and linked, and of rows with one key the one
with the highest ``recorded_at`` wins in the view. Whole tables are written as a version behind one pointer.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import WarehouseError
from mlcost_pipeline.rows import conform
from mlcost_pipeline.state import StateStore, sync_folder
from mlcost_pipeline.tables import RECORDED_AT, SCHEMA_VERSION, TABLES, TIME, WHOLE_TABLES, TableSchema

MAX_PARTS = 256


@dataclass(frozen=True)
class Appended:
    """What an append did: the part's name, its rows, and whether it was new."""

    part: str
    rows: int
    new: bool


class Warehouse:
    """A folder that holds the tables, the artefacts and the state of one team."""

    def __init__(self, root: Path, *, checked: bool = True) -> None:
        """Open the folder, or make it. A migration alone opens one of another version, with `checked` False."""
        self.root = root.resolve()
        self.state = StateStore(self.root / "state")
        if checked:
            self._check_version()

    # ── tables merged by key ────────────────────────────────────────────────────────────────────

    def append(self, table: str, rows: Sequence[Mapping[str, Any]] | pa.Table, *, holds_now: bool = False) -> Appended:
        """Add rows as one immutable part. The part is named by its content: adding the same rows again is a no-op.

        That suits a writer who was killed and repeats itself. A writer who says how things stand now, and may come
        back to a value that was true before (false, true, false), says so with `holds_now`: the rows are then a
        no-op only if the view has them all.

        Raises:
            SchemaError: a row does not fit; nothing is stored.
        """
        schema = self._mergeable(table)
        data = conform(schema, rows)
        name = _content_hash(data)
        folder = self._table_folder(table)
        part = folder / f"{name}.parquet"
        if data.num_rows == 0:
            return Appended(name, 0, new=False)
        serial = 0
        while part.exists() or part.with_suffix(".merged").exists():
            if not holds_now or (serial == 0 and self._holds(table, data)):
                return Appended(part.stem, data.num_rows, new=False)
            serial += 1
            part = folder / f"{name}-{serial}.parquet"
        new = self._link(part, _stamped(data))
        if len(self._parts(table)) > MAX_PARTS:
            self.compact(table)
        return Appended(part.stem, data.num_rows, new)

    def read(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
    ) -> pa.Table:
        """The merged view of a table, ordered by key. `where` is a DuckDB condition with ``?`` parameters."""
        schema = self._mergeable(table)
        chosen = "*" if columns is None else ", ".join(f'"{column}"' for column in columns)
        keys = ", ".join(f'"{column}"' for column in schema.key)
        hide = f"EXCLUDE ({RECORDED_AT})" if columns is None else ""
        condition = f"WHERE {where}" if where else ""
        sql = f'SELECT {chosen} {hide} FROM "{table}" {condition} ORDER BY {keys}'
        found = self._run(sql, params, [table], with_recorded_at=True)
        return _in_schema(found, schema)

    def rows(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Sequence[Any] = (),
    ) -> list[dict[str, Any]]:
        """As :meth:`read`, as Python values: ``Decimal`` for money, aware ``datetime`` for times."""
        found: list[dict[str, Any]] = self.read(table, columns=columns, where=where, params=params).to_pylist()
        return found

    def query(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any] = (),
        *,
        tables: Iterable[str],
        versions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    ) -> pa.Table:
        """Run DuckDB SQL over the views of the named tables.

        Tables that are merged by key show their merged view. Whole tables show the versions in force of all scopes,
        or exactly the (scope, version) pairs that `versions` names for them.
        """
        return self._run(sql, params, list(tables), with_recorded_at=False, versions=versions or {})

    def compact(self, table: str) -> None:
        """Merge a table's parts into one; names of merged parts are remembered, so a repeat stays a no-op."""
        folder = self._table_folder(table)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            parts = self._parts(table)
            if len(parts) < 2:
                return
            view = self._view(table, with_recorded_at=True, parts=parts)
            merged = connect().sql(view).to_arrow_table()
            self._link(folder / f"{_content_hash(merged)}.parquet", merged)
            for part in parts:
                part.with_suffix(".merged").touch()
            sync_folder(folder)
            for part in parts:
                part.unlink(missing_ok=True)

    # ── whole versions behind a pointer ─────────────────────────────────────────────────────────

    def write_version(self, table: str, scope: str, version: str, rows: pa.Table | Sequence[Mapping[str, Any]]) -> None:
        """Write one whole version of a table for a scope; it is not in force before :meth:`point`."""
        data = conform(self._whole(table), rows)
        file = self._version_file(table, scope, version)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._link(file, _stamped(data))

    def write_version_batches(self, table: str, scope: str, version: str, batches: Iterable[pa.RecordBatch]) -> int:
        """As :meth:`write_version`, for more rows than memory holds; each batch is a row group. Returns the rows.

        A version that is there already is left as it is: versions are named by what they are made of.
        """
        schema = self._whole(table)
        file = self._version_file(table, scope, version)
        file.parent.mkdir(parents=True, exist_ok=True)
        aside, rows = file.with_name(f".{file.stem[:40]}.{uuid.uuid4().hex}"), 0
        try:
            with pq.ParquetWriter(aside, schema.stored, compression="zstd") as writer:
                for batch in batches:
                    data = conform(schema, pa.Table.from_batches([batch]))
                    writer.write_table(_stamped(data))
                    rows += data.num_rows
            self._link_aside(aside, file)
        finally:
            aside.unlink(missing_ok=True)
        return rows

    def version_file(self, table: str, scope: str, version: str | None = None) -> Path | None:
        """The Parquet file of one written version (the one in force by default), or None if there is none."""
        self._whole(table)
        chosen = version or self.current(table, scope)
        file = None if chosen is None else self._version_file(table, scope, chosen)
        return file if file is not None and file.exists() else None

    def point(self, table: str, scope: str, version: str) -> None:
        """Put a written version in force, atomically."""
        if not self._version_file(table, scope, version).exists():
            raise WarehouseError(f"table {table}, scope {scope}: version {version} was never written whole")
        self.state.update(f"pointers/{table}/{scope}", lambda _: {"version": version})

    def unpoint(self, table: str, scope: str) -> None:
        """Put no version of a scope in force; what was written stays."""
        self._whole(table)
        self.state.update(f"pointers/{table}/{scope}", lambda _: {"version": None})

    def current(self, table: str, scope: str) -> str | None:
        """The version in force, or None."""
        stored = self.state.get(f"pointers/{table}/{scope}")
        return None if stored is None or stored.value["version"] is None else str(stored.value["version"])

    def read_version(self, table: str, scope: str, version: str | None = None) -> pa.Table:
        """One version of a table (the one in force by default); an empty table if there is none."""
        schema = self._whole(table)
        chosen = version or self.current(table, scope)
        if chosen is None:
            return schema.schema.empty_table()
        file = self._version_file(table, scope, chosen)
        try:
            return _in_schema(pq.read_table(file).drop_columns([RECORDED_AT]), schema)
        except FileNotFoundError as error:
            raise WarehouseError(f"table {table}, scope {scope}: version {chosen} is missing ({file})") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise WarehouseError(f"{file}: is damaged ({error}); make this version again") from error

    def scopes(self, table: str) -> list[str]:
        """Scopes of a whole table that have a version in force."""
        return self.state.names(f"pointers/{table}")

    def pointed(self, table: str) -> list[tuple[str, str]]:
        """(scope, version) of every version of a whole table that is in force."""
        pairs = ((scope, self.current(table, scope)) for scope in self.scopes(table))
        return [(scope, version) for scope, version in pairs if version is not None]

    def versions(self, table: str, scope: str) -> list[str]:
        """Written versions of one scope, in force or not."""
        folder = self._version_file(table, scope, "x").parent
        return sorted(unquote(file.stem) for file in folder.glob("*.parquet")) if folder.is_dir() else []

    def drop_version(self, table: str, scope: str, version: str) -> None:
        """Remove a version that is not in force."""
        if self.current(table, scope) == version:
            raise WarehouseError(f"table {table}, scope {scope}: version {version} is in force and stays")
        self._version_file(table, scope, version).unlink(missing_ok=True)

    # ── files ───────────────────────────────────────────────────────────────────────────────────

    def folder(self, *parts: str) -> Path:
        """A folder for artefacts, made if missing."""
        place = self.root.joinpath("artefacts", *(quote(part, safe="-_.=@+") for part in parts))
        place.mkdir(parents=True, exist_ok=True)
        return place

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a file that is either whole or not there: aside, fsync, rename, fsync of the folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
        sync_folder(path.parent)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _check_version(self) -> None:
        file = self.root / "warehouse.json"
        try:
            found = json.loads(file.read_bytes())["schema_version"]
        except FileNotFoundError:
            self.write_file(file, json.dumps({"schema_version": SCHEMA_VERSION}).encode())
            return
        if found != SCHEMA_VERSION:
            raise WarehouseError(
                f"{file}: schema version {found}, this code reads {SCHEMA_VERSION}; run: mlcost migrate"
            )

    def _mergeable(self, table: str) -> TableSchema:
        if table in WHOLE_TABLES:
            raise WarehouseError(f"table {table} is written whole: use write_version and read_version")
        return _known(table)

    def _whole(self, table: str) -> TableSchema:
        if table not in WHOLE_TABLES:
            raise WarehouseError(f"table {table} is merged by key: use append and read")
        return _known(table)

    def _table_folder(self, table: str) -> Path:
        folder = self.root / "tables" / table
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _version_file(self, table: str, scope: str, version: str) -> Path:
        return self.root / "versions" / table / quote(scope, safe="") / f"{quote(version, safe='')}.parquet"

    def _parts(self, table: str) -> list[Path]:
        return sorted(self._table_folder(table).glob("*.parquet"))

    def _link(self, file: Path, data: pa.Table) -> bool:
        """Write `data` aside and link it to its final name; False if that name was there already."""
        aside = file.with_name(f".{file.stem[:40]}.{uuid.uuid4().hex}")
        try:
            pq.write_table(data, aside, compression="zstd")
            return self._link_aside(aside, file)
        finally:
            aside.unlink(missing_ok=True)

    def _link_aside(self, aside: Path, file: Path) -> bool:
        """Link what was written aside to its final name; False if that name was there already."""
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        try:
            os.link(aside, file)
        except FileExistsError:
            return False
        sync_folder(file.parent)
        return True

    def _holds(self, table: str, data: pa.Table) -> bool:
        """Whether every row of `data` is in the view as it stands."""
        columns = ", ".join(f'"{column}"' for column in data.column_names)
        view = self._run(f'SELECT {columns} FROM "{table}"', [], [table], with_recorded_at=False)
        connection = connect()
        try:
            connection.register("given", data)
            connection.register("standing", view)
            missing = connection.sql(f"SELECT {columns} FROM given EXCEPT SELECT {columns} FROM standing LIMIT 1")
            return len(missing.fetchall()) == 0
        finally:
            connection.close()

    def _run(
        self,
        sql: str,
        params: Sequence[Any] | Mapping[str, Any],
        tables: list[str],
        *,
        with_recorded_at: bool,
        versions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    ) -> pa.Table:
        while True:
            parts = {table: self._listed(table, (versions or {}).get(table)) for table in tables}
            connection = connect()
            try:
                for table in tables:
                    view = self._view(table, with_recorded_at=with_recorded_at, parts=parts[table])
                    connection.execute(f'CREATE TEMP VIEW "{table}" AS {view}')
                found: pa.Table = connection.sql(sql, params=_given(params)).to_arrow_table()
                return found
            except duckdb.Error as error:
                # A compaction may have removed parts after they were listed: then the new list is read.
                if all(part.exists() for listed in parts.values() for part in listed):
                    raise WarehouseError(f"tables {', '.join(tables)}: {error}") from error
            finally:
                connection.close()

    def _listed(self, table: str, versions: Sequence[tuple[str, str]] | None) -> list[Path]:
        """The files that a view of a table is made of."""
        if table not in WHOLE_TABLES:
            return self._parts(table)
        if versions is None:
            versions = self.pointed(table)
        files = [self._version_file(table, scope, version) for scope, version in versions]
        for (scope, version), file in zip(versions, files, strict=True):
            if not file.exists():
                raise WarehouseError(f"table {table}, scope {scope}: version {version} is missing ({file})")
        return files

    def _view(self, table: str, *, with_recorded_at: bool, parts: list[Path]) -> str:
        schema = _known(table)
        # An empty part in today's columns stands first: parts of an older version lack what was added since.
        empty = self.root / "tables" / f".empty-{table}-{len(schema.stored.names)}.parquet"
        if not empty.exists():
            empty.parent.mkdir(parents=True, exist_ok=True)
            self._link(empty, schema.stored.empty_table())
        files = ", ".join("'" + str(part).replace("'", "''") + "'" for part in [empty, *parts])
        source = f"read_parquet([{files}], union_by_name=true, filename='part_file')"
        hidden = "part_file" if with_recorded_at else f"part_file, {RECORDED_AT}"
        if table in WHOLE_TABLES:
            return f"SELECT * EXCLUDE ({hidden}) FROM {source}"
        keys = ", ".join(f'"{column}"' for column in schema.key)
        return (
            f"SELECT * EXCLUDE ({hidden}) FROM {source} "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {RECORDED_AT} DESC, part_file DESC) = 1"
        )


def _known(table: str) -> TableSchema:
    if table not in TABLES:
        raise WarehouseError(f"no table {table!r}; there are: {', '.join(sorted(TABLES))}")
    return TABLES[table]


def _stamped(data: pa.Table) -> pa.Table:
    """Rows with the wall time at which they are recorded."""
    stamp = pa.repeat(pa.scalar(datetime.now(UTC), TIME), data.num_rows)
    return data.append_column(pa.field(RECORDED_AT, TIME, nullable=False), stamp)


def _given(params: Sequence[Any] | Mapping[str, Any]) -> list[Any] | dict[str, Any]:
    return dict(params) if isinstance(params, Mapping) else list(params)


def _content_hash(data: pa.Table) -> str:
    sink = hashlib.sha256()
    for column in data.column_names:
        sink.update(column.encode())
    table = data.combine_chunks()
    with pa.BufferOutputStream() as buffer:
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table)
        sink.update(buffer.getvalue())
    return sink.hexdigest()[:32]


def _in_schema(data: pa.Table, schema: TableSchema) -> pa.Table:
    """Cast the columns that the table declares to its types; others stay as they are."""
    fields = []
    for field in data.schema:
        declared = schema.stored.field(field.name) if field.name in schema.stored.names else field
        fields.append(pa.field(field.name, declared.type, nullable=True))
    return data.cast(pa.schema(fields))
