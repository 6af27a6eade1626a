"""Which months a figure may rest on: what is stale or has no ledger is left out by name, never taken for nought."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost.books import books, left_out
from mlcost_pipeline.cost.deliveries import delivery, import_bill
from mlcost_pipeline.cost.device_ladder import ladders
from mlcost_pipeline.cost.forecast import forecast
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.price_check import check_prices
from mlcost_pipeline.cost.pricing import retrain_price
from mlcost_pipeline.cost.unit_cost import unit_cost, unit_costs, unit_costs_of_all
from mlcost_pipeline.cost.waste import waste
from mlcost_pipeline.errors import NothingCompared, Unreconciled
from mlcost_pipeline.levers.spending import month_of
from mlcost_pipeline.reports.first_line import first_lines
from mlcost_pipeline.reports.sections.spend import spend
from mlcost_pipeline.reports.sections.unbilled import not_billed
from mlcost_pipeline.reports.sections.unit_cost import unit_cost as cost_of_one
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, write_bill
from tests.cost.ledgers import part, write_ledger

APRIL = datetime(2026, 4, 1, tzinfo=UTC)
SCOPE = f"{ACCOUNT}|{PERIOD}"
TOLD = f"account {ACCOUNT}, {PERIOD}: its ledger is not used"


@pytest.fixture
def taken_over(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> Warehouse:
    """A month whose ledger stands on a bill that was taken over by one with the same hour in two lines."""
    past_run(warehouse, "r1", purpose="retrain", job_id="j1")
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("3")]))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("1"), line("2")]))
    return warehouse


def test_a_book_says_what_it_is_good_for(taken_over: Warehouse, settings: Settings, tmp_path: Path) -> None:
    import_bill(taken_over, write_bill(tmp_path / "other.csv", [line("9", BillingAccountId="acct-2")]))
    found = books(taken_over, None)
    assert {book.bill.account: book.standing for book in found} == {ACCOUNT: "stale", "acct-2": "no_ledger"}
    stale, unbuilt = sorted(left_out(found, settings), key=lambda said: "no ledger" in said)
    bill = delivery(taken_over, ACCOUNT, PERIOD)
    assert bill is not None and f"delivery {bill.delivery_id} took over from " in stale
    assert stale.startswith(TOLD) and stale.endswith("run: mlcost tick")
    assert unbuilt == f"account acct-2, {PERIOD}: nothing is attributed, for no ledger was built yet; run: mlcost tick"
    masked = settings.model_copy(update={"mask_accounts": True})
    assert not any(ACCOUNT in said or "acct-2" in said for said in left_out(found, masked))
    build_ledger(taken_over, settings, ACCOUNT, PERIOD)
    [now] = books(taken_over, None, PERIOD)[:1]
    assert (now.standing, left_out([now], settings)) == ("final", ())


def test_a_stale_month_is_refused_also_where_its_old_ledger_happens_to_add_up(
    taken_over: Warehouse, settings: Settings
) -> None:
    with pytest.raises(NothingCompared, match=rf"{TOLD}.* took over from .*mlcost tick"):
        unit_costs(taken_over, settings, "fraud")


def test_whatever_is_told_without_a_month_names_it(taken_over: Warehouse, settings: Settings) -> None:
    now = NOON + timedelta(days=60)
    told = [
        forecast(taken_over, settings, "fraud", PERIOD, now).sentence,
        forecast(taken_over, settings, "fraud", "2026-04", now).sentence,  # its rate comes from March
        check_prices(taken_over, settings, now).sentence,
        " ".join(waste(taken_over, settings, now).unknown),
        " ".join(first_lines(taken_over, settings)),
        " ".join(spend(taken_over, settings).notes),
        " ".join(not_billed(taken_over, settings).notes),
        " ".join(cost_of_one(taken_over, settings).notes),
    ]
    assert [TOLD in said for said in told] == [True] * 8
    assert unit_costs_of_all(taken_over, settings) == {"fraud": [], "recs": []}  # not a month that looks cheap
    assert month_of(taken_over, settings, "fraud") is None
    assert TOLD not in " ".join(first_lines(taken_over, settings, "2026-04"))
    build_ledger(taken_over, settings, ACCOUNT, PERIOD)
    assert TOLD not in forecast(taken_over, settings, "fraud", PERIOD, now).sentence
    assert not any(TOLD in said for said in first_lines(taken_over, settings))


def test_a_ledger_that_was_rejected_does_not_stand_in_the_way_of_the_sound_one(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1")
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("3"), line("2", resource="gpu-2")]))
    bill = delivery(warehouse, ACCOUNT, PERIOD)
    assert bill is not None
    slots = warehouse.version_file("billing_slots", SCOPE, bill.delivery_id)
    assert slots is not None
    sound, kept = pq.read_table(slots), slots.read_bytes()
    billed = sound.schema.get_field_index("billed")
    pq.write_table(sound.set_column(billed, sound.field(billed), sound["billed"].take([0, 0])), slots)
    with pytest.raises(Unreconciled, match="it was not put in force"):
        build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    slots.write_bytes(kept)
    assert build_ledger(warehouse, settings, ACCOUNT, PERIOD).reconciliation.reconciled


def test_a_retrain_into_a_month_without_a_final_bill_may_change(warehouse: Warehouse, settings: Settings) -> None:
    """Its last hours are on April's bill, which nobody has seen yet: what March says is not all of it."""
    past_run(warehouse, "j1/1", purpose="retrain", job_id="j1", start=APRIL - HOUR, hours=3)
    warehouse.append("jobs", [{"job_id": "j1", "model": "fraud", "deadline": APRIL, "state": "rejected"}])
    write_ledger(warehouse, part("3", run="j1/1", hours=1))
    [march] = unit_costs(warehouse, settings, "fraud")
    assert (march.per_retrain, march.provisional) == (Decimal(3), True)
    assert retrain_price(warehouse, settings, "fraud").source.endswith("provisional: a bill of them is open or to come")
    [useless] = waste(warehouse, settings, NOON).retrains
    assert useless.provisional
    write_ledger(warehouse, part("6", run="j1/1", hours=2), period="2026-04")
    march, _ = unit_costs(warehouse, settings, "fraud")
    assert (march.per_retrain, march.provisional) == (Decimal(9), False)
    assert "provisional" not in retrain_price(warehouse, settings, "fraud").source
    [useless] = waste(warehouse, settings, NOON).retrains
    assert not useless.provisional


