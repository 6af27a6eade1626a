"""The price book held against the bill: what it would have said of runs that are billed now, and what they cost.

Compared is the effective cost of whole runs, tax, support and discounts included, with hours held × price × share:
a price of the book is right if the next run costs what the book says. Of a run that the bill has reached in part, as
device time shows, the same part of the estimate is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from mlcost_pipeline.cost.books import books, closed_books, left_out, versions_of
from mlcost_pipeline.cost.exact import UNIT
from mlcost_pipeline.cost.prices import RECORDED, Estimate, price_runs
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

#: A price that differs from the bill by more than this share of itself is told of.
TOLERANCE = Decimal("0.05")

_BILLED = """
WITH paid AS (SELECT run_id, sum(effective) AS effective,
    coalesce(sum(effective) FILTER (method = 'derived'), 0) AS derived FROM cost_ledger
  WHERE run_id IS NOT NULL AND currency = ? AND (? IS NULL OR period = ?) GROUP BY run_id),
timed AS (SELECT run_id, sum(billed_seconds) AS seconds FROM device_time
  WHERE run_id IS NOT NULL AND (? IS NULL OR period = ?) GROUP BY run_id),
held AS (SELECT run_id, min(resource_id) AS resource_id FROM occupancy GROUP BY run_id)
SELECT r.*, p.effective, p.derived, t.seconds, h.resource_id FROM run_records r JOIN paid p USING (run_id)
LEFT JOIN timed t USING (run_id) LEFT JOIN held h USING (run_id)
WHERE (? IS NULL OR r.model = ?) ORDER BY r.run_id
"""


@dataclass(frozen=True)
class RunCheck:
    """One billed run: what the book says of the time that is billed, and what the bill says.

    `covered` is the share of the time it held that the bill has reached; `resource_hours` that were held and
    `billed_hours` are of whole resources, and more is billed than held where start-up or whole hours are.
    `estimated` is None without a price. Of `billed`, `derived` follows other charges: tax, support, discounts.
    """

    run_id: str
    source: str
    setting: str | None
    covered: Decimal
    resource_hours: Decimal
    billed_hours: Decimal
    estimated: Decimal | None
    billed: Decimal
    derived: Decimal

    @property
    def difference(self) -> Decimal | None:
        """Billed − estimated."""
        return None if self.estimated is None else money_sum([self.billed, -self.estimated])


@dataclass(frozen=True)
class SourceCheck:
    """All runs that one price of the book prices; `setting` is where it is set, None for one we cannot name.

    Prices are money an hour of a whole resource; `book_price` is None for resources without a price. `resource_hours`
    were held by runs, `billed_hours` billed to them.
    """

    source: str
    setting: str | None
    runs: int
    resource_hours: Decimal
    billed_hours: Decimal
    estimated: Decimal | None
    billed: Decimal
    derived: Decimal
    currency: str

    @property
    def difference(self) -> Decimal | None:
        """Billed − estimated."""
        return None if self.estimated is None else money_sum([self.billed, -self.estimated])

    @property
    def ratio(self) -> Decimal | None:
        """Billed ÷ estimated; None where nothing was estimated."""
        return self.billed / self.estimated if self.estimated else None

    @property
    def book_price(self) -> Decimal | None:
        return self.estimated / self.resource_hours if self.estimated is not None and self.resource_hours else None

    @property
    def bill_price(self) -> Decimal | None:
        """Money by hour that was billed: what the price should be."""
        return self.billed / self.billed_hours if self.billed_hours else None

    @property
    def off(self) -> bool:
        """Whether there is no estimate, or it differs from the bill by more than the tolerance."""
        return self.estimated is None or abs(self.billed - self.estimated) > TOLERANCE * abs(self.estimated)

    @property
    def price_off(self) -> bool:
        """Whether it is the price that is wrong or missing, and not the hours."""
        book, bill = self.book_price, self.bill_price
        return book is None or bill is None or abs(bill - book) > TOLERANCE * abs(book)

    @property
    def sentence(self) -> str:
        """What the book says, what the bill says, and what to set."""
        over = f"over {hours(self.billed_hours)} of {self.runs} run{'' if self.runs == 1 else 's'}"
        if self.bill_price is None:
            return f"{self.source}: {self.billed:,.4f} {self.currency} billed {over}, so no price follows from it"
        bill = f"{rate(self.bill_price)} {self.currency}/h{self._of_it_derived}"
        if self.book_price is None:
            return f"{self.source}: the bill says {bill} {over}: set {self.setting} to {rate(self.bill_price)}"
        said = f"{self.source} says {rate(self.book_price)} {self.currency}/h, the bill says {bill} {over}"
        if not self.price_off:
            held = f"the runs held {hours(self.resource_hours)}, {hours(self.billed_hours)} were billed to them"
            return f"{said}: {held + ' (start-up, whole hours)' if self.off else f'within {TOLERANCE:.0%}'}"
        set_to = "set it" if self.setting == self.source else f"set {self.setting}"
        return f"{said}: {set_to} to {rate(self.bill_price)}" if self.setting else said

    @property
    def _of_it_derived(self) -> str:
        """What of the bill's price no line of the resource shows, so that nobody looks for it there in vain."""
        if not self.derived or not self.billed_hours:
            return ""
        return f" ({rate(self.derived / self.billed_hours)} of it tax, support and discounts)"


