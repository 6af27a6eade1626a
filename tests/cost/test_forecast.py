"""What a month will cost, how sure that is, and when a person is told that the budget will not do."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mlcost_pipeline.cli import main
from mlcost_pipeline.cost.budgets import budget_status
from mlcost_pipeline.cost.forecast import forecast
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import budgets
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import past_run, two_models
from tests.cost.ledgers import part, write_ledger

FEBRUARY, MARCH, APRIL = (datetime(2026, month, 1, tzinfo=UTC) for month in (2, 3, 4))
DAY = timedelta(days=1)


def budgeted(amount: str | None, **more: Any) -> Settings:
    settings = two_models(**more)
    if amount is None:
        return settings
    data = settings.model_dump(exclude={"base"})
    data["models"]["fraud"]["spend"] = {"monthly_budget": amount}
    return Settings.model_validate(data)


def spent(day: datetime, amount: str, **more: Any) -> dict[str, Any]:
    """A day's charge for a run."""
    return part(amount, run="r1", charge_start=day, charge_end=day + DAY, **more)


def test_an_even_month_goes_on_evenly_and_is_sure_of_it(warehouse: Warehouse) -> None:
    write_ledger(warehouse, *(spent(MARCH + n * DAY, "10") for n in range(10)), state="open")
    found = forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 10 * DAY)
    assert (found.spent, found.expected, found.low, found.high) == (100, 310, 310, 310)
    assert found.provisional_days == tuple(date(2026, 3, 1) + n * DAY for n in range(10))
    assert found.sentence == (
        "fraud, 2026-03: 100.00 USD so far; expected for the month: 310.00 (310.00 to 310.00) from 10 days; "
        "10 days provisional, from 2026-03-01 to 2026-03-10"
    )


def test_an_uneven_month_is_less_sure_and_never_below_what_is_spent(warehouse: Warehouse) -> None:
    write_ledger(warehouse, *(spent(MARCH + n * DAY, "0" if n % 5 else "50") for n in range(10)))
    found = forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 10 * DAY)
    assert (found.spent, found.expected) == (100, 310)
    assert found.low is not None and found.high is not None
    assert 100 <= found.low < 230 and 390 < found.high < 700
    assert found.provisional_days == ()  # the bill is final


def test_weekends_are_known_after_three_weeks(warehouse: Warehouse) -> None:
    def cost(day: datetime) -> str:
        return "2" if day.weekday() >= 5 else "20"

    february = [FEBRUARY + n * DAY for n in range(28)]
    write_ledger(warehouse, *(spent(day, cost(day)) for day in february), period="2026-02")
    march = [MARCH + n * DAY for n in range(2)]  # a Sunday and a Monday
    write_ledger(warehouse, *(spent(day, cost(day)) for day in march))
    found = forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 2 * DAY)
    assert found.by_weekday and found.rate_days == 28
    assert found.expected == sum(Decimal(cost(MARCH + n * DAY)) for n in range(31))
    assert found.low == found.high == found.expected


def test_days_that_no_bill_has_reached_are_estimates(warehouse: Warehouse) -> None:
    """An endpoint of 1 USD an hour: billed for two days, running since; a training of yesterday in no bill."""
    past_run(warehouse, "r1", stage="serving", start=MARCH, hours=31 * 24, price=Decimal(1))
    past_run(warehouse, "r2", resource="gpu-2", start=MARCH + 4 * DAY, hours=3, price=Decimal(2))
    past_run(warehouse, "r3", resource="mystery", start=MARCH + 4 * DAY)
    write_ledger(warehouse, spent(MARCH, "24"), spent(MARCH + DAY, "24"), state="open")
    found = forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 5 * DAY)
    assert (found.billed, found.estimated, found.unpriced_runs) == (48, 3 * 24 + 6, 1)
    states = [(day.amount, day.state) for day in found.days[:6]]
    assert states[:5] == [(24, "provisional")] * 2 + [(24, "estimated")] * 2 + [(30, "estimated")]
    assert states[5][1] == "expected" and len(found.days) == 31


def test_charges_of_the_whole_month_are_not_taken_for_a_days(warehouse: Warehouse) -> None:
    days = [spent(MARCH + n * DAY, "10") for n in range(10)]
    fee = part("31", charge_start=MARCH, charge_end=APRIL, method="tag")
    tax = part("20", charge_start=MARCH, charge_end=APRIL, method="derived", reason="tax", run="r1")
    write_ledger(warehouse, *days, fee, tax)
    found = forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 10 * DAY)
    assert found.spent == 151
    assert found.expected == 310 + 31 + Decimal("0.2") * 310  # tax follows, the fee does not


