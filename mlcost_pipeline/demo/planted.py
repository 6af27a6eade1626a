"""What makes a month's bill untidy, planted on purpose so that its right reading is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

from mlcost_pipeline.demo.cloud import Charge
from mlcost_pipeline.demo.past_runs import GPU_REPLICAS
from mlcost_pipeline.demo.plan import FIRST_DAY, Plan
from mlcost_pipeline.errors import BillError

SUPPORT_FEE = Decimal("180.00")
TAX_RATE = Decimal("0.07")
CREDIT = Decimal("-75.25")
UNKNOWN_RESOURCE = "i-0legacy42"
UNKNOWN_A_DAY = Decimal("4.60")
WRONG_PRICE_FACTOR = Decimal("1.25")
_UNTAGGED_TRAINING_EVERY = 5  # days


@dataclass(frozen=True)
class Extra:
    """A line that is no hour of a resource of ours."""

    name: str
    category: str
    description: str
    service_category: str
    service: str
    resource_id: str | None
    start: datetime
    end: datetime
    amount: Decimal


@dataclass(frozen=True)
class Planted:
    """A month of the bill and its oddities. ``restates`` names the month that is delivered again with this one."""

    period: str
    start: datetime
    end: datetime
    number: int
    restates: str | None
    is_mispriced: bool
    has_credit: bool

    @property
    def wrong_day(self) -> datetime:
        """The day whose first replica is overcharged in a delivery that is restated later."""
        return self.start + timedelta(days=9)

    def misprice(self, charge: Charge) -> Charge:
        """A charge as the first delivery has it."""
        wrong = (
            self.is_mispriced
            and charge.resource_id == GPU_REPLICAS[0]
            and self.wrong_day <= charge.start < self.wrong_day + timedelta(days=1)
        )
        return replace(charge, amount=charge.amount * WRONG_PRICE_FACTOR) if wrong else charge

    def tagged(self, charge: Charge) -> bool:
        """Whether the tags of a line were active: not on the second replica in odd months, nor on some trainings."""
        if charge.resource_id == GPU_REPLICAS[1]:
            return self.number % 2 == 0
        if charge.resource_id.startswith("train-"):
            return (charge.start.date() - FIRST_DAY).days % _UNTAGGED_TRAINING_EVERY != 3
        return True

    def extras(self, usage: Decimal, end: datetime) -> list[Extra]:
        """The lines that no run of ours explains, up to `end`. Tax is on the usage."""
        tax = (usage * TAX_RATE).quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)
        made = [
            Extra("support", "Purchase", "Support plan", "Other", "Support", None, self.start, self.end, SUPPORT_FEE),
            Extra("tax", "Tax", "Sales tax", "Other", "Tax", None, self.start, self.end, tax),
        ]
        if self.has_credit:
            made.append(Extra("credit", "Credit", "Goodwill", "Other", "Credits", None, self.start, self.end, CREDIT))
        day, opened = self.start, datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC)
        while day + timedelta(days=1) <= end:
            if day >= opened:
                made.append(
                    Extra(
                        "unknown_resource", "Usage", "Instance of an older project", "Compute", "CPU instances",
                        UNKNOWN_RESOURCE, day, day + timedelta(days=1), UNKNOWN_A_DAY,
                    )
                )  # fmt: skip
            day += timedelta(days=1)
        return made


def months(plan: Plan) -> list[str]:
    """The months that the history touches."""
    return sorted({f"{plan.day(number):%Y-%m}" for number in range(plan.days)})


def planted_of(plan: Plan, period: str) -> Planted:
    """The oddities of a month. The second month is restated with the third; a credit falls into the second."""
    try:
        start = datetime.strptime(period, "%Y-%m").replace(tzinfo=UTC)
    except ValueError as error:
        raise BillError(f"period {period!r}: expected a month such as 2025-03") from error
    end = (start + timedelta(days=32)).replace(day=1)
    number = (start.year - FIRST_DAY.year) * 12 + start.month - FIRST_DAY.month
    history = months(plan)
    restated = history[1] if len(history) > 2 else None
    restates = restated if restated is not None and number == 2 else None
    credit_month = 1 if len(history) > 1 else 0
    return Planted(period, start, end, number, restates, period == restated, number == credit_month)
