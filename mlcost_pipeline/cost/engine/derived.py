"""Charges on other charges (tax, support, discounts, credits without a resource): they follow their base in proportion.

A derived slot goes to whoever has the charges of its own invoice, or of the account's month where no charge has that
invoice. Each measure follows its own base; whoever has a net credit takes nothing. Weights are counted in a unit as
fine as 128 bits allow, a trillionth of the base or finer; what is below it rounds to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from mlcost_pipeline.cost.engine.dialect import LIMIT
from mlcost_pipeline.errors import BillError

_LEAST_WEIGHT = 10**12
_MEASURES = ("billed", "effective", "list")
_WHOLE_MONTH = "*"

START = (
    "CREATE OR REPLACE TEMP TABLE base (invoice_id VARCHAR, run_id VARCHAR, model VARCHAR, stage VARCHAR, "
    "base VARCHAR, billed DECIMAL(38, 18), effective DECIMAL(38, 18), list DECIMAL(38, 18))",
    "CREATE OR REPLACE TEMP TABLE derived_slots (slot_id VARCHAR, invoice_id VARCHAR, kind VARCHAR, billed HUGEINT, "
    "effective HUGEINT, list HUGEINT)",
)
#: Run once a bucket: what the charges of the bucket are a base for, and the derived slots in it.
COLLECT = (
    "INSERT INTO base SELECT invoice_id, run_id, model, stage, "
    "CASE WHEN reason IS NULL THEN method ELSE method || ':' || reason END, "
    "sum(billed), sum(effective), sum(coalesce(list, 0)) FROM parts GROUP BY ALL",
    "INSERT INTO derived_slots SELECT slot_id, invoice_id, reason, units(billed), units(effective), units(list) "
    "FROM rest_parts WHERE method = 'derived'",
)
_CLAIMS = f"""
CREATE OR REPLACE TEMP TABLE claims AS
WITH scoped AS (SELECT slot_id, coalesce(b.invoice_id, '{_WHOLE_MONTH}') AS scope FROM derived_slots d
  LEFT JOIN (SELECT DISTINCT invoice_id FROM base WHERE invoice_id IS NOT NULL) b USING (invoice_id)),
wanted AS (SELECT DISTINCT scope FROM scoped),
every AS (SELECT '{_WHOLE_MONTH}' AS scope, * FROM base WHERE '{_WHOLE_MONTH}' IN (FROM wanted)
  UNION ALL SELECT invoice_id, * FROM base WHERE invoice_id IN (FROM wanted)),
summed AS (SELECT scope, run_id, model, stage, base, units(sum(billed)) AS billed, units(sum(effective)) AS effective,
  units(sum(list)) AS list FROM every GROUP BY scope, run_id, model, stage, base)
SELECT scope, row_number() OVER (PARTITION BY scope ORDER BY run_id, model, stage, base) - 1 AS number, run_id, model,
  stage, base, greatest(0, billed) AS billed, greatest(0, effective) AS effective, greatest(0, list) AS list
FROM summed"""
_TOTALS = (
    "SELECT scope, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list FROM claims GROUP BY scope"
)
_WEIGHED = f"""
CREATE OR REPLACE TEMP TABLE weighed AS
SELECT c.scope, number, run_id, model, stage, base,
  {", ".join(f"(c.{m} // u.{m}::HUGEINT) AS w_{m}" for m in _MEASURES)},
  {", ".join(f"sum(c.{m} // u.{m}::HUGEINT) OVER one AS u_{m}" for m in _MEASURES)},
  {", ".join(f"sum(c.{m} // u.{m}::HUGEINT) OVER all_ AS d_{m}" for m in _MEASURES)},
  count(*) OVER all_ AS claimants
FROM claims c JOIN claim_units u USING (scope)
WINDOW one AS (PARTITION BY c.scope ORDER BY number ROWS UNBOUNDED PRECEDING), all_ AS (PARTITION BY c.scope)"""
_OVERFLOW = (
    "SELECT slot_id FROM derived_slots WHERE greatest(abs(billed), abs(effective), abs(coalesce(list, 0))) "
    f"> {LIMIT // _LEAST_WEIGHT}::HUGEINT ORDER BY slot_id LIMIT 1"
)
_LARGEST = "SELECT max(greatest(abs(billed), abs(effective), abs(coalesce(list, 0)))) FROM derived_slots"
#: A derived slot has as many parts as there are claimants, so only so many slots are split at a time.
_PARTS_AT_ONCE = 1_000_000
_SIZES = "SELECT (SELECT count(*) FROM derived_slots), coalesce((SELECT max(claimants) FROM weighed), 0)"
_SOME = "CREATE OR REPLACE TEMP TABLE derived_some AS FROM derived_slots ORDER BY slot_id LIMIT ? OFFSET ?"
_COLUMNS = "slot_id, part, method, reason, run_id, model, stage, billed, effective, list, base"


def _parts() -> str:
    shares = ", ".join(
        f"CASE WHEN w.d_{m} = 0 THEN 0 ELSE share_of(coalesce(s.{m}, 0), w.u_{m}, w.w_{m}, w.d_{m}) END AS p_{m}"
        for m in _MEASURES
    )
    rest = ", ".join(
        f"CASE WHEN coalesce(w.d_{m}, 0) = 0 THEN coalesce(s.{m}, 0) ELSE 0 END AS p_{m}" for m in _MEASURES
    )
    return f"""
