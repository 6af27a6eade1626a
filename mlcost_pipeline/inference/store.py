"""The file a lookup reads: one SQLite file a version, made from the lists, checked, opened read-only and immutable.

Parquet is the record of truth; this file is derived and can be made again. It holds each user's list, what each user
had seen at the data cut, and the popular and static orders, so that every tier answers from one place.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.errors import PublicationError
from mlcost_pipeline.state import sync_folder
from mlcost_pipeline.warehouse import Warehouse

FORMAT = 1
_TABLES = """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE items (number INTEGER PRIMARY KEY, item_id TEXT NOT NULL);
    CREATE TABLE orders (name TEXT PRIMARY KEY, items BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE users (user_id TEXT PRIMARY KEY, list BLOB, seen BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class StoreFile:
    """A written store: where it lies, and what must be found there."""

    path: Path
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Entry:
    """What a store knows of a user: `items` is None if the model has no list for them, empty if they own everything."""

    items: list[str] | None
    seen: frozenset[str]


def store_folder(warehouse: Warehouse, model: str, version: str) -> Path:
    """Where a version's store lies; it may be gone."""
    return warehouse.root / "artefacts" / model / "publications" / version


def write_store(
    folder: Path,
    *,
    meta: Mapping[str, Any],
    lists: pa.Table,
    empty: list[str],
    seen: pa.Table,
    orders: Mapping[str, list[str]],
) -> StoreFile:
    """Write ``lists.sqlite`` and its manifest into `folder`: aside, fsync, rename; a repeat replaces like by like.

    Args:
        meta: version, model, model_version, data_cut (text) and whatever else a reader should see.
        lists: user_id, rank, item_id, ordered by user and rank.
        empty: users whose list is empty because they own everything.
        seen: user_id, item_id.
        orders: named lists that belong to nobody (``popular``, ``static``).
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".lists.{uuid.uuid4().hex}"
    try:
        _fill(aside, {**meta, "format": FORMAT}, lists, empty, seen, orders)
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
            checksum = hashlib.file_digest(stream, "sha256").hexdigest()
        written = StoreFile(folder / "lists.sqlite", aside.stat().st_size, checksum)
        aside.replace(written.path)
        manifest = {"bytes": written.bytes, "sha256": checksum, "meta": dict(meta)}
        _write_manifest(folder / "lists.json", manifest)
    finally:
        aside.unlink(missing_ok=True)
    return written


def verify_store(folder: Path) -> StoreFile:
    """Check that the file is the one that was written.

    Raises:
        PublicationError: it is missing, cut off or changed; the text says which.
    """
    path = folder / "lists.sqlite"
    try:
        manifest = json.loads((folder / "lists.json").read_bytes())
        size = path.stat().st_size
        if size != manifest["bytes"]:
            raise PublicationError(f"{path}: has {size} bytes, {manifest['bytes']} were written; publish again")
        with path.open("rb") as stream:
            checksum = hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PublicationError(f"{path}: cannot be verified ({error!r}); publish this version again") from error
    if checksum != manifest["sha256"]:
        raise PublicationError(f"{path}: its content is not what was written; publish this version again")
    return StoreFile(path, size, checksum)


class Store:
    """One version, open for reading. It stays readable while anybody holds it, even if its file is removed."""

    def __init__(self, folder: Path) -> None:
        """Verify and open.

        Raises:
            PublicationError: the file is missing, damaged or of another format.
        """
        file = verify_store(folder)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(f"{file.path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        weakref.finalize(self, self._db.close)
        try:
            meta = {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM meta")}
            if meta["format"] != FORMAT:
                raise PublicationError(f"{file.path}: format {meta['format']}, this code reads {FORMAT}")
            self._items: list[str] = [item for (item,) in self._db.execute("SELECT item_id FROM items ORDER BY number")]
            self.orders = {
                name: self._decode(blob) for name, blob in self._db.execute("SELECT name, items FROM orders")
            }
        except (sqlite3.DatabaseError, KeyError, ValueError, IndexError) as error:
            raise PublicationError(f"{file.path}: cannot be read ({error!r}); publish this version again") from error
        self.meta: dict[str, Any] = meta
        self.version = str(meta["version"])
        self.model_version = str(meta["model_version"])
        self.data_cut = datetime.fromisoformat(meta["data_cut"])

    def get(self, user_id: str) -> Entry | None:
        """A user's entry, or None if this version has never heard of them.

        Raises:
            PublicationError: the file was damaged after it was opened.
        """
        try:
            with self._lock:
                row = self._db.execute("SELECT list, seen FROM users WHERE user_id = ?", (user_id,)).fetchone()
            if row is None:
                return None
            return Entry(None if row[0] is None else self._decode(row[0]), frozenset(self._decode(row[1])))
        except UnicodeEncodeError:  # text that no store can hold belongs to nobody
            return None
        except (sqlite3.DatabaseError, ValueError, IndexError) as error:
            raise PublicationError(f"version {self.version}: cannot be read ({error!r}); publish it again") from error

    def _decode(self, blob: bytes) -> list[str]:
        return [self._items[number] for number in np.frombuffer(blob, dtype="<i4").tolist()]


def _fill(
    path: Path,
    meta: Mapping[str, Any],
    lists: pa.Table,
    empty: list[str],
    seen: pa.Table,
    orders: Mapping[str, list[str]],
) -> None:
    columns = [
        lists.column("item_id"),
        seen.column("item_id"),
        pa.array([i for o in orders.values() for i in o], pa.string()),
    ]
    items = pc.unique(pa.chunked_array([c for column in columns for c in _chunks(column)], type=pa.string()))
    items = items.take(pc.sort_indices(items))
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 8192;" + _TABLES)
        db.execute("BEGIN")
        text = ((name, json.dumps(value, sort_keys=True)) for name, value in sorted(meta.items()))
        db.executemany("INSERT INTO meta VALUES (?, ?)", text)
        db.executemany("INSERT INTO items VALUES (?, ?)", enumerate(items.to_pylist()))
        for name, order in sorted(orders.items()):
            db.execute("INSERT INTO orders VALUES (?, ?)", (name, _encode(pa.array(order, pa.string()), items)))
        db.executemany("INSERT INTO users VALUES (?, ?, ?)", _users(lists, empty, seen, items))
        db.execute("COMMIT")
    finally:
        db.close()


def _users(
    lists: pa.Table, empty: list[str], seen: pa.Table, items: pa.Array
) -> Iterator[tuple[str, bytes | None, bytes]]:
    listed = dict(_by_user(lists, items))
    listed.update(dict.fromkeys(empty, b""))
    owned = dict(_by_user(seen, items))
    for user in sorted(listed.keys() | owned.keys()):
        yield user, listed.get(user), owned.get(user, b"")


def _by_user(pairs: pa.Table, items: pa.Array) -> Iterator[tuple[str, bytes]]:
    """Each user's items as a blob; rows of one user must stand together, in their order."""
    if not pairs.num_rows:
        return
    numbers = np.asarray(
        pc.index_in(pairs.column("item_id").cast(pa.string()), value_set=items).to_numpy(), dtype="<i4"
    )
    runs = pc.run_end_encode(pairs.column("user_id").cast(pa.string()).combine_chunks())
    runs = runs.combine_chunks() if isinstance(runs, pa.ChunkedArray) else runs
    start = 0
    for user, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield user, numbers[start:end].tobytes()
        start = end


def _encode(order: pa.Array, items: pa.Array) -> bytes:
    return np.asarray(pc.index_in(order, value_set=items).to_numpy(zero_copy_only=False), dtype="<i4").tobytes()


def _chunks(column: Any) -> list[Any]:
    return list(column.cast(pa.string()).chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with aside.open("w", encoding="utf-8") as stream:
        json.dump(manifest, stream, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
    sync_folder(path.parent)