def test_a_month_that_is_over_is_what_it_was_and_one_day_says_nothing_of_a_month(warehouse: Warehouse) -> None:
    write_ledger(warehouse, *(spent(MARCH + n * DAY, "1") for n in range(31)))
    over = forecast(warehouse, two_models(), "fraud", "2026-03", APRIL + 9 * DAY)
    assert (over.expected, over.low, over.high) == (31, 31, 31)
    assert over.sentence == "fraud, 2026-03: 31.00 USD so far; the month is over"
    nobody = forecast(warehouse, two_models(), "recs", "2026-03", MARCH + DAY)
    assert (nobody.expected, nobody.low) == (0, None)
    assert "too few days" in nobody.sentence


def test_another_currency_and_another_model_are_not_this_models_month(warehouse: Warehouse) -> None:
    write_ledger(warehouse, spent(MARCH, "7"), currency="CAD", account="acct-2")
    write_ledger(warehouse, spent(MARCH, "9", model="recs"))
    assert forecast(warehouse, two_models(), "fraud", "2026-03", MARCH + 2 * DAY).spent == 0


@pytest.mark.parametrize(
    ("budget", "crossed"),
    [("500", []), ("300", ["forecast"]), ("120", ["forecast", "spent 80%"]), ("99", ["over", "spent 80%"])],
)
def test_thresholds_of_a_budget(warehouse: Warehouse, budget: str, crossed: list[str]) -> None:
    write_ledger(warehouse, *(spent(MARCH + n * DAY, "10") for n in range(10)))
    found = budget_status(warehouse, budgeted(budget), "fraud", "2026-03", MARCH + 10 * DAY)
    assert found is not None
    assert [crossing.name for crossing in found.crossings] == crossed
    assert budget_status(warehouse, budgeted(None), "fraud", "2026-03", MARCH) is None


def notices(warehouse: Warehouse) -> list[str]:
    file = warehouse.root / "notices.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()] if file.exists() else []


def test_a_person_is_told_once_a_threshold_and_month(warehouse: Warehouse) -> None:
    """The clock stands at the first of April: half a day's spend of 10 against a budget of 12."""
    april = [part("10", run="r1", charge_start=APRIL - DAY, charge_end=APRIL)]
    write_ledger(warehouse, *april, period="2026-04")
    tight = budgeted("12")
    for _ in range(3):
        found = budgets(warehouse, tight)
        assert found.requests == ()
    assert "1 budget was checked" in found.reason
    told = notices(warehouse)
    assert len(told) == len(set(told)) >= 1
    assert any("budget of fraud for 2026-04 is used to 83%" in text for text in told)
    write_ledger(warehouse, *april, part("10", run="r1", charge_start=APRIL, charge_end=APRIL + DAY), period="2026-04")
    budgets(warehouse, tight)
    assert any("budget of fraud for 2026-04 is spent" in text for text in notices(warehouse)[len(told) :])
    assert budgets(warehouse, budgeted(None)).reason == "no model has a monthly budget (spend.monthly_budget)"


def test_it_is_told_on_the_command_line(tmp_path: Path) -> None:
    data = budgeted("120").model_dump(mode="json", exclude={"base"}, exclude_defaults=True)
    data["models"]["fraud"] |= {"trainer": {"family": "mlp"}, "baseline": {"family": "forest"}}
    data["accounted"] = {"elsewhere": {}}
    (tmp_path / "mlcost.yaml").write_text(yaml.safe_dump(data))
    days = [spent(MARCH + n * DAY, "10", hours=1) for n in range(10)]
    write_ledger(Warehouse(tmp_path / "warehouse"), *days)
    past_run(Warehouse(tmp_path / "warehouse"), "r1", hours=10, price=Decimal(5))

    def said(*command: str) -> list[str]:
        result = CliRunner().invoke(main, ["--config", str(tmp_path / "mlcost.yaml"), *command])
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    share, elsewhere, fraud, recs = said("forecast", "--month", "2026-03")
    assert share == "2026-03: 100 % of 100.00 USD is attributed to models, nothing is left over."
    assert (elsewhere.partition(",")[0], recs.partition(",")[0]) == ("elsewhere", "recs")
    assert fraud == ("fraud, 2026-03: 100.00 USD so far; the month is over; budget 120.00 USD, 83% of it used")
    share, total, price = said("prices")
    assert share == "100 % of 100.00 USD is attributed to models, nothing is left over."
    assert total.startswith("The price book said 50.0000 USD of 1 run, the bill says 100.0000, +100.0%")
    assert price.startswith(
        "! price recorded with the run (gpu-1) says 5.00 USD/h, the bill says 10.00 USD/h over 10.0"
    )
    result = CliRunner().invoke(main, ["--config", str(tmp_path / "mlcost.yaml"), "forecast", "nobody"])
    assert result.exit_code == 1 and "no model 'nobody'" in result.output