@dataclass(frozen=True)
class PriceCheck:
    """The book against the bills; `not_compared` runs are billed, but not for any time that they held a resource.

    `left_out` says of which bills nothing was compared, for no ledger stands on them.
    """

    currency: str
    sources: tuple[SourceCheck, ...]
    not_compared: int
    left_out: tuple[str, ...] = ()

    @property
    def priced(self) -> tuple[SourceCheck, ...]:
        return tuple(source for source in self.sources if source.estimated is not None)

    @property
    def unpriced(self) -> tuple[SourceCheck, ...]:
        """Resources that the book has no price for, each with the price that the bill implies."""
        return tuple(source for source in self.sources if source.estimated is None)

    @property
    def warnings(self) -> list[str]:
        return [source.sentence for source in self.sources if source.off]

    @property
    def sentence(self) -> str:
        """One line: how far the book was off over all runs that it prices."""
        estimated = money_sum(source.estimated for source in self.priced if source.estimated is not None)
        billed = money_sum(source.billed for source in self.priced)
        runs = sum(source.runs for source in self.priced)
        missing = "".join(f" {said}." for said in self.left_out)
        if not runs:
            return f"The price book was held against no bill: no billed run has a price in it.{missing}"
        by = f", {(billed - estimated) / estimated:+.1%}" if estimated else ""
        off = sum(1 for source in self.priced if source.off)
        return (
            f"The price book said {estimated:,.4f} {self.currency} of {runs} run{'' if runs == 1 else 's'}, the bill "
            f"says {billed:,.4f}{by}; {off} of {len(self.priced)} prices off by more than {TOLERANCE:.0%}.{missing}"
        )


def check_prices(
    warehouse: Warehouse, settings: Settings, now: datetime, *, model: str | None = None, period: str | None = None
) -> PriceCheck:
    """Hold every price of the book against the ledgers in force, of one model and one billing period, or of all."""
    checks, not_compared = check_runs(warehouse, settings, now, model=model, period=period)
    groups: dict[tuple[str, str | None, bool], list[RunCheck]] = {}
    for check in checks:
        groups.setdefault((check.source, check.setting, check.estimated is None), []).append(check)
    found = (_source(settings.currency, key, runs) for key, runs in groups.items())
    ordered = tuple(sorted(found, key=lambda s: (s.source, s.setting or "")))
    missing = left_out(books(warehouse, settings.currency, period), settings)
    return PriceCheck(settings.currency, ordered, not_compared, missing)