def test_a_month_without_any_bill_is_not_final(warehouse: Warehouse, settings: Settings) -> None:
    warehouse.append("outcomes", [{
        "model": "fraud", "model_version": "v1", "start": APRIL, "end": APRIL + timedelta(days=30), "slice": "all",
        "unit": "fraud_caught", "definition_version": "1", "count": 5.0, "low": 5.0, "high": 5.0, "state": "measured",
        "source": "labels",
    }])  # fmt: skip
    assert unit_cost(warehouse, settings, "fraud", "2026-04").provisional
    write_ledger(warehouse, part("1"), period="2026-04")
    assert not unit_cost(warehouse, settings, "fraud", "2026-04").provisional


def test_a_ladder_that_rests_on_a_bill_that_may_change_says_so(warehouse: Warehouse, settings: Settings) -> None:
    past_run(warehouse, "r1", start=APRIL - HOUR, hours=4, busy_seconds=7200, busy_metric="nvml", busy_coverage=1.0)
    write_ledger(warehouse, part("1", run="r1", hours=1))
    write_ledger(warehouse, part("3", run="r1", hours=3), period="2026-04", state="open")
    march, april = ladders(warehouse, settings, model="fraud")
    assert march.rests_on == (PERIOD, "2026-04") and march.provisional and april.provisional
    assert march.sentence.endswith("; provisional: a bill of 2026-04 is open or to come")
    assert unit_cost(warehouse, settings, "fraud", PERIOD).ladders == (march,)
    write_ledger(warehouse, part("3", run="r1", hours=3), period="2026-04")
    assert not any(ladder.provisional for ladder in ladders(warehouse, settings))
