"""One attribution from slots to parts: the connection, the buckets in order, and the checks that nothing was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from mlcost_pipeline.cost.engine import derived, devices, ladder
from mlcost_pipeline.cost.engine.dialect import as_money, as_units, prepare, text
from mlcost_pipeline.cost.slots import MEASURES
from mlcost_pipeline.cost.snapshot import Snapshot
from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import BillError

BATCH_ROWS = 262_144
#: Slots that are attributed in one go; a bucket that has more is taken whole.
SLOTS_AT_ONCE = 250_000
_FOREVER = 2**62
#: Parts as they leave the engine, under the columns of the table ``cost_ledger``.
_COLUMNS = "slot_id, part, method, reason, run_id, model, stage, billed, effective, list"
_PARTS = f"SELECT {_COLUMNS}, NULL::VARCHAR AS base FROM parts"
_BALANCE = """
SELECT s.n - p.n AS slots, s.billed - p.billed AS billed, s.effective - p.effective AS effective,
  s.list - p.list AS list
FROM (SELECT count(*) AS n, coalesce(sum(billed), 0) AS billed, coalesce(sum(effective), 0) AS effective,
    coalesce(sum(list), 0) AS list FROM slots) s,
  (SELECT sum(n)::BIGINT AS n, coalesce(sum(billed), 0) AS billed, coalesce(sum(effective), 0) AS effective,
    coalesce(sum(list), 0) AS list FROM (
    SELECT count(*) FILTER (part = 0) AS n, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list
      FROM (SELECT part, billed, effective, list FROM parts WHERE method NOT IN ('occupancy', 'idle'))
    UNION ALL SELECT count(DISTINCT slot_id), sum(billed), sum(effective), sum(list) FROM shared_parts
    UNION ALL SELECT count(*), sum(billed), sum(effective), sum(list) FROM rest_parts WHERE method = 'derived')) p"""

#: Slots of commitments have parts of several rungs; those that do not add up to their slot. There must be none.
_COMMITTED_OFF = """
WITH committed AS (SELECT slot_id, billed, effective, list FROM slots WHERE commitment_status IS NOT NULL),
added AS (SELECT slot_id, sum(billed) AS b, sum(effective) AS e, sum(list) AS l
  FROM parts SEMI JOIN committed USING (slot_id) GROUP BY slot_id)
SELECT slot_id FROM committed LEFT JOIN added USING (slot_id)
WHERE b IS DISTINCT FROM billed OR e IS DISTINCT FROM effective OR l IS DISTINCT FROM list ORDER BY slot_id LIMIT 1"""


class Attribution:
    """Parts of all slots of `source`, a Parquet file of ``billing_slots`` or an Arrow table of its columns.

    :meth:`parts` is read once, to its end; :meth:`device_time` after it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, source: Path | pa.Table, known: Snapshot) -> None:
        self._connection, self._known = connection, known
        if isinstance(source, Path):
            self._source = f"read_parquet({text(str(source))})"
        else:
            connection.register("given_slots", source)
            self._source = "given_slots"

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Record batches of slot_id, part, method, reason, run_id, model, stage, billed, effective, list, base.

        Raises:
            BillError: an amount over its weights exceeds 128 bits, or the parts of a slot do not add up to it.
        """
        run = self._connection.execute
        _know(self._connection, self._known)
        for statement in (*derived.START, devices.START):
            run(statement)
        counts = run(f"SELECT bucket, count(*) FROM {self._source} GROUP BY bucket ORDER BY bucket").fetchall()
        for first, last in _stretches([(int(bucket), int(slots)) for bucket, slots in counts]):
            self._some(first, last)
            yield from self._connection.sql(_PARTS).to_arrow_reader(BATCH_ROWS)
            self._clear()
        yield from derived.derived_parts(self._connection, BATCH_ROWS)

    def device_time(self) -> pa.Table:
        """resource_id, part, method, run_id, model, stage, unit, billed_seconds, ordered by resource and part."""
        return self._connection.sql(devices.RESULT).to_arrow_table()

    def _clear(self) -> None:
        """Let go of a bucket before the next one: two at a time would take twice the memory."""
        self._connection.unregister("shared_parts")
        for table in ladder.TABLES:
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")

    def _some(self, first: int, last: int) -> None:
        run = self._connection.execute
        tags = any(rule.when.tags for rule in self._known.rules)
        source = f"(SELECT * FROM {self._source} WHERE bucket BETWEEN {first} AND {last})"
        for statement in (*ladder.classify(source, tags), *ladder.weigh()):
            run(statement)
        amounts = self._connection.sql(ladder.AMOUNTS).to_arrow_table()
        self._connection.register("held_amounts", as_units(amounts, ("ub", "ue", "ul")))
        run(ladder.HELD)
        self._connection.unregister("held_amounts")
        if (slot := run(ladder.OVERFLOW).fetchone()) is not None:
            raise BillError(
                f"slot {slot[0]}: its amount over a weight of {slot[1]} (seconds × milli-share) exceeds 128 bits; "
                "is the amount or the length of the charge wrong? nothing was put in force"
            )
        run(ladder.shared_parts())
        if (slot := run(ladder.OFF).fetchone()) is not None:
            raise BillError(f"slot {slot[0]}: its parts do not add up to it; nothing was put in force")
        shared = self._connection.sql(ladder.SHARED).to_arrow_table()
        self._connection.register("shared_parts", as_money(shared, MEASURES))
        run("DROP TABLE shared_units")
        run(ladder.rest_parts(sorted(self._known.models), self._known.rules))
        run(ladder.commitment_parts())
        run(ladder.PARTS)
        if (slot := run(_COMMITTED_OFF).fetchone()) is not None:
            raise BillError(f"slot {slot[0]}: its parts do not add up to it; nothing was put in force")
        off = run(_BALANCE).fetchone()
        if off is None or any(off):
            raise BillError(f"buckets {first} to {last}: parts and slots differ by {off}; nothing was put in force")
        for statement in (*derived.COLLECT, *devices.COLLECT):
            run(statement)


def _stretches(counts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Buckets in their order, as many at once as memory is meant for: each look has a cost of its own.

    >>> _stretches([(0, 10), (1, SLOTS_AT_ONCE), (4, 5), (5, 6)])
    [(0, 0), (1, 1), (4, 5)]
    """
    found: list[tuple[int, int]] = []
    held = 0
    for bucket, slots in counts:
        if found and held + slots <= SLOTS_AT_ONCE:
            found[-1] = found[-1][0], bucket
            held += slots
        else:
            found.append((bucket, bucket))
            held = slots
    return found


