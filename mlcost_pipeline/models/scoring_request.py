"""Rows of an HTTP request as feature rows: the request's own fields by the training's own SQL, the past as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.scoring_columns import BASE, PAST_FEATURES, columns_of, quoted
from mlcost_pipeline.models.scoring_features import settle_types
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.tables import MONEY, TEXT, TIME

_REQUIRED = ("happened_at", "merchant_category", "amount")


def rows_from_request(rows: Sequence[Mapping[str, Any]], model: ModelSettings) -> pa.Table:
    """Feature rows in the order asked, for ``Scorer.score``.

    A row needs ``happened_at`` (ISO text with zone), ``merchant_category`` and ``amount``; ``transaction_id``,
    ``customer_id``, ``terminal_id``, the model's own ``features`` and slices are optional. Features of the past
    (``f_customer_count_7d``, …) are taken as given and are null, "not known", if left out: every shipped family has
    learned a place for null, but a score without the past is weaker than the daily one.

    Raises:
        ModelError: names the row and the field that is missing, unknown or of the wrong kind.
    """
    columns = columns_of(model)
    own = list(dict.fromkeys([*columns.own.values(), *columns.slices]))
    allowed = {*BASE, *own, *columns.past}
    for number, row in enumerate(rows):
        _check(number, row, allowed)
    data = {
        "place": pa.array(range(len(rows)), pa.int64()),
        "transaction_id": _texts(rows, "transaction_id"),
        "happened_at": pa.array([_moment(i, row["happened_at"]) for i, row in enumerate(rows)], TIME),
        "merchant_category": _texts(rows, "merchant_category"),
        "amount": pa.array([_amount(i, row["amount"]) for i, row in enumerate(rows)], MONEY),
        "customer_id": _texts(rows, "customer_id"),
        "terminal_id": _texts(rows, "terminal_id"),
        **{name: _plain(rows, name) for name in own if name not in BASE},
        **{name: _numbers(rows, name) for name in columns.past},
    }
    built = {**columns.row, **{name: quoted(column) for name, column in columns.own.items()}}
    built |= {name: quoted(name) for name in columns.past}
    parts = [quoted(name) for name in ("transaction_id", "happened_at", "merchant_category")]
    parts += ["CAST(amount AS DOUBLE) AS amount", "customer_id", "terminal_id", *map(quoted, columns.slices)]
    parts += [f"{built[name]} AS {quoted(name)}" for name in columns.features]
    return _run(f"SELECT {', '.join(parts)} FROM asked ORDER BY place", pa.table(data))


def _run(sql: str, asked: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("asked", asked)
        found: pa.Table = connection.sql(sql).to_arrow_table()
    return settle_types(found)


def _check(number: int, row: Mapping[str, Any], allowed: set[str]) -> None:
    missing = [name for name in _REQUIRED if row.get(name) is None]
    if missing:
        raise ModelError(f"row {number}: {', '.join(missing)} is missing; needed are {', '.join(_REQUIRED)}")
    unknown = sorted(set(row) - allowed)
    if unknown:
        raise ModelError(f"row {number}: unknown field {', '.join(unknown)}; allowed: {', '.join(sorted(allowed))}")


def _texts(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
    return pa.array([None if row.get(name) is None else str(row[name]) for row in rows], TEXT)


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
    if name not in PAST_FEATURES:
        raise ModelError(f"{name} is no feature of the past")
    for number, row in enumerate(rows):
        value = row.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ModelError(f"row {number}, field {name}: expected a number or null, found {value!r}")
    return pa.array([None if row.get(name) is None else float(row[name]) for row in rows], pa.float64())


def _plain(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
    values = [row.get(name) for row in rows]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool, int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {str}:
        return pa.array(values, TEXT)
    raise ModelError(f"field {name}: expected only numbers or only texts, found {values[:3]!r}")


def _moment(number: int, value: Any) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"row {number}, field happened_at: expected ISO time, found {value!r}") from error
    if moment.tzinfo is None:
        raise ModelError(f"row {number}, field happened_at: needs a zone, for example {value}Z")
    return moment.astimezone(UTC)


def _amount(number: int, value: Any) -> Decimal:
    try:
        amount = Decimal(str(value))
    except InvalidOperation as error:
        raise ModelError(f"row {number}, field amount: expected a number, found {value!r}") from error
    if isinstance(value, bool) or not amount.is_finite() or abs(amount) >= Decimal(10) ** 15:
        raise ModelError(f"row {number}, field amount: expected a finite amount, found {value!r}")
    return amount.quantize(Decimal("1e-6"))
