"""From delivery to ledger: exact, whole, restated with its cause, and refused where it does not close."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.cost import attribution
from mlcost_pipeline.cost.asof import standing
from mlcost_pipeline.cost.daily_spend import daily_spend
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery, import_bill, scope_of
from mlcost_pipeline.cost.due import ledgers_behind
from mlcost_pipeline.cost.ledger import build_ledger, build_ledgers, reconcile, require_reconciled
from mlcost_pipeline.cost.masking import scope_shown
from mlcost_pipeline.cost.prices import billed_runs
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.errors import BillError, NothingCompared, Unreconciled
from mlcost_pipeline.reports.ledger_view import by, read_spend
from mlcost_pipeline.reports.ledger_view import total as total_of
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, ledger_rows, line, past_run, two_models, write_bill

SCOPE = scope_of(ACCOUNT, PERIOD)


@pytest.fixture
def shop(warehouse: Warehouse, tmp_path: Path) -> Warehouse:
    """A GPU with two runs and an idle half hour, a bucket with a model tag, a tax, a line of strangers."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", NOON - timedelta(days=30))
    past_run(warehouse, "r1", hours=0.5)
    past_run(warehouse, "r2", model="recs", stage="serving", start=NOON + HOUR)
    rows = [
        line("4"), line("6", start=NOON + HOUR, effective="3"), line("-1", category="Credit"),
        line("2", resource="bucket", tags={"mlcost_model": "recs", "mlcost_stage": "features"}),
        line("0.5", category="Tax", resource=None), line("7", resource="vm-9"),
    ]  # fmt: skip
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    return warehouse


def _of_run(warehouse: Warehouse, run_id: str, measure: str = "effective") -> Decimal:
    """What a run was charged, without the taxes that follow."""
    rows = [row for row in ledger_rows(warehouse, PERIOD) if row["method"] != "derived"]
    return sum((row[measure] for row in rows if row["run_id"] == run_id), Decimal(0))


def test_a_bill_becomes_parts_that_add_up_to_it(shop: Warehouse, settings: Settings) -> None:
    made = build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert made.reconciliation.reconciled
    assert [(c.measure, c.bill, c.difference) for c in made.reconciliation.measures] == [
        ("billed", Decimal("18.5"), Decimal(0)),
        ("effective", Decimal("15.5"), Decimal(0)),
        ("list", Decimal("18.5"), Decimal(0)),
    ]
    assert _of_run(shop, "r1") == Decimal("1.5")  # half of 4, half of the credit
    assert (_of_run(shop, "r2", "billed"), _of_run(shop, "r2")) == (Decimal(6), Decimal(3))


def test_building_again_is_a_no_op(shop: Warehouse, settings: Settings) -> None:
    first = build_ledger(shop, settings, ACCOUNT, PERIOD)
    again = build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert (first.new, again.new, again.restated) == (True, False, 0)
    assert first.ledger_version == again.ledger_version
    assert shop.versions("cost_ledger", SCOPE) == [first.ledger_version]


def test_a_restated_bill_says_what_changed_for_which_run(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1", resource="spot-1")
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("0.007", resource="spot-1", InvoiceId=None)]))
    first = build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("0.210", resource="spot-1", InvoiceId=None)]))
    with pytest.raises(Unreconciled):  # the ledger still stands on the delivery before
        require_reconciled(warehouse, ACCOUNT, PERIOD)
    second = build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert _of_run(warehouse, "r1") == Decimal("0.210")
    [entry] = warehouse.rows("restatements")
    assert (entry["run_id"], entry["cause"], entry["effective_delta"]) == ("r1", "cost", Decimal("0.203"))
    assert (entry["old_ledger_version"], entry["new_ledger_version"]) == (first.ledger_version, second.ledger_version)
    assert second.reconciliation.provisional
    assert second.reconciliation.delivery_id in second.reconciliation.sentence
    assert warehouse.read_version("cost_ledger", SCOPE, first.ledger_version).num_rows == 1  # as of then


def test_a_tag_backfill_is_named_as_the_cause_and_changes_no_total(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("3", resource="endpoint")]))
    before = build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    tagged = [line("3", resource="endpoint", tags={"model": "fraud", "stage": "serving"})]
    import_bill(warehouse, write_bill(tmp_path / "2.csv", tagged))
    after = build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert before.reconciliation.measures[0].bill == after.reconciliation.measures[0].bill
    changed = warehouse.rows("restatements")
    assert {row["cause"] for row in changed} == {"tags"}
    assert sum(row["billed_delta"] for row in changed) == 0
    assert {row["model"]: row["billed_delta"] for row in changed} == {None: Decimal(-3), "fraud": Decimal(3)}


