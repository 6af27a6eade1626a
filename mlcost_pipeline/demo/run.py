"""The whole loop on a simulated shop, as a story of a few mornings: adopted, watched, retrained, billed, reported.

Each chapter is marked when it has ended, so a demo that was killed goes on where it was; a chapter that was cut off
is told again from its own beginning and ends the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mlcost_pipeline.clock import model_clock, set_clock
from mlcost_pipeline.demo.biller import bill_period
from mlcost_pipeline.demo.plan import MODEL, SCORER, Plan
from mlcost_pipeline.demo.shop import make_shop
from mlcost_pipeline.demo.shop_settings import RATE
from mlcost_pipeline.demo.visitors import visit_day
from mlcost_pipeline.home import dagster_home
from mlcost_pipeline.inference.lookup import Lookup
from mlcost_pipeline.passes import Passes
from mlcost_pipeline.reports.main_report import print_last_closing
from mlcost_pipeline.reports.progress import Report, run_progress

MORNING = timedelta(hours=6)
LIVE_DAYS = 2
#: What the sensors of a morning look at; bills, counts and the report follow when the story has ended.
DAILY = ("records", *(f"{model}_{part}" for model in (MODEL, SCORER) for part in ("day", "retrain", "serving")))
SMALL: dict[str, int] = {"days": 24, "users": 150, "items": 80, "payments_per_day": 150}


@dataclass(frozen=True)
class Chapter:
    """One part of the story: its name, what is said, and what is done."""

    name: str
    says: str
    tell: Callable[[], Any]


def run_demo(home: Path, *, days: int | None = None, small: bool = False, console: Console | None = None) -> None:
    """Make the shop, tell the story, print the summary; everything stays in `home`."""
    console = console or Console()
    shop = home.resolve() / "shop"
    sizes = dict(SMALL) if small else {}
    if days is not None:
        sizes["days"] = days
    with run_progress(console) as progress:
        if not (shop / "shop.json").exists():
            make_shop(shop, **sizes, report=lambda done, of: progress("simulate the shop", None, done, of))
        story = Story(shop, dagster_home(home, shop / "mlcost.yaml"), progress)
        for chapter in story.chapters():
            if story.told(chapter):
                continue
            progress(chapter.says, None, 0, 1)
            chapter.tell()
            story.mark(chapter)
            progress(chapter.says, None, 1, 1)
    print_last_closing(story.passes.warehouse, console)
    console.print(f"The Dagster UI on this history: mlcost dev --home {home}")


class Story:
    """The chapters of one shop, and how far they have been told."""

    def __init__(self, shop: Path, home: Path, progress: Report) -> None:
        self.shop = shop
        self.plan = Plan.load(shop)
        self.passes = Passes(shop / "mlcost.yaml", home, progress=progress)
        self.progress = progress

    def chapters(self) -> Iterator[Chapter]:
        """Adopt each model on a day of the past, then live through the mornings that follow the history."""
        last = self.plan.days - 1
        scorer_day, model_day = last - min(44, last // 2), last - min(7, last // 4)
        yield Chapter("records", "read the runs of the past", lambda: self.passes.run("records"))
        yield Chapter(
            "bills", "the cloud sends the bills of the past", lambda: self._bill(0, self.plan.midnight(self.plan.days))
        )
        yield Chapter(
            "adopt-scorer", self._on(scorer_day, f"{SCORER} is adopted"), lambda: self._adopt(SCORER, scorer_day)
        )
        yield Chapter("adopt-model", self._on(model_day, f"{MODEL} is adopted"), lambda: self._adopt(MODEL, model_day))
        yield Chapter("score-past", f"{SCORER} scores the days since", lambda: self._score(scorer_day, last))
        for number in range(self.plan.days, self.plan.days + LIVE_DAYS):
            yield self._morning(number)
            come = self._on(number, "users come and click")
            yield Chapter(f"visits-{number}", come, partial(self._visits, number))
        yield self._morning(self.plan.days + LIVE_DAYS)
        yield Chapter("last-bills", "the cloud bills the runs just made", lambda: self._bill(scorer_day, self._now()))
        yield Chapter("report", "attribute, count, report", self._report)

    def told(self, chapter: Chapter) -> bool:
        """Whether the chapter has ended before."""
        return self.passes.warehouse.state.get(f"story/{chapter.name}") is not None

    def mark(self, chapter: Chapter) -> None:
        """Put the end of a chapter on record."""
        self.passes.warehouse.state.create(f"story/{chapter.name}", {"told": True})

    def _on(self, number: int, what: str) -> str:
        return f"{self.plan.day(number)}: {what}"

    def _morning(self, number: int) -> Chapter:
        def tell() -> None:
            self._set_clocks([MODEL, SCORER], number)
            self.passes.until_quiet(DAILY)

        return Chapter(f"morning-{number}", self._on(number, "the sensors look"), tell)

    def _adopt(self, model: str, number: int) -> None:
        self._set_clocks([model], number)
        self.passes.until_quiet([f"{model}_day", f"{model}_retrain", f"{model}_serving"])

    def _score(self, first: int, last: int) -> None:
        self._set_clocks([SCORER], self.plan.days)
        days = (self.plan.day(first).isoformat(), self.plan.day(last).isoformat())
        self.passes.run(f"{SCORER}_serving", partitions=days)

    def _visits(self, number: int) -> None:
        lookup = Lookup(self.passes.warehouse, self.passes.settings, MODEL)
        visit_day(self.shop, lookup, self.plan.day(number))

    def _bill(self, first: int, until: datetime) -> None:
        """The cloud's bills from the month of day `first` up to `until`, month by month."""
        for period in _months(self.plan.day(first), until.date()):
            if datetime.fromisoformat(f"{period}-01T00:00:00+00:00") < until:
                bill_period(self.passes.warehouse, self.shop, period, until=until)
                self.passes.until_quiet(["bills", "ledgers"])  # a later month's bill restates the one before

    def _report(self) -> None:
        """The last chapter; from here on the clocks run as slowly as ours, so that the shop's last day stays today."""
        self.passes.until_quiet()
        for model in (MODEL, SCORER):
            set_clock(self.passes.warehouse, model, self._now(), 1.0)

    def _now(self) -> datetime:
        passes = self.passes
        return max(model_clock(passes.warehouse, passes.settings, model).now() for model in (MODEL, SCORER))

    def _set_clocks(self, models: list[str], number: int) -> None:
        for model in models:
            set_clock(self.passes.warehouse, model, self.plan.midnight(number) + MORNING, RATE)


def _months(first: date, last: date) -> Iterator[str]:
    month = first.replace(day=1)
    while month <= last:
        yield f"{month:%Y-%m}"
        month = (month + timedelta(days=32)).replace(day=1)