@contextmanager
def attributing(source: Path | pa.Table, known: Snapshot) -> Iterator[Attribution]:
    """An :class:`Attribution` on a connection of its own, which is closed at the end."""
    connection = connect()
    try:
        prepare(connection)
        yield Attribution(connection, source, known)
    finally:
        connection.close()


def _know(connection: duckdb.DuckDBPyConnection, known: Snapshot) -> None:
    """What attribution looks up: runs, holds and capacities in microseconds, and whose a resource is as a whole."""
    for name, table in (("runs", known.runs), ("holds", known.holds), ("resources", known.resources)):
        connection.register(f"given_{name}", table)
    for statement in (
        "CREATE OR REPLACE TEMP TABLE known_runs AS SELECT row_number() OVER (ORDER BY run_id) AS rn, run_id, "
        "model, stage FROM given_runs",
        f'CREATE OR REPLACE TEMP TABLE known_holds AS SELECT rn, resource_id, epoch_us("start") AS a, '
        f'coalesce(epoch_us("end"), {_FOREVER}) AS b, share_milli FROM given_holds h '
        "JOIN known_runs USING (run_id)",
        f"""CREATE OR REPLACE TEMP TABLE known_capacities AS
        SELECT resource_id, epoch_us(valid_from) AS a, least(coalesce(epoch_us(valid_to), {_FOREVER}),
          coalesce(lead(epoch_us(valid_from)) OVER (PARTITION BY resource_id ORDER BY valid_from), {_FOREVER})) AS b,
          capacity_milli FROM given_resources""",
        "CREATE OR REPLACE TEMP TABLE registered AS SELECT resource_id, arg_max(kind, valid_from) AS kind, "
        "arg_max(capacity_unit, valid_from) AS capacity_unit FROM given_resources GROUP BY resource_id",
        f"""CREATE OR REPLACE TEMP TABLE sole_runs AS
        SELECT resource_id, rn, run_id, model, stage FROM (SELECT resource_id, any_value(rn) AS rn FROM known_holds
          GROUP BY resource_id HAVING count(DISTINCT rn) = 1) LEFT JOIN registered USING (resource_id)
        JOIN known_runs USING (rn)
        WHERE kind IN ('job', 'run') OR (kind IS NULL AND regexp_matches(lower(resource_id), {text(ladder.JOB_ID)}))""",
        "CREATE OR REPLACE TEMP TABLE known_resources AS SELECT resource_id FROM known_holds "
        "UNION SELECT resource_id FROM registered",
    ):
        connection.execute(statement)