def test_a_run_recorded_late_and_new_rules_restate_the_period(
    shop: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    past_run(shop, "late", start=NOON + HOUR / 2, hours=0.5)
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert {row["cause"] for row in shop.rows("restatements")} == {"runs"}
    assert _of_run(shop, "late") == Decimal("1.5")
    rule = {"name": "vm", "when": {"resource_prefix": "VM-"}, "model": "fraud", "stage": "serving"}
    ruled = two_models(rules=[rule])
    assert "rules of mlcost.yaml changed" in ledgers_behind(shop, ruled)[0].reason
    made = build_ledger(shop, ruled, ACCOUNT, PERIOD)
    assert made.reconciliation.reconciled
    monkeypatch.setattr(attribution, "RULES_VERSION", "next")
    assert "the ladder went from" in ledgers_behind(shop, ruled)[0].reason
    assert {row["cause"] for row in shop.rows("restatements")} == {"runs", "rules"}


def test_killed_before_the_pointer_moves_the_old_ledger_stays_and_a_repeat_finishes(
    shop: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_ledger(shop, settings, ACCOUNT, PERIOD)
    past_run(shop, "late", start=NOON + HOUR / 2, hours=0.5)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shop, "point", killed)
        build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert shop.current("cost_ledger", SCOPE) == first.ledger_version
    restated = shop.rows("restatements")
    second = build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert shop.rows("restatements") == restated
    assert second.restated == len(restated) > 0
    assert second.reconciliation.reconciled


def test_a_ledger_is_behind_until_it_is_built_on_the_newest_bill_and_runs(
    shop: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    [behind] = ledgers_behind(shop, settings)
    assert (behind.scope, "no ledger" in behind.reason) == (f"{ACCOUNT}|{PERIOD}", True)
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert ledgers_behind(shop, settings) == []
    past_run(shop, "after the billed time", start=NOON + 5 * HOUR)
    past_run(shop, "elsewhere", resource="a machine that is not on the bill")
    assert ledgers_behind(shop, settings) == []
    past_run(shop, "late", start=NOON + HOUR / 2, hours=0.5)
    [behind] = ledgers_behind(shop, settings)
    assert "runs within the billed time" in behind.reason
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    import_bill(shop, write_bill(tmp_path / "2.csv", [line("1")]))
    [behind] = ledgers_behind(shop, settings)
    assert "took over" in behind.reason


def test_a_period_that_does_not_close_is_refused(shop: Warehouse, settings: Settings) -> None:
    made = build_ledger(shop, settings, ACCOUNT, PERIOD)
    rows = shop.read_version("cost_ledger", SCOPE).to_pylist()
    rows[0]["billed"] += Decimal("1e-18")
    rows[1]["billed"] -= Decimal("1e-18")  # totals agree, two slots do not
    shop.write_version("cost_ledger", SCOPE, "tampered", rows)
    shop.point("cost_ledger", SCOPE, "tampered")
    found = reconcile(shop, ACCOUNT, PERIOD)
    assert (found.reconciled, found.slots_off) == (False, 2)
    with pytest.raises(Unreconciled, match="NOT reconciled"):
        require_reconciled(shop, ACCOUNT, PERIOD)
    shop.write_version("cost_ledger", SCOPE, "lost", rows[1:])
    shop.point("cost_ledger", SCOPE, "lost")
    with pytest.raises(Unreconciled, match="billed off by"):
        require_reconciled(shop, ACCOUNT, PERIOD)
    repaired = build_ledger(shop, settings, ACCOUNT, PERIOD)
    assert repaired.ledger_version == made.ledger_version
    assert require_reconciled(shop, ACCOUNT, PERIOD).reconciled


def test_comparing_nothing_fails(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BillError, match="no bill was taken over"):
        build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("1")]))
    with pytest.raises(NothingCompared, match="no ledger was built"):
        reconcile(warehouse, ACCOUNT, PERIOD)


