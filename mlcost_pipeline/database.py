"""DuckDB: one in-memory database a process, for opening one costs more than most queries here."""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import duckdb

_lock = threading.Lock()


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of its own to the process's database; temporary views and tables of one are not seen by another.

    Sessions are in UTC. Two threads: the work is shared out by partitions, not by cores of one machine.
    """
    with _lock:
        return _database(os.getpid()).cursor()


@lru_cache(maxsize=1)
def _database(_pid: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 2})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection
