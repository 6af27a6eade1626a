"""What a model's month will cost: what is billed and estimated so far, and its daily run rate for the days to come.

The rate is the mean of the last complete days, by weekday once there are three weeks of them. The interval (90 %,
Student's t) comes from how much those days differ from the rate: it covers the ordinary ups and downs of days, not a
change of plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.counted import month_bounds
from mlcost_pipeline.cost.daily_spend import DailySpend, daily_spend, together
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

WINDOW_DAYS = 28
WEEKDAY_DAYS = 21  # three of each weekday
INTERVAL_DAYS = 3
CONFIDENCE = 0.9
_DAY = timedelta(days=1)

FINAL, PROVISIONAL, ESTIMATED, EXPECTED = "final", "provisional", "estimated", "expected"


@dataclass(frozen=True)
class DayCost:
    """One day: billed by a final or an open bill, estimated by the price book, or expected by the run rate."""

    day: date
    amount: Decimal
    state: str


@dataclass(frozen=True)
class Forecast:
    """A month of one model. `low` and `high` are None where too few days are complete to say how sure it is.

    `billed` is the effective cost that the ledgers in force say; `expected` is the whole month, what is spent included.
    `days` leaves out what belongs to no day: charges longer than one, and those that follow others. `left_out` says
    which bills, of the month or of the one before that its rate comes from, are not in it.
    """

    model: str
    period: str
    currency: str
    billed: Decimal
    estimated: Decimal
    unpriced_runs: int
    expected: Decimal
    low: Decimal | None
    high: Decimal | None
    days: tuple[DayCost, ...]
    rate_days: int
    by_weekday: bool
    left_out: tuple[str, ...] = ()

    @property
    def spent(self) -> Decimal:
        """Billed and estimated so far."""
        return money_sum([self.billed, self.estimated])

    @property
    def provisional_days(self) -> tuple[date, ...]:
        """Days that have been, and whose cost may still change."""
        return tuple(day.day for day in self.days if day.state in (PROVISIONAL, ESTIMATED))

    @property
    def sentence(self) -> str:
        """One line for a person."""
        so_far = f"{self.model}, {self.period}: {self.spent:,.2f} {self.currency} so far"
        if self.estimated:
            so_far += f" (of it {self.estimated:,.2f} estimated)"
        if not any(day.state == EXPECTED for day in self.days):
            return f"{so_far}; the month is over" + (self._open and f", {self._open}") + self._missing
        range_ = "too few days to say how sure" if self.low is None else f"{self.low:,.2f} to {self.high:,.2f}"
        how = "by weekday " if self.by_weekday else ""
        return (
            f"{so_far}; expected for the month: {self.expected:,.2f} ({range_}) {how}from {self.rate_days} "
            f"day{'' if self.rate_days == 1 else 's'}" + (self._open and f"; {self._open}") + self._missing
        )

    @property
    def _missing(self) -> str:
        return "".join(f"; {said}" for said in self.left_out)

    @property
    def _open(self) -> str:
        days = self.provisional_days
        return f"{len(days)} days provisional, from {days[0]} to {days[-1]}" if days else ""


def forecast(
    warehouse: Warehouse, settings: Settings, model: str, period: str, now: datetime | None = None
) -> Forecast:
    """Spend and forecast of `model` in `period` ("YYYY-MM"), in the settings' currency, at the model's own time."""
    now = now or model_clock(warehouse, settings, model).now()
    start, end = (moment.date() for moment in month_bounds(period))
    before = (start - _DAY).strftime("%Y-%m")
    here = daily_spend(warehouse, settings, model, period, now)
    past = together(daily_spend(warehouse, settings, model, before, now), here)
    today = now.date()
    reached = None if here.billed_until is None else here.billed_until.date()
    rate = _rate(past, today)
    extra = _following(past)
    unknown: dict[date, Decimal] = {}
    days = []
    for day in (start + _DAY * number for number in range((end - start).days)):
        known = money_sum([here.billed.get(day, Decimal(0)), here.estimated.get(day, Decimal(0))])
        if day >= today:
            unknown[day] = max(Decimal(0), rate.of(day) - known)
            days.append(DayCost(day, money_sum([known, unknown[day]]), EXPECTED))
        elif here.final or (reached is not None and day < reached):
            days.append(DayCost(day, known, FINAL if here.final else PROVISIONAL))
        else:
            unknown[day] = rate.without_run
            days.append(DayCost(day, money_sum([known, rate.without_run]), ESTIMATED))
    billed = money_sum([*here.billed.values(), here.undated, here.derived])
    estimated = money_sum(here.estimated.values())
    follows = extra * (money_sum(unknown.values()) + estimated)
    expected = (billed + estimated + money_sum(unknown.values()) + follows).quantize(UNIT)
    spread = rate.spread([day for day in unknown if day >= today])
    margin = None if spread is None else (spread * (1 + extra)).quantize(UNIT)
    return Forecast(
        model, period, settings.currency, billed, estimated, here.unpriced_runs, expected,
        None if margin is None else max(money_sum([billed, estimated]), expected - margin),
        None if margin is None else expected + margin, tuple(days), rate.days, rate.by_weekday,
        past.left_out,
    )  # fmt: skip


@dataclass(frozen=True)
class _Rate:
    """Spend of a day: the mean by group (weekday, or one group of all), and the spread around it."""

    means: Mapping[int, Decimal]
    counts: Mapping[int, int]
    deviation: Decimal | None
    without_run: Decimal
    days: int

    @property
    def by_weekday(self) -> bool:
        return len(self.means) == 7

    def group(self, day: date) -> int:
        return day.weekday() if self.by_weekday else 0

    def of(self, day: date) -> Decimal:
        return self.means.get(self.group(day), Decimal(0))

    def spread(self, days: Sequence[date]) -> Decimal | None:
        """Half the width of the interval of the sum over `days`: their own spread, and that of the means."""
        if not days:
            return Decimal(0)
        if self.deviation is None:
            return None
        from scipy import stats

        times: dict[int, int] = {}
        for day in days:
            times[self.group(day)] = times.get(self.group(day), 0) + 1
        of_means = sum((Decimal(n * n) / self.counts[group] for group, n in times.items()), Decimal(0))
        quantile = Decimal(str(float(stats.t.ppf((1 + CONFIDENCE) / 2, self.days - len(self.means)))))
        return quantile * self.deviation * (len(days) + of_means).sqrt()


def _rate(spend: DailySpend, today: date) -> _Rate:
    """The rate of the last days that a bill has reached, or where those are too few, of all before today."""
    known = {
        day: money_sum([spend.billed.get(day, Decimal(0)), spend.estimated.get(day, Decimal(0))])
        for day in {*spend.billed, *spend.estimated}
    }
    if not known:
        return _Rate({}, {}, None, Decimal(0), 0)
    first = max(min(known), today - WINDOW_DAYS * _DAY)
    every = [first + _DAY * number for number in range(max(0, (today - first).days))]
    reached = [day for day in every if spend.billed_until is not None and day < spend.billed_until.date()]
    days = reached if len(reached) >= INTERVAL_DAYS else every
    groups: dict[int, list[Decimal]] = {}
    for day in days:
        groups.setdefault(day.weekday() if len(days) >= WEEKDAY_DAYS else 0, []).append(known.get(day, Decimal(0)))
    means = {group: money_sum(amounts) / len(amounts) for group, amounts in groups.items()}
    freedom = len(days) - len(groups)
    squares = sum(((amount - means[group]) ** 2 for group, amounts in groups.items() for amount in amounts), Decimal(0))
    enough = len(days) >= INTERVAL_DAYS
    alone = [spend.without_run.get(day, Decimal(0)) for day in reached]
    return _Rate(
        means,
        {group: len(amounts) for group, amounts in groups.items()},
        (squares / freedom).sqrt() if enough else None,
        (money_sum(alone) / len(alone)).quantize(UNIT) if alone else Decimal(0),
        len(days),
    )


def _following(spend: DailySpend) -> Decimal:
    """Tax, support and discounts by money that they follow."""
    base = money_sum(spend.billed.values())
    return spend.derived / base if base > 0 and spend.derived else Decimal(0)
