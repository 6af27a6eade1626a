"""Transactions of a scoring model with their features, by DuckDB over the warehouse; no feature looks ahead.

A feature of a transaction at t sees transactions strictly before t (one at the same instant is never past) and labels
that were known at t or before. The same query serves training and daily scoring; a request uses its row half.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import Cuts
from mlcost_pipeline.models.scoring_columns import Columns, check_there, columns_of, quoted
from mlcost_pipeline.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from mlcost_pipeline.warehouse import Warehouse

LOOKBACK = timedelta(days=28)

# $1 begin of rows, $2 their end, $3 moment of knowledge, $4 begin of the past
_SQL = """
WITH held AS (
    SELECT row_key FROM quarantine
    WHERE table_name = 'transactions' AND "from" <= $3 AND ("until" IS NULL OR "until" > $3)
), payments AS (
    SELECT *, epoch_us(happened_at) AS at_us, CAST(amount AS DECIMAL(28, 6)) AS exact,
           transaction_id IN (SELECT row_key FROM held) AS is_held
    FROM transactions WHERE happened_at < $2
), near AS (
    SELECT * FROM payments WHERE happened_at >= $4
), customers AS (
    SELECT transaction_id,
           count(*) FILTER (NOT is_held) OVER d1 AS customer_1d,
           count(*) FILTER (NOT is_held) OVER d7 AS customer_7d,
           count(*) FILTER (NOT is_held) OVER d28 AS customer_28d,
           sum(exact) FILTER (NOT is_held) OVER d28 AS customer_sum_28d
    FROM near WHERE customer_id IS NOT NULL
    WINDOW d1 AS (PARTITION BY customer_id ORDER BY at_us RANGE BETWEEN {day} PRECEDING AND 1 PRECEDING),
           d7 AS (PARTITION BY customer_id ORDER BY at_us RANGE BETWEEN {week} PRECEDING AND 1 PRECEDING),
           d28 AS (PARTITION BY customer_id ORDER BY at_us RANGE BETWEEN {month} PRECEDING AND 1 PRECEDING)
), terminals AS (
    SELECT transaction_id,
           count(*) FILTER (NOT is_held) OVER d7 AS terminal_7d,
           count(*) FILTER (NOT is_held) OVER d28 AS terminal_28d
    FROM near WHERE terminal_id IS NOT NULL
    WINDOW d7 AS (PARTITION BY terminal_id ORDER BY at_us RANGE BETWEEN {week} PRECEDING AND 1 PRECEDING),
           d28 AS (PARTITION BY terminal_id ORDER BY at_us RANGE BETWEEN {month} PRECEDING AND 1 PRECEDING)
), told AS (
    -- a later label of the same transaction corrects the earlier one: no new label, a change of the frauds
    SELECT transaction_id, known_at, is_fraud, CAST(is_fraud AS BIGINT) AS fraud,
           lag(CAST(is_fraud AS BIGINT)) OVER (PARTITION BY transaction_id ORDER BY known_at) AS before
    FROM labels WHERE known_at <= $3
), changes AS (
    SELECT terminal_id, epoch_us(known_at) AS at_us, NULL AS transaction_id,
           CASE WHEN before IS NULL THEN 1 ELSE 0 END AS labels, fraud - coalesce(before, 0) AS frauds
    FROM told JOIN payments USING (transaction_id)
    WHERE terminal_id IS NOT NULL AND known_at >= $4 AND NOT is_held
    UNION ALL
    SELECT terminal_id, at_us, transaction_id, 0, 0 FROM near WHERE terminal_id IS NOT NULL
), known AS (
    SELECT transaction_id, labels_7d, frauds_7d, labels_28d, frauds_28d FROM (
        SELECT transaction_id,
               sum(labels) OVER d7 AS labels_7d, sum(frauds) OVER d7 AS frauds_7d,
               sum(labels) OVER d28 AS labels_28d, sum(frauds) OVER d28 AS frauds_28d
        FROM changes
        WINDOW d7 AS (PARTITION BY terminal_id ORDER BY at_us RANGE BETWEEN {week} PRECEDING AND CURRENT ROW),
               d28 AS (PARTITION BY terminal_id ORDER BY at_us RANGE BETWEEN {month} PRECEDING AND CURRENT ROW)
    ) WHERE transaction_id IS NOT NULL
), truth AS (
    SELECT transaction_id, arg_max(is_fraud, known_at) AS is_fraud, max(known_at) AS known_at
    FROM told GROUP BY transaction_id
)
SELECT p.transaction_id, p.happened_at, p.merchant_category, CAST(p.amount AS DOUBLE) AS amount, p.customer_id,
       p.terminal_id, {columns} truth.is_fraud, truth.known_at, p.is_held