WITH scoped AS (SELECT d.*, coalesce(b.invoice_id, '{_WHOLE_MONTH}') AS scope FROM derived_some d
  LEFT JOIN (SELECT DISTINCT invoice_id FROM base WHERE invoice_id IS NOT NULL) b USING (invoice_id)),
followed AS (SELECT s.slot_id, w.number AS part, 'derived' AS method, s.kind AS reason, w.run_id, w.model, w.stage,
    w.base, s.list IS NULL AS unlisted, {shares} FROM scoped s JOIN weighed w USING (scope)),
ends AS (SELECT * FROM weighed WHERE number = 0),
left_over AS (SELECT s.slot_id, coalesce(w.claimants, 0) AS part, 'unattributed' AS method, 'charge_type' AS reason,
    NULL::VARCHAR AS run_id, NULL::VARCHAR AS model, NULL::VARCHAR AS stage, NULL::VARCHAR AS base,
    s.list IS NULL AS unlisted, {rest} FROM scoped s LEFT JOIN ends w USING (scope)),
lonely AS (SELECT *, count(*) FILTER (p_billed <> 0 OR p_effective <> 0 OR p_list <> 0) OVER (PARTITION BY slot_id) AS n
  FROM (FROM followed UNION ALL (SELECT slot_id, part, method, reason, run_id, model, stage, base, unlisted,
    p_billed, p_effective, p_list FROM left_over)))
SELECT slot_id, part, method, reason, run_id, model, stage, money(p_billed) AS billed, money(p_effective) AS effective,
  CASE WHEN unlisted THEN NULL ELSE money(p_list) END AS list, base
FROM lonely WHERE p_billed <> 0 OR p_effective <> 0 OR p_list <> 0 OR (n = 0 AND method = 'unattributed')"""


#: Derived slots whose parts do not add up to them; there must be none.
_OFF = """
SELECT slot_id FROM (SELECT slot_id, sum(billed) AS billed, sum(effective) AS effective, sum(list) AS list
  FROM derived_parts GROUP BY slot_id) p FULL JOIN derived_some d USING (slot_id)
WHERE p.billed IS DISTINCT FROM money(d.billed) OR p.effective IS DISTINCT FROM money(d.effective)
  OR p.list IS DISTINCT FROM CASE WHEN d.list IS NULL THEN NULL ELSE money(d.list) END ORDER BY slot_id LIMIT 1"""


def derived_parts(connection: duckdb.DuckDBPyConnection, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Parts of all derived slots, once every bucket was collected.

    Raises:
        BillError: an amount is too large to be split in 128 bits; the text names the slot.
    """
    if (slot := connection.execute(_OVERFLOW).fetchone()) is not None:
        raise BillError(f"slot {slot[0]}: a charge on charges of more than {LIMIT // _LEAST_WEIGHT} units is refused")
    connection.execute(_CLAIMS)
    totals = connection.sql(_TOTALS).to_arrow_table().to_pylist()
    [(largest,)] = connection.execute(_LARGEST).fetchall()
    connection.register("claim_units", _units(totals, LIMIT // max(1, int(largest or 0))))
    connection.execute(_WEIGHED)
    [(slots, claimants)] = connection.execute(_SIZES).fetchall()
    at_once = max(1, _PARTS_AT_ONCE // max(1, int(claimants)))
    for offset in range(0, int(slots), at_once):
        connection.execute(_SOME, [at_once, offset])
        connection.execute(f"CREATE OR REPLACE TEMP TABLE derived_parts AS {_parts()}")
        if (slot := connection.execute(_OFF).fetchone()) is not None:
            raise BillError(f"slot {slot[0]}: its derived parts do not add up to it; nothing was put in force")
        yield from connection.sql(f"SELECT {_COLUMNS} FROM derived_parts").to_arrow_reader(batch_rows)


def _units(totals: list[dict[str, Any]], most: int) -> pa.Table:
    """Per scope and measure the unit that weights are counted in, a power of ten; they add up to `most` at most."""
    columns: dict[str, list[Any]] = {"scope": [row["scope"] for row in totals]}
    for measure in _MEASURES:
        columns[measure] = [str(unit_of(int(row[measure] or 0), most)) for row in totals]
    schema = pa.schema([("scope", pa.string()), *((measure, pa.string()) for measure in _MEASURES)])
    return pa.table(columns, schema=schema)


def unit_of(total: int, most: int) -> int:
    """The smallest power of ten of which `total` has at most `most`.

    >>> unit_of(12_345, 100)
    1000
    """
    unit = 1
    while total // unit > most:
        unit *= 10
    return unit
