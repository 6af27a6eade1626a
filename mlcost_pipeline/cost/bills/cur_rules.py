"""What a line of an AWS Cost and Usage Report is in FOCUS words, and what it cost effectively.

Billed is the unblended cost, always: discounts are lines of their own, so net columns would count them a second time
(opencost#954). Effective is by line type, as AWS amortises: what a Savings Plan or reservation covers has its share of
the commitment, the fee what was left unused of it, negations and upfront fees nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.cost.bills.batch_values import Lost, each_text
from mlcost_pipeline.cost.bills.convert import Place
from mlcost_pipeline.cost.exact import EXACT
from mlcost_pipeline.tables import MONEY, TEXT

#: Money of a column for the rows of a mask (null elsewhere), and by line number what rounding took off.
MoneyOf = Callable[[str, pa.Array], tuple[pa.Array, Lost]]

DISCOUNTS = (
    "EdpDiscount", "BundledDiscount", "PrivateRateDiscount", "RiVolumeDiscount", "Discount", "DistributorDiscount",
)  # fmt: skip
#: Line type → FOCUS category and commitment status; a type that is not here keeps its own name as category.
LINE_TYPES: dict[str, tuple[str, str | None]] = {
    "Usage": ("Usage", None),
    "SavingsPlanCoveredUsage": ("Usage", "Used"),
    "DiscountedUsage": ("Usage", "Used"),
    "SavingsPlanNegation": ("Adjustment", "Negation"),
    "SavingsPlanRecurringFee": ("Purchase", "Fee"),
    "SavingsPlanUpfrontFee": ("Purchase", "Fee"),
    "RIFee": ("Purchase", "Fee"),
    "Fee": ("Purchase", None),
    "Tax": ("Tax", None),
    "Credit": ("Credit", None),
    "Refund": ("Credit", None),
    **dict.fromkeys(DISCOUNTS, ("Adjustment", None)),
}
PLAN, RESERVATION = "savings_plan_savings_plan_a_r_n", "reservation_reservation_a_r_n"
DESCRIPTION = "line_item_line_item_description"
# Seen on refunds of cancelled plans, which need not name the plan's ARN (cloud-intelligence-dashboards PR#1515).
_CANCELLED = "Refund for one-time fee for Savings Plan ID"


@dataclass(frozen=True)
class _Amortised:
    """Effective cost of a line type: columns with their signs; `all_needed` refuses a line that lacks one of them."""

    columns: tuple[tuple[str, int], ...] = ()
    all_needed: bool = True


_EFFECTIVE = {
    "SavingsPlanCoveredUsage": _Amortised((("savings_plan_savings_plan_effective_cost", 1),)),
    "DiscountedUsage": _Amortised((("reservation_effective_cost", 1),)),
    "SavingsPlanRecurringFee": _Amortised(
        (("savings_plan_total_commitment_to_date", 1), ("savings_plan_used_commitment", -1))
    ),
    "RIFee": _Amortised(
        (("reservation_unused_amortized_upfront_fee_for_billing_period", 1), ("reservation_unused_recurring_fee", 1)),
        all_needed=False,  # a reservation has an upfront fee, a recurring one, or both
    ),
    "SavingsPlanNegation": _Amortised(),
    "SavingsPlanUpfrontFee": _Amortised(),
}


@dataclass(frozen=True)
class Charges:
    """Columns of a batch that say what its lines are; `texts` by CUR 2.0 name."""

    place: Place
    types: pa.Array
    texts: Mapping[str, pa.Array]

    @property
    def categories(self) -> pa.Array:
        return self._by_type(lambda name: LINE_TYPES.get(name, (name, None))[0])

    @property
    def statuses(self) -> pa.Array:
        """Commitment status; fees for a reservation and refunds of a cancelled plan belong to their commitment."""
        fee = pa.scalar("Fee", TEXT)
        return pc.if_else(self._settles, fee, self._by_type(lambda name: LINE_TYPES.get(name, (name, None))[1]))

    @property
    def _settles(self) -> pa.Array:
        """Lines that buy or give back a commitment: they have no effective cost, for what it covers has."""
        named = self.texts[RESERVATION].is_valid()
        bought = pc.and_(pc.equal(self.types, "Fee"), named)
        told = pc.fill_null(pc.starts_with(self.texts[DESCRIPTION], pattern=_CANCELLED), False)
        return pc.or_(bought, pc.and_(pc.equal(self.types, "Refund"), pc.or_(self.texts[PLAN].is_valid(), told)))

    def effective(self, billed: pa.Array, lost: Lost, money_of: MoneyOf) -> tuple[pa.Array, Lost]:
        """Effective cost of every line, and by line number what rounding took off.

        Raises:
            BillError: a line of a commitment lacks the column that says what it cost; names file, line and column.
        """
        zero = pa.scalar(Decimal(0), MONEY)
        settles = self._settles
        amounts, losses = pc.if_else(settles, zero, billed), dict(lost)
        self._drop(losses, settles)
        for name in sorted(set(self.types.to_pylist()) & _EFFECTIVE.keys()):
            mask = pc.equal(self.types, name)
            self._drop(losses, mask)
            amortised, found = self._amortised(name, mask, money_of)
            amounts = pc.if_else(mask, amortised, amounts)
            losses |= found
        return amounts, losses

    def _amortised(self, name: str, mask: pa.Array, money_of: MoneyOf) -> tuple[pa.Array, Lost]:
        rule = _EFFECTIVE[name]
        read = [(money_of(column, mask), sign) for column, sign in rule.columns]
        if not read:
            return pa.array([Decimal(0)] * len(mask), MONEY), {}
        empty = [values.is_null() for (values, _), _ in read]
        lacking = empty[0]
        for other in empty[1:]:
            lacking = pc.or_(lacking, other) if rule.all_needed else pc.and_(lacking, other)
        self._refuse(name, pc.and_(mask, lacking))
        if len(read) == 1:
            return read[0][0]
        sums = [Decimal(0)] * len(mask)
        losses: Lost = {}
        for (values, lost), sign in read:
            add = EXACT.add if sign > 0 else EXACT.subtract
            sums = [
                total if value is None else add(total, value)
                for total, value in zip(sums, values.to_pylist(), strict=True)
            ]
            for line, amount in lost.items():
                losses[line] = add(losses.get(line, Decimal(0)), amount)
        return pa.array(sums, MONEY), losses

    def _refuse(self, name: str, faulty: pa.Array) -> None:
        if pc.any(faulty).as_py():
            columns = ", ".join(column for column, _ in _EFFECTIVE[name].columns)
            row = faulty.to_pylist().index(True)
            text = f"is empty, and a line of type {name} needs it for its effective cost; select it in the export"
            raise self.place.fault(row, columns, text)

    def _drop(self, losses: Lost, mask: pa.Array) -> None:
        for row, chosen in enumerate(mask.to_pylist()):
            if chosen:
                losses.pop(self.place.first_line + row, None)

    def _by_type(self, told: Callable[[str], str | None]) -> pa.Array:
        return each_text(self.types, told)