FROM (SELECT * FROM near LEFT JOIN customers USING (transaction_id) LEFT JOIN terminals USING (transaction_id)
      LEFT JOIN known USING (transaction_id)) AS p
LEFT JOIN truth ON truth.transaction_id = p.transaction_id
WHERE p.happened_at >= $1
ORDER BY p.happened_at, p.transaction_id
"""


def scoring_tables(
    warehouse: Warehouse, model: ModelSettings, moments: Cuts
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """``rows`` from ``training_days`` before the training cut to the data cut, without those in quarantine.

    Raises:
        ModelError: no rows remain.
    """
    begin = moments.training_cut - timedelta(days=model.windows.training_days)
    rows = _select(warehouse, model, begin, moments.data_cut, moments.data_cut)
    free = rows.filter(pc.invert(rows["is_held"])).drop_columns(["is_held"])
    if free.num_rows == 0:
        raise ModelError(
            f"no transactions from {begin.isoformat()} to {moments.data_cut.isoformat()} outside quarantine; "
            "import transactions first"
        )
    return {"rows": free}, {"quarantined": rows.num_rows - free.num_rows}


def scoring_rows(
    warehouse: Warehouse, settings: Settings, model: str, start: datetime, end: datetime, known_at: datetime
) -> pa.Table:
    """Rows to score, ``start <= happened_at < end``, exactly as a features file would hold them at ``known_at``.

    Rows in quarantine are scored too (a payment needs an answer) but are nobody's past. Sorted by time, then id.
    """
    rows = _select(warehouse, settings.model(model), start, end, known_at)
    return rows.drop_columns(["is_held"])


def _select(warehouse: Warehouse, model: ModelSettings, begin: datetime, end: datetime, known_at: datetime) -> pa.Table:
    columns = columns_of(model)
    check_there(columns, warehouse.query("SELECT * FROM transactions LIMIT 0", tables=["transactions"]).column_names)
    day = 86_400_000_000
    sql = _SQL.format(day=day, week=7 * day, month=28 * day, columns=_selected(columns))
    params = [begin, end, known_at, begin - LOOKBACK]
    found = warehouse.query(sql, params, tables=["transactions", "labels", "quarantine"])
    return settle_types(found)


def _selected(columns: Columns) -> str:
    built = {**columns.row, **columns.past, **{name: quoted(column) for name, column in columns.own.items()}}
    parts = [f"p.{quoted(name)}" for name in columns.slices]
    parts += [f"{built[name]} AS {quoted(name)}" for name in columns.features]
    return "".join(f"{part}, " for part in parts)


def settle_types(rows: pa.Table) -> pa.Table:
    """Features as texts or doubles, whatever numbers, flags or decimals they came as."""
    fields = []
    for field in rows.schema:
        kind = field.type
        if field.name.startswith("f_"):
            textual = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
            kind = pa.string() if textual else pa.float64()
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", tz="UTC")
        fields.append(pa.field(field.name, kind))
    booleans = [f.name for f in rows.schema if pa.types.is_boolean(f.type) and f.name.startswith("f_")]
    for name in booleans:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
    return rows.cast(pa.schema(fields))