def test_two_months_of_the_same_resource_stay_apart(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> None:
    """A charge of the first of April that is invoiced with March is March's money and the April run's cost."""
    past_run(warehouse, "april", resource="gpu-7", start=NOON + timedelta(days=22), hours=2)
    rows = [
        line("10", resource="gpu-7", start=NOON + timedelta(days=22)),
        line("10", resource="gpu-7", start=NOON + timedelta(days=22), BillingPeriodStart="2026-04-01T00:00:00Z"),
    ]
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    march, april = build_ledgers(warehouse, settings)
    assert [made.reconciliation.measures[0].bill for made in (march, april)] == [Decimal(10), Decimal(10)]
    assert _of_run(warehouse, "april") == Decimal(10)


def test_nothing_is_told_of_a_ledger_that_a_newer_delivery_took_over(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1", resource="gpu-1")
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("3", resource="gpu-1")]))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert [(entry.model, entry.effective) for entry in read_spend(warehouse)] == [("fraud", Decimal(3))]
    assert billed_runs(warehouse) == {"r1": Decimal(3)} and len(standing(warehouse)) == 1
    import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("5", resource="gpu-1")]))
    [entry] = read_spend(warehouse)  # what is billed is known, and that nobody apportioned it yet
    assert (entry.model, entry.reason, entry.effective) == (None, "no_ledger_yet", Decimal(5))
    assert billed_runs(warehouse) == {} and standing(warehouse) == []
    assert not daily_spend(warehouse, settings, "fraud", PERIOD, NOON + timedelta(days=60)).final
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert billed_runs(warehouse) == {"r1": Decimal(5)}


def test_a_masked_account_is_found_by_what_is_shown_of_it(shop: Warehouse, settings: Settings) -> None:
    hidden = settings.model_copy(update={"mask_accounts": True})
    [behind] = ledgers_behind(shop, hidden)
    assert ACCOUNT not in behind.scope and ACCOUNT not in behind.reason
    assert scope_shown(shop, hidden, behind.scope) == (ACCOUNT, PERIOD)
    assert scope_shown(shop, settings, f"{ACCOUNT}|{PERIOD}") == (ACCOUNT, PERIOD)
    with pytest.raises(BillError, match=r"no bill in force is of that account and month"):
        scope_shown(shop, hidden, f"{ACCOUNT}|{PERIOD}")


def test_a_ledger_that_does_not_close_is_never_put_in_force(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1", resource="gpu-1")
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("3", resource="gpu-1")]))
    before = build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("5", resource="gpu-1"), line("2", resource="gpu-2")]))
    bill = delivery(warehouse, ACCOUNT, PERIOD)
    assert bill is not None
    slots = warehouse.version_file("billing_slots", SCOPE, bill.delivery_id)
    assert slots is not None
    sound = pq.read_table(slots)
    pq.write_table(sound.slice(0, 1), slots)  # one of the two slots is lost
    with pytest.raises(Unreconciled, match=r"off by [25]; .* it was not put in force"):
        build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert warehouse.current("cost_ledger", SCOPE) == before.ledger_version
    assert warehouse.rows("restatements") == []


def test_currencies_are_never_added_up(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> None:
    rows = [line("1"), line("2", BillingCurrency="CAD", BillingAccountId="north")]
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    build_ledgers(warehouse, settings)
    found = by(read_spend(warehouse), lambda entry: entry.currency)
    assert sorted(found.items()) == [("CAD", Decimal(2)), ("USD", Decimal(1))]


def test_bills_of_strangers_import_reconcile_and_read_unattributed_by_reason(
    warehouse: Warehouse, settings: Settings, billing_data: Path
) -> None:
    files = sorted(billing_data.glob("focus_*.csv"))
    assert len(files) == 4
    for file in files:
        contents = pa.csv.read_csv(file, convert_options=pa.csv.ConvertOptions(include_columns=["BilledCost"]))
        made = import_bill(warehouse, file)
        assert sum(d.rows for d in made) == contents.num_rows
        for one in made:
            found = build_ledger(warehouse, settings, one.account, one.period)
            assert found.reconciliation.reconciled
            assert found.reconciliation.lines == one.rows
    kept = ledger_rows(warehouse)
    assert {row["method"] for row in kept} == {"derived", "unattributed"}
    assert {row["reason"] for row in kept} <= {
        "charge_type", "no_resource_id", "unknown_resource", "commitment", "commitment_unused", "tax", "credit",
        "discount", "support",
    }  # fmt: skip
    bills = [delivery(warehouse, *pair) for pair in bills_in_force(warehouse)]
    total = sum((bill.effective_total for bill in bills if bill), Decimal(0))
    assert total_of(read_spend(warehouse)) == total
    assert not any(entry.attributed for entry in read_spend(warehouse))
