"""Which columns of a raw file add up to each measure, said a second time and in SQL, apart from the readers.

The readers convert lines and add up what they made; control sums are taken from the file itself, so that a line that a
reader loses, doubles, rounds wrongly or reads from the wrong column shows. What the columns mean is in the readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcost_pipeline.cost.bills.azure_columns import columns_by_use
from mlcost_pipeline.cost.bills.cur_columns import layout_of
from mlcost_pipeline.cost.bills.files import columns_of

_USAGE = "'Usage', 'SavingsPlanCoveredUsage', 'DiscountedUsage'"
_COVERED, _NEGATION = "SavingsPlanCoveredUsage", "'SavingsPlanNegation', 'SavingsPlanUpfrontFee'"
_OWN_COST = "'SavingsPlanCoveredUsage', 'DiscountedUsage', 'SavingsPlanRecurringFee', 'RIFee'"
_UNUSED = ("reservation_unused_amortized_upfront_fee_for_billing_period", "reservation_unused_recurring_fee")


@dataclass(frozen=True)
class Term:
    """A column of the file that is added to a measure (`sign` 1) or taken off it (-1), for the rows `where` is true.

    `columns_a_row` is how many columns one row's amount of that measure is made of at most.
    """

    measure: str
    column: str
    sign: int = 1
    where: str = "true"
    columns_a_row: int = 1


@dataclass(frozen=True)
class Control:
    """How to add a file up: SQL of the account and the billing period of a row, and the terms of each measure."""

    account: str
    period: str
    terms: Sequence[Term]


@dataclass(frozen=True)
class Columns:
    """SQL of a file's columns by the file's own name of each; `types` by the same names, in DuckDB's words."""

    sql: Mapping[str, str]
    types: Mapping[str, str]

    def text(self, name: str | None) -> str:
        """SQL of a column's text without outer blanks; null where it is blank or the file has no such column."""
        return "CAST(NULL AS VARCHAR)" if name is None else f"nullif(trim(CAST({self.sql[name]} AS VARCHAR)), '')"

    def time(self, name: str | None) -> str:
        """SQL of a time in UTC; null where it is none."""
        return f"(TRY_CAST({self.text(name)} AS TIMESTAMPTZ) AT TIME ZONE 'UTC')"


def control_of(format: str, path: Path) -> Callable[[Columns], Control] | None:
    """How files of a format are added up; None for a format of which that is not said."""
    makers = {"focus": _focus, "cur2": _cur, "cur_legacy": _cur, "azure_ea": _azure}
    return None if format not in makers else lambda columns: makers[format](path, columns)


def _focus(path: Path, columns: Columns) -> Control:
    present = columns_of(path)
    measures = {"billed": "BilledCost", "effective": "EffectiveCost", "list": "ListCost"}
    terms = [Term(measure, name) for measure, name in measures.items() if name in present]
    # A month begins in the provider's zone, at most 14 hours before it does in UTC.
    period = f"strftime({columns.time('BillingPeriodStart')} + INTERVAL 14 HOURS, '%Y-%m')"
    return Control(columns.text("BillingAccountId"), period, terms)


def _azure(path: Path, columns: Columns) -> Control:
    own = columns_by_use(path)
    terms = [Term("billed", own["cost"]), Term("effective", own["cost"])]
    terms += [Term("list", own["list"])] if "list" in own else []
    account = ", ".join(columns.text(own.get(use)) for use in ("account", "profile", "sub_account"))
    starts = f"coalesce({columns.text(own.get('period_start'))}, {columns.text(own['date'])})"
    # 04/05/2026 is April or May by what the rest of the file says, so such files are compared as a whole.
    period = f"nullif(regexp_extract({starts}, '^[0-9]{{4}}-[0-9]{{2}}'), '')"
    return Control(f"coalesce({account})", period, terms)


def _cur(path: Path, columns: Columns) -> Control:
    own = layout_of(path).columns

    def text(name: str) -> str:
        return columns.text(own.get(name))

    cost = own["line_item_unblended_cost"]
    split = f"({text('split_line_item_parent_resource_id')} IS NOT NULL AND {_nought(cost, columns)})"
    kind, named = text("line_item_line_item_type"), text("reservation_reservation_a_r_n")
    told = f"starts_with({text('line_item_line_item_description')}, 'Refund for one-time fee for Savings Plan ID')"
    cancelled = f"({text('savings_plan_savings_plan_a_r_n')} IS NOT NULL OR coalesce({told}, false))"
    settles = f"(({kind} = 'Fee' AND {named} IS NOT NULL) OR ({kind} = 'Refund' AND {cancelled}))"

    def of(measure: str, name: str, where: str, sign: int = 1) -> list[Term]:
        columns_a_row = 2 if measure == "effective" else 1  # what a fee bought less what was used of it
        return [Term(measure, own[name], sign, f"NOT {split} AND {where}", columns_a_row)] if name in own else []

    plain_cost = f"{kind} NOT IN ({_OWN_COST}, {_NEGATION}) AND NOT {settles}"
    terms = [
        Term("billed", cost),
        *of("effective", "line_item_unblended_cost", plain_cost),
        *of("effective", "savings_plan_savings_plan_effective_cost", f"{kind} = '{_COVERED}'"),
        *of("effective", "reservation_effective_cost", f"{kind} = 'DiscountedUsage'"),
        *of("effective", "savings_plan_total_commitment_to_date", f"{kind} = 'SavingsPlanRecurringFee'"),
        *of("effective", "savings_plan_used_commitment", f"{kind} = 'SavingsPlanRecurringFee'", -1),
        *(term for name in _UNUSED for term in of("effective", name, f"{kind} = 'RIFee'")),
        *of("list", "pricing_public_on_demand_cost", f"{kind} IN ({_USAGE})"),
    ]
    payer, account = own["bill_payer_account_id"], text("bill_payer_account_id")
    if columns.types[payer].endswith(("INT", "INTEGER")):
        account = f"lpad({account}, 12, '0')"
    period = f"strftime({columns.time(own['bill_billing_period_start_date'])}, '%Y-%m')"
    return Control(account, period, terms)


def _nought(column: str, columns: Columns) -> str:
    """Whether a cost is stored as nought: doubles are rounded at 12 places, decimals at 18."""
    half = "5e-13" if columns.types[column] in ("DOUBLE", "FLOAT") else "5e-19"
    return f"abs(TRY_CAST({columns.sql[column]} AS DOUBLE)) <= {half}"
