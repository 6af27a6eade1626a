"""Live days: the same answers leave the same files, better answers earn more clicks, history is never rewritten."""

from __future__ import annotations

import csv
import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.demo.people import next_item
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.visitors import live_day_files, visit_day
from mlcost_pipeline.demo.visits import World
from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.inference.answer import Answer
from mlcost_pipeline.sources.ingest import ingest
from mlcost_pipeline.warehouse import Warehouse

FIRST_LIVE, SECOND_LIVE = date(2025, 3, 13), date(2025, 3, 14)


class Fixed:
    """A lookup that gives each user a list by rank of true taste: the best (`best`) or the worst."""

    def __init__(self, shop: Path, *, best: bool) -> None:
        world = World.of(Plan.load(shop))
        order = next_item(world.people, world.catalogue, 12).argsort(axis=1)
        chosen = order[:, ::-1][:, :10] if best else order[:, :10]
        names = world.catalogue.ids
        self._lists = {u: [names[k] for k in row] for u, row in zip(world.people.ids, chosen.tolist(), strict=True)}
        self.asked: list[tuple[str | None, datetime | None, str | None]] = []

    def recommend(self, user_id: str | None, *, at: datetime | None = None, request_id: str | None = None) -> Answer:
        self.asked.append((user_id, at, request_id))
        items = self._lists.get(user_id or "", ["99999"])
        return Answer(items, "fresh", "current", "v", None, None, "treated", request_id or "")


@pytest.fixture
def shop(tiny_shop: Any, tmp_path: Path) -> Path:
    copy = tmp_path / "shop"
    shutil.copytree(tiny_shop.folder, copy, ignore=shutil.ignore_patterns("warehouse"))
    return copy


def clicks(files: list[Path]) -> int:
    (file,) = [file for file in files if file.parent.name == "events"]
    return sum(row["action"] == "click" for row in csv.DictReader(file.read_text().splitlines()))


def test_a_day_played_again_leaves_the_same_bytes(shop: Path) -> None:
    first = {file: file.read_bytes() for file in visit_day(shop, Fixed(shop, best=True), FIRST_LIVE)}
    again = {file: file.read_bytes() for file in visit_day(shop, Fixed(shop, best=True), FIRST_LIVE)}
    assert first == again
    assert {file.parent.name for file in first} >= {"events", "payments", "labels", "requests", "run_records"}


def test_who_comes_does_not_depend_on_what_was_shown(shop: Path) -> None:
    good, bad = Fixed(shop, best=True), Fixed(shop, best=False)
    many = clicks(visit_day(shop, good, FIRST_LIVE))
    few = clicks(visit_day(shop, bad, FIRST_LIVE))
    assert good.asked == bad.asked
    assert many > few


def test_a_later_day_may_come_first_and_changes_nothing(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(shop, other)
    for day in (FIRST_LIVE, SECOND_LIVE):
        visit_day(shop, Fixed(shop, best=True), day)
    visit_day(other, Fixed(other, best=True), SECOND_LIVE)
    name = f"data/events/{SECOND_LIVE}.csv"
    assert (shop / name).read_bytes() == (other / name).read_bytes()


def test_lookups_are_asked_at_the_visits_times_under_their_ids(shop: Path) -> None:
    lookup = Fixed(shop, best=True)
    visit_day(shop, lookup, FIRST_LIVE)
    times = [at for _, at, _ in lookup.asked if at is not None]
    assert times == sorted(times) and {at.date() for at in times} == {FIRST_LIVE}
    assert len({request for _, _, request in lookup.asked}) == len(lookup.asked)


def test_live_files_are_ingested_like_any_other(tiny_shop: Any, shop: Path, tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "w")
    settings = tiny_shop.settings.model_copy(update={"base": shop})
    tables = ("interactions", "transactions", "labels")
    before = {table: ingest(warehouse, settings, table).rows_new for table in tables}
    visit_day(shop, Fixed(shop, best=True), FIRST_LIVE)
    for table, rows in before.items():
        done = ingest(warehouse, settings, table)
        assert done.files == 1 and 0 < done.rows_new < rows


def test_a_day_of_history_is_never_written_again(shop: Path) -> None:
    with pytest.raises(SourceError, match="lies in the shop's history"):
        live_day_files(shop, date(2025, 3, 12))
    with pytest.raises(SourceError, match="lies in the shop's history"):
        visit_day(shop, Fixed(shop, best=True), date(2025, 3, 5))