def check_runs(
    warehouse: Warehouse, settings: Settings, now: datetime, *, model: str | None = None, period: str | None = None
) -> tuple[list[RunCheck], int]:
    """The same run by run, by id; and how many billed runs cannot be compared.

    A run whose bill is about something else than the time it held (a disk under its tag, say) tells nothing of a price.
    """
    rows = _billed(warehouse, settings, model, period)
    estimates = {each.run_id: each for each in price_runs(warehouse, settings, rows, now)}
    resources = warehouse.rows("resources", columns=["resource_id", "kind"])
    kinds, found = {each["resource_id"]: str(each["kind"]) for each in resources}, []
    for row in rows:
        estimate = estimates[row["run_id"]]
        covered = _covered(row["seconds"], estimate)
        if covered == 0 or estimate.resource_hours == 0:
            continue
        source, setting = _named(row, estimate, kinds)
        amount = None if estimate.amount is None else (estimate.amount * covered).quantize(UNIT)
        billed_hours = _device_hours(row["seconds"]) * estimate.resource_hours / estimate.device_hours
        held = estimate.resource_hours * covered
        money = (amount, row["effective"], row["derived"])
        found.append(RunCheck(row["run_id"], source, setting, covered, held, billed_hours, *money))
    return found, len(rows) - len(found)


def _billed(warehouse: Warehouse, settings: Settings, model: str | None, period: str | None) -> list[dict[str, Any]]:
    versions = versions_of(closed_books(warehouse, settings.currency, period))
    # Device time goes by the version of the ledger; an older ledger may have none.
    timed = [pair for pair in versions["device_time"] if warehouse.version_file("device_time", *pair) is not None]
    found: list[dict[str, Any]] = warehouse.query(
        _BILLED,
        [settings.currency, period, period, period, period, model, model],
        tables=["cost_ledger", "device_time", "occupancy", "run_records"],
        versions={**versions, "device_time": timed},
    ).to_pylist()
    return found


def _covered(billed_seconds: float | None, estimate: Estimate) -> Decimal:
    """The share of what a run held that its bill is about; a bill by the whole hour may be about more."""
    if not billed_seconds or estimate.device_hours <= 0:
        return Decimal(0)
    share = _device_hours(billed_seconds) / estimate.device_hours
    return Decimal(1) if share > 1 - Decimal("1e-6") else share


def _device_hours(seconds: float) -> Decimal:
    return Decimal(str(seconds)) / 3600


def _named(run: dict[str, Any], estimate: Estimate, kinds: Mapping[str, str]) -> tuple[str, str | None]:
    """(whose price it is, where it is set); a price that came with the run is its pool's or its kind of resource's."""
    source = estimate.source.removeprefix("estimate: ")
    kind = kinds.get(run["resource_id"])
    if estimate.amount is None:
        whose = f"kind {kind}" if kind else f"resource {run['resource_id']}"
        return f"no price for {whose}", f"prices.{kind or run['resource_id']}"
    if source == RECORDED:
        if run["pool"] is not None:
            return f"{RECORDED} (pool {run['pool']})", f"capacity.pools {run['pool']}"
        return f"{RECORDED} ({kind or run['resource_id']})", None
    return source, source if source.startswith(("prices.", "capacity.", "worker.")) and "," not in source else None


def _source(currency: str, key: tuple[str, str | None, bool], runs: Sequence[RunCheck]) -> SourceCheck:
    source, setting, unpriced = key
    estimated = None if unpriced else money_sum(run.estimated for run in runs if run.estimated is not None)
    held, billed = _total(run.resource_hours for run in runs), _total(run.billed_hours for run in runs)
    money, derived = money_sum(run.billed for run in runs), money_sum(run.derived for run in runs)
    return SourceCheck(source, setting, len(runs), held, billed, estimated, money, derived, currency)


def _total(hours: Iterable[Decimal]) -> Decimal:
    return sum(hours, Decimal(0))


def hours(amount: Decimal) -> str:
    """Hours with one decimal, or as many more as two digits of them need."""
    places = max(1, 1 - amount.adjusted()) if amount else 1
    return f"{amount:,.{places}f} h"


def rate(price: Decimal) -> str:
    """A price with two decimals, or as many more as three digits of it need."""
    places = max(2, 2 - price.adjusted()) if price else 2
    return f"{price:,.{places}f}"
