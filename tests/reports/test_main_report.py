"""The whole report, read from the warehouse alone: of an empty one, and of one with a bill, a job and lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mlcost_pipeline.clock import Clock, set_clock
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledgers
from mlcost_pipeline.inference.publication import make_version
from mlcost_pipeline.reports.main_report import (
    SECTIONS,
    build,
    closing_summary,
    print_bill_status,
    print_closing,
    write_report,
)
from mlcost_pipeline.reports.metadata import as_metadata
from mlcost_pipeline.reports.sections.freshness import freshness
from mlcost_pipeline.reports.sections.reconciliation import reconciliation
from mlcost_pipeline.reports.sections.trained import trained
from mlcost_pipeline.reports.stages import ledger_report
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.accounts import on_demand_cost
from mlcost_pipeline.spot.attempts import attempts_of, change_attempt, claim_next
from mlcost_pipeline.spot.jobs import note_candidate, open_job, set_current_attempt
from mlcost_pipeline.warehouse import Warehouse
from tests.inference.conftest import open_shop

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

BILL = """\
BilledCost,EffectiveCost,ListCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,\
ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ChargeClass,ServiceName,ResourceId,Tags,ProviderName,\
ChargeDescription,SkuId,InvoiceId
2.5,2.5,2.5,shop,USD,2025-06-01T00:00:00Z,2025-07-01T00:00:00Z,\
2025-06-01T12:00:00Z,2025-06-01T13:00:00Z,Usage,,Compute,spot-a/job1/1,"{""mlcost_model"": ""fraud""}",Cloud,hour,s,
1.5,1.5,1.5,shop,USD,2025-06-01T00:00:00Z,2025-07-01T00:00:00Z,\
2025-06-01T12:00:00Z,2025-06-01T13:00:00Z,Usage,,Compute,,,Cloud,hour,s,
"""


def numbers(doc: Any) -> dict[str, Any]:
    return {number.key: number.value for number in doc.numbers}


@pytest.fixture
def trained_once(warehouse: Warehouse, settings: Settings) -> Warehouse:
    """A job of two attempts: an hour on spot that was taken back, then on-demand to its end."""
    clock = Clock.fixed_origin(NOON)
    assert open_job(warehouse, settings, clock, job_id="job1", model="fraud", data_version="d1")
    for number, (market, price, outcome) in enumerate(
        [("spot", "1", "interrupted"), ("on_demand", "3", "succeeded")], 1
    ):
        start = NOON + 2 * (number - 1) * HOUR
        made = claim_next(
            warehouse, "job1", pool=f"{market}-a", market=market, price_per_hour=Decimal(price), reason="cheapest",
            now=start, clock_rate=1.0,
        )  # fmt: skip
        assert made is not None and made.number == number
        set_current_attempt(warehouse, "job1", number)
        change_attempt(warehouse, made, ended_at=start + HOUR, outcome=outcome, steps_done=50, total_steps=100,
                       stepping_wall_seconds=3000.0, load_seconds=10.0)  # fmt: skip
    note_candidate(warehouse, "job1", attempt=2, version="fraud-x")
    return warehouse


def test_an_empty_warehouse_says_what_is_missing(warehouse: Warehouse, settings: Settings) -> None:
    said = {doc.title: doc.summary for doc in build(warehouse, settings)}
    assert said["Spend by model and stage"].startswith("Spend is unknown: no ledger is in force")
    assert said["Does the bill add up"] == "Nothing was reconciled, because no bill was imported."
    assert said["Who has fresh recommendations"] == (
        "recommendations: nobody has a list, because no version was published yet."
    )
    assert "nothing was trained, because no job was opened" in said["What was trained, on which capacity, for how much"]
    assert said["In short"].startswith("Spend is unknown: no ledger is in force")
    assert said["Why the bill moved"].startswith("Not known why the bill moved: no two months in a row are over")
    assert len(said) == len(SECTIONS) + 1


def test_every_section_fits_metadata_and_is_marked(warehouse: Warehouse, settings: Settings) -> None:
    for doc in build(warehouse, settings):
        assert "SIMULATED" in doc.marks, doc.title
        assert as_metadata(doc)


def test_a_job_is_read_from_the_warehouse(trained_once: Warehouse, settings: Settings) -> None:
    doc = trained(trained_once, settings)
    assert numbers(doc)["cost"] == Decimal("4.000000000000000000")
    assert numbers(doc)["attempts"] == 2
    assert "fraud: open in 2 attempts on spot and on-demand for 4.00 USD, against" in doc.summary
    assert "ESTIMATE" in doc.marks
    assert [row[1] for row in doc.pictures[0].table.rows if row[1] != "waiting"] == ["spot", "on-demand"]


def test_a_bill_is_attributed_and_reconciled(trained_once: Warehouse, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    file.write_text(BILL, encoding="utf-8")
    import_bill(trained_once, file)
    build_ledgers(trained_once, settings)
    doc = reconciliation(trained_once, settings)
    assert doc.summary.startswith("Yes: 1 account and month reconciled to the last unit over 2 lines")
    assert numbers(doc)["not_reconciled"] == 0
    out = Console(record=True, width=100)
    print_bill_status(trained_once, settings, out)
    assert "of 4.00 USD is attributed to models" in out.export_text()


def test_a_masked_account_is_in_no_report(trained_once: Warehouse, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    file.write_text(BILL.replace(",shop,", ",123456789012,"), encoding="utf-8")
    hidden = settings.model_copy(update={"mask_accounts": True})
    import_bill(trained_once, file)
    not_built = write_report(trained_once, hidden, tmp_path / "a.html").path.read_text(encoding="utf-8")
    [made] = build_ledgers(trained_once, hidden)
    built = write_report(trained_once, hidden, tmp_path / "b.html").path.read_text(encoding="utf-8")
    assert "123456789012" not in not_built + built and "12…12#" in built
    assert "123456789012" not in str(as_metadata(ledger_report(made, hidden, trained_once)))


def test_a_ledger_that_was_never_built_is_no_yes(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    file.write_text(BILL, encoding="utf-8")
    import_bill(warehouse, file)
    doc = reconciliation(warehouse, settings)
    assert doc.summary.startswith("Not known yet: 1 account and month not attributed so far")
    assert doc.tables[0].rows[0][2] is False


def test_terminal_and_file_say_the_same(trained_once: Warehouse, settings: Settings, tmp_path: Path) -> None:
    written = write_report(trained_once, settings, tmp_path / "out" / "report.html")
    assert written.path.read_text(encoding="utf-8").count("<section") == len(SECTIONS) + 1
    assert written.closing == closing_summary(trained_once, settings)
    assert written.closing[0].startswith("SIMULATED: ")
    out = Console(record=True, width=200)
    print_closing(trained_once, settings, out, written=written)
    shown = " ".join(out.export_text().split())
    for line in written.closing:
        for clause in line.partition(": ")[2].split("; "):  # a clause that speaks of another model begins a line
            assert " ".join(clause.split()) in shown
    assert str(written.path) in shown
    assert as_metadata(written.overview)["report"].value == str(written.path)


def test_the_default_place_is_below_the_warehouse(warehouse: Warehouse, settings: Settings) -> None:
    assert write_report(warehouse, settings).path == warehouse.root / "reports" / "report.html"


def test_equal_warehouses_give_equal_reports(warehouse: Warehouse, settings: Settings) -> None:
    made = []
    for _ in range(2):
        for model in settings.models:
            set_clock(warehouse, model, NOON, 1.0)  # of the same minute, whichever minute it is here
        made.append(build(warehouse, settings))
    assert made[0] == made[1]


def test_a_project_without_recommendations_needs_no_list(warehouse: Warehouse, settings: Settings) -> None:
    only = settings.model_copy(update={"models": {"fraud": settings.models["fraud"]}})
    assert freshness(warehouse, only).summary == "No model makes recommendations, so nobody needs a list."


def test_a_pipeline_that_stands_still_reads_stale(tmp_path: Path) -> None:
    """Nothing is published or looked up any more; only the clock goes on."""
    shop = open_shop(tmp_path / "shop", [f"u{n}" for n in range(20)])
    published = make_version(shop.warehouse, shop.settings, shop.clock, shop.model, as_of=shop.day)
    fresh = {}
    for hours in (2, 24 * 10):
        set_clock(shop.warehouse, shop.model, shop.cut + timedelta(hours=hours), 1.0)
        doc = freshness(shop.warehouse, shop.settings)
        numbers = {number.key: number.value for number in doc.numbers}
        fresh[hours] = numbers["users_fresh"]
        age = numbers["list_age_seconds"]
        assert isinstance(age, int | float) and hours * 3600 <= age < hours * 3600 + 600
    assert fresh[2] and fresh[240] == 0, f"{published.version} is ten days old"


def test_what_on_demand_would_have_cost_does_not_change_with_the_rate_of_todays_clock(
    trained_once: Warehouse, settings: Settings
) -> None:
    attempts = attempts_of(trained_once, "job1")
    slow, fast = (Clock.fixed_origin(NOON, rate) for rate in (1.0, 720.0))
    costs = {on_demand_cost(trained_once, settings, clock, "fraud", attempts) for clock in (slow, fast)}
    assert len(costs) == 1
    [cost] = costs  # 6,000 s of steps and 10 s of loading at the cheapest on-demand price, and its start-up
    pool = min((p for p in settings.capacity.pools if p.market == "on_demand"), key=lambda p: p.price_per_hour)
    assert abs(cost - pool.price_per_hour * Decimal(6010 + pool.startup_seconds) / 3600) < Decimal("1e-9")
