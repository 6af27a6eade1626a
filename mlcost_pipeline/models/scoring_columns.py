"""Which columns a scoring model gets, what each is made of, and what the settings forbid.

Features of the row itself are SQL expressions over one transaction, so that training, daily scoring and a single
request compute them by the same words. Features of the past need the warehouse (scoring_features).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.settings import ModelSettings
from mlcost_pipeline.tables import TABLES

VERSION = 1
BASE = ("transaction_id", "happened_at", "merchant_category", "amount", "customer_id", "terminal_id")
OPEN_PREFIX = "feature_"

_HOUR = "((epoch_us(happened_at) % 86400000000) / 3600000000.0)"
_AMOUNT = "CAST(amount AS DOUBLE)"

# name → (columns it is made of, SQL over one transaction). Hours and weekdays are UTC; Monday is 0.
ROW_FEATURES: dict[str, tuple[tuple[str, ...], str]] = {
    "f_category": (("merchant_category",), "merchant_category"),
    "f_hour": (("happened_at",), _HOUR),
    "f_hour_cos": (("happened_at",), f"cos({_HOUR} * pi() / 12)"),
    "f_hour_sin": (("happened_at",), f"sin({_HOUR} * pi() / 12)"),
    "f_log_amount": (("amount",), f"sign({_AMOUNT}) * ln(1 + abs({_AMOUNT}))"),
    "f_weekday": (("happened_at",), "CAST((epoch_us(happened_at) // 86400000000 + 3) % 7 AS DOUBLE)"),
}

# name → (columns it is made of, SQL over the aggregates of scoring_features). Null: there is no past to tell it from.
PAST_FEATURES: dict[str, tuple[tuple[str, ...], str]] = {
    "f_amount_vs_customer": (
        ("amount", "customer_id"),
        "CASE WHEN customer_28d > 0 AND customer_sum_28d > 0 AND amount > 0 "
        f"THEN ln({_AMOUNT} / (CAST(customer_sum_28d AS DOUBLE) / customer_28d)) END",
    ),
    "f_customer_count_1d": (("customer_id",), "CAST(customer_1d AS DOUBLE)"),
    "f_customer_count_7d": (("customer_id",), "CAST(customer_7d AS DOUBLE)"),
    "f_terminal_count_7d": (("terminal_id",), "CAST(terminal_7d AS DOUBLE)"),
    "f_terminal_count_28d": (("terminal_id",), "CAST(terminal_28d AS DOUBLE)"),
    "f_terminal_fraud_rate_7d": (
        ("terminal_id",),
        "CASE WHEN labels_7d > 0 THEN greatest(frauds_7d, 0) / CAST(labels_7d AS DOUBLE) END",
    ),
    "f_terminal_fraud_rate_28d": (
        ("terminal_id",),
        "CASE WHEN labels_28d > 0 THEN greatest(frauds_28d, 0) / CAST(labels_28d AS DOUBLE) END",
    ),
    "f_terminal_known_28d": (("terminal_id",), "CAST(labels_28d AS DOUBLE)"),
}


@dataclass(frozen=True)
class Columns:
    """What to select: base columns, slices beyond them, features of the row, of the past, and the team's own."""

    slices: tuple[str, ...]
    row: dict[str, str]
    past: dict[str, str]
    own: dict[str, str]

    @property
    def features(self) -> list[str]:
        """Names of all feature columns, sorted."""
        return sorted([*self.row, *self.past, *self.own])


def columns_of(model: ModelSettings) -> Columns:
    """Columns by the settings; a feature made of a column in ``never_features`` is left out.

    Raises:
        ModelError: ``features`` asks for what ``never_features`` forbids, under either spelling (with or without the
            prefix ``feature_``), or for the label or an id of the transaction.
    """
    never = {_short(name) for name in model.never_features}
    asked = sorted(name for name in model.features if _short(name) in never)
    if asked:
        raise ModelError(f"features {', '.join(asked)}: also named in never_features; take them out of one of the two")
    leaks = sorted({"is_fraud", "known_at", "transaction_id"} & {_short(name) for name in model.features})
    if leaks:
        raise ModelError(f"features {', '.join(leaks)}: a label or the transaction's own id is never a feature")
    covered = {"amount", "merchant_category", "happened_at"}
    own = {f"f_{_short(name)}": name for name in sorted(model.features) if name not in covered}
    known = {*ROW_FEATURES, *PAST_FEATURES}
    clash = sorted(set(own) & known)
    if clash:
        raise ModelError(f"features {', '.join(own[name] for name in clash)}: the name is taken by a built-in feature")
    return Columns(
        slices=tuple(name for name in dict.fromkeys(model.slices) if name not in BASE),
        row=_allowed(ROW_FEATURES, never),
        past=_allowed(PAST_FEATURES, never),
        own=own,
    )


def check_there(columns: Columns, present: Iterable[str]) -> None:
    """The team's own features and slices must be columns of the transactions.

    Raises:
        ModelError: names the missing ones and those that are there.
    """
    there = set(present)
    missing = sorted({*columns.own.values(), *columns.slices} - there)
    if missing:
        extra = sorted(there - set(TABLES["transactions"].columns))
        raise ModelError(
            f"transactions have no column {', '.join(missing)} (asked for by features or slices); "
            f"beside their own columns they have: {', '.join(extra) or 'none'}"
        )


def quoted(name: str) -> str:
    """A column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _allowed(features: dict[str, tuple[tuple[str, ...], str]], never: set[str]) -> dict[str, str]:
    return {
        name: sql
        for name, (sources, sql) in features.items()
        if not never & set(sources) and name not in never and name.removeprefix("f_") not in never
    }


def _short(name: str) -> str:
    return name.removeprefix(OPEN_PREFIX)
