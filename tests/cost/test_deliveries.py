"""Deliveries: whole, immutable, one a period, taken over atomically or not at all."""

from __future__ import annotations

import gzip
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.cost.asof import history, in_force_at
from mlcost_pipeline.cost.deliveries import bills_in_force, delivery, import_bill, import_new, in_force, scope_of
from mlcost_pipeline.cost.ledger import build_ledger
from mlcost_pipeline.cost.waiting import bills_waiting
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import (
    ACCOUNT,
    HOUR,
    NOON,
    PERIOD,
    ledger_rows,
    line,
    past_run,
    stored_lines,
    two_models,
    write_bill,
)


def _total(warehouse: Warehouse, account: str = ACCOUNT, period: str = PERIOD) -> Decimal:
    found = delivery(warehouse, account, period)
    assert found is not None
    rows = [row for row in stored_lines(warehouse) if row["delivery_id"] == found.delivery_id]
    assert len(rows) == found.rows
    assert sum(row["billed"] for row in rows) + found.billed_residue == found.billed_total
    return found.billed_total


def test_the_same_delivery_twice_is_one_delivery(warehouse: Warehouse, tmp_path: Path) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1.5"), line("-0.25", category="Credit")])
    [first] = import_bill(warehouse, bill)
    packed = tmp_path / "bill.csv.gz"
    packed.write_bytes(gzip.compress(bill.read_bytes()))
    [second] = import_bill(warehouse, packed)
    assert (first.took_over, second.took_over) == (True, False)
    assert first.delivery_id == second.delivery_id
    assert len(stored_lines(warehouse)) == 2
    assert len(warehouse.rows("bill_deliveries")) == 1
    assert _total(warehouse) == Decimal("1.25")


def test_a_newer_delivery_takes_the_period_over_and_the_older_is_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    first = import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("0.007")]))[0]
    second = import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("0.210"), line("1")]))[0]
    assert in_force(warehouse, ACCOUNT, PERIOD) == second.delivery_id
    assert _total(warehouse) == Decimal("1.210")
    kept = {row["delivery_id"] for row in stored_lines(warehouse)}
    assert kept == {first.delivery_id, second.delivery_id}
    import_bill(warehouse, tmp_path / "1.csv")  # an old file again does not push the newer one out
    assert in_force(warehouse, ACCOUNT, PERIOD) == second.delivery_id
    later = second.received_at + timedelta(days=1)  # the provider went back to what it had delivered first
    assert import_bill(warehouse, tmp_path / "1.csv", received_at=later)[0].took_over
    assert in_force(warehouse, ACCOUNT, PERIOD) == first.delivery_id
    assert not import_bill(warehouse, tmp_path / "2.csv")[0].took_over
    assert not import_bill(warehouse, tmp_path / "1.csv", received_at=later)[0].took_over


def test_an_older_delivery_that_nobody_saw_yet_does_not_push_the_newer_out(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    newer, older = write_bill(tmp_path / "2.csv", [line("0.210")]), write_bill(tmp_path / "1.csv", [line("0.007")])
    [kept] = import_bill(warehouse, newer, received_at=NOON)
    [late] = import_bill(warehouse, older, received_at=NOON - HOUR)
    assert (late.took_over, late.behind) == (False, kept.delivery_id)
    assert in_force(warehouse, ACCOUNT, PERIOD) == kept.delivery_id
    assert {row["delivery_id"] for row in stored_lines(warehouse)} == {kept.delivery_id, late.delivery_id}
    assert not import_bill(warehouse, older, received_at=NOON - HOUR)[0].took_over
    [said] = import_bill(warehouse, older, received_at=NOON + HOUR)  # a person knows that it is the newest after all
    assert (said.took_over, said.behind) == (True, None)
    assert in_force(warehouse, ACCOUNT, PERIOD) == late.delivery_id


def test_an_older_delivery_that_comes_late_changes_nothing_of_what_was_in_force_on_a_day(
    warehouse: Warehouse, tmp_path: Path, settings: Settings
) -> None:
    import_bill(warehouse, write_bill(tmp_path / "2.csv", [line("2")]), received_at=NOON)
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    before = history(warehouse, ACCOUNT, PERIOD)
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("1")]), received_at=NOON - HOUR)
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert len(before) == 1 and history(warehouse, ACCOUNT, PERIOD) == before
    assert in_force_at(warehouse, before[0].since) == before


def test_a_delivery_that_came_again_is_as_new_as_the_last_time(warehouse: Warehouse, tmp_path: Path) -> None:
    first, second = write_bill(tmp_path / "1.csv", [line("1")]), write_bill(tmp_path / "2.csv", [line("2")])
    [kept] = import_bill(warehouse, first, received_at=NOON)
    import_bill(warehouse, first, received_at=NOON + 2 * HOUR)
    assert import_bill(warehouse, second, received_at=NOON + HOUR)[0].behind == kept.delivery_id
    assert import_bill(warehouse, second, received_at=NOON + 3 * HOUR)[0].took_over


def test_killed_before_the_pointer_moves_the_old_bill_stays_and_a_repeat_finishes(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("1")]))
    second = write_bill(tmp_path / "2.csv", [line("2"), line("3")])
    update = warehouse.state.update

    def killed(path: str, change: Any) -> Any:
        raise KeyboardInterrupt

    for attribute in ("update",):
        monkeypatch.setattr(warehouse.state, attribute, killed)
    with pytest.raises(KeyboardInterrupt):
        import_bill(warehouse, second)
    monkeypatch.setattr(warehouse.state, "update", update)
    assert _total(warehouse) == Decimal(1)
    [made] = import_bill(warehouse, second)
    assert made.took_over
    assert _total(warehouse) == Decimal(5)


def test_a_refused_file_leaves_everything_as_it_was(warehouse: Warehouse, tmp_path: Path) -> None:
    import_bill(warehouse, write_bill(tmp_path / "1.csv", [line("1")]))
    rows = [line("2"), line("3", BillingAccountId="acct-2"), line("oops")]
    with pytest.raises(BillError, match="line 4, column BilledCost"):
        import_bill(warehouse, write_bill(tmp_path / "2.csv", rows))
    with pytest.raises(BillError, match="holds no charge"):
        import_bill(warehouse, write_bill(tmp_path / "3.csv", []))
    assert bills_in_force(warehouse) == [(ACCOUNT, PERIOD)]
    assert len(stored_lines(warehouse)) == 1


def test_rows_go_to_their_own_account_and_period(warehouse: Warehouse, tmp_path: Path) -> None:
    april = {"BillingPeriodStart": "2026-04-01T00:00:00Z"}
    rows = [line("10"), line("10", **april), line("7", BillingAccountId="/providers/Acme/accounts/9")]
    made = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert [(d.account, d.period, d.billed_total) for d in made] == [
        ("/providers/Acme/accounts/9", "2026-03", Decimal(7)),
        (ACCOUNT, "2026-03", Decimal(10)),
        (ACCOUNT, "2026-04", Decimal(10)),
    ]
    assert _total(warehouse, "/providers/Acme/accounts/9") == Decimal(7)


def test_an_account_that_looks_like_a_path_stays_inside(warehouse: Warehouse, tmp_path: Path) -> None:
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("1", BillingAccountId="..")]))
    assert bills_in_force(warehouse) == [("..", PERIOD)]
    assert not list(warehouse.root.glob("*.json.*")) and not (warehouse.root / "state" / f"{PERIOD}.json").exists()


def test_two_currencies_in_one_period_are_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line("1"), line("1", BillingCurrency="CAD")]
    with pytest.raises(BillError, match="billed in CAD and USD"):
        import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))


def test_a_period_is_final_only_when_every_line_says_so(warehouse: Warehouse, tmp_path: Path) -> None:
    def state(*rows: dict[str, Any]) -> str:
        return import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))[0].state

    assert state(line("1"), line("2")) == "final"
    assert state(line("1"), line("2", InvoiceId=None)) == "open"
    closed = {"InvoiceId": None, "BillingPeriodStatus": "Closed"}
    assert state(line("3", **closed), line("2", **closed)) == "final"
    assert state(line("3", **closed), line("2", InvoiceId=None, BillingPeriodStatus="Open")) == "open"


def test_the_files_of_a_folder_are_the_parts_of_one_export(warehouse: Warehouse, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        rows = [line(str(number), resource=f"gpu-{number}"), line("0.5", resource=f"disk-{number}")]
        write_bill(tmp_path / "bills" / f"part-{number}.csv", rows)
    [made] = import_bill(warehouse, tmp_path / "bills")
    assert (made.rows, made.billed_total) == (6, Decimal("7.5"))
    assert sorted(row["line"] for row in stored_lines(warehouse)) == [2, 3, 4, 5, 6, 7]
    (tmp_path / "bills" / "part-4.csv").write_bytes((tmp_path / "bills" / "part-1.csv").read_bytes())
    with pytest.raises(BillError, match="same file"):
        import_bill(warehouse, tmp_path / "bills")


def test_two_deliveries_of_a_period_in_one_folder_are_not_added_up(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line(str(number), start=NOON + number * HOUR) for number in range(6)]
    write_bill(tmp_path / "bills" / "first.csv", rows)
    write_bill(tmp_path / "bills" / "restated.csv", [*rows[:5], line("9", start=NOON + 5 * HOUR)])
    with pytest.raises(BillError, match=r"restated\.csv: repeats most charges of account acct-1, period 2026-03"):
        import_bill(warehouse, tmp_path / "bills")
    assert bills_in_force(warehouse) == []


def test_a_restated_bill_in_one_folder_with_the_old_one_is_refused_whatever_its_amounts(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Half the month was out at the first export, nothing was invoiced, and a discount came for every charge."""
    hours = [line("1.5", start=NOON + number * HOUR, InvoiceId=None) for number in range(1000)]
    late = [row | {"BilledCost": "1.2", "EffectiveCost": "1.2", "InvoiceId": "INV-1"} for row in hours]
    write_bill(tmp_path / "bills" / "first.csv", hours[:500])
    write_bill(tmp_path / "bills" / "restated.csv", late)
    with pytest.raises(BillError, match=r"restated\.csv: has most charges, at other amounts, of account acct-1"):
        import_bill(warehouse, tmp_path / "bills")
    assert bills_in_force(warehouse) == []


def test_parts_of_which_nobody_can_say_are_added_up_with_a_warning(warehouse: Warehouse, tmp_path: Path) -> None:
    """An export without hours, resources and products: its charges look alike, and parts share them."""
    for number in (1, 2):
        rows = [line(f"{number}.{cents:02}", resource=None) for cents in range(50)]
        write_bill(tmp_path / "bills" / f"part-{number}.csv", rows)
    [made] = import_bill(warehouse, tmp_path / "bills")
    assert made.billed_total == Decimal("174.5")
    assert any("part-2.csv: 100% of what it charges for is in" in text for text in made.warnings)


def test_what_rounding_takes_off_is_kept_with_the_delivery(warehouse: Warehouse, tmp_path: Path) -> None:
    rows = [line("0.0000000000000000005") for _ in range(4)]
    [made] = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert made.billed_total == made.billed_residue == Decimal("0.000000000000000002")
    assert made.list_total == made.list_residue == Decimal("0.000000000000000002")
    assert _total(warehouse) == made.billed_total


def test_configured_places_are_imported_when_their_files_change(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = two_models(
        bills=[{"path": str(tmp_path / "a")}, {"path": str(tmp_path / "b")}, {"path": str(tmp_path / "none")}]
    )
    assert bills_waiting(warehouse, settings) == []
    write_bill(tmp_path / "a" / "bill.csv", [line("1")])
    write_bill(tmp_path / "b" / "bill.csv", [line("torn", BillingAccountId="acct-2")])
    with pytest.raises(BillError, match="'torn'"):
        import_new(warehouse, settings)
    assert _total(warehouse) == Decimal(1)
    assert [path for path, _ in bills_waiting(warehouse, settings)] == [str(tmp_path / "b")]
    write_bill(tmp_path / "b" / "bill.csv", [line("2", BillingAccountId="acct-2")])
    assert [made.account for made in import_new(warehouse, settings)] == ["acct-2"]
    assert import_new(warehouse, settings) == []


def _part(billed: str, consumer: str | None, **more: str | None) -> dict[str, Any]:
    told = {"AllocatedMethodId": "even", "AllocatedResourceId": consumer, "AllocatedTags": None}
    return line(billed, resource="node-1", tags={"team": "ml", "mlcost_model": "recs"}) | told | more


def _slots_of(warehouse: Warehouse, delivery_id: str) -> dict[str | None, tuple[Decimal, str | None]]:
    versions = {"billing_slots": [(scope_of(ACCOUNT, PERIOD), delivery_id)]}
    rows = warehouse.query("SELECT * FROM billing_slots", tables=versions, versions=versions).to_pylist()
    return {row["resource_id"]: (row["billed"], row["tag_model"]) for row in rows}


def test_of_a_charge_that_is_there_whole_and_in_allocated_parts_only_the_parts_count(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    none = dict.fromkeys(("AllocatedMethodId", "AllocatedResourceId", "AllocatedTags"))
    parts = [
        _part("0.5", "pod-a", AllocatedTags='{"mlcost_model": "fraud"}'),
        _part("0.3", "pod-b"),
        _part("0.2", None),  # what no pod used: it stays with the node
    ]
    only_parts = import_bill(warehouse, write_bill(tmp_path / "parts.csv", parts))[0]
    assert (only_parts.billed_total, only_parts.warnings) == (Decimal(1), ())
    expected = {
        "pod-a": (Decimal("0.5"), "fraud"), "pod-b": (Decimal("0.3"), "recs"), "node-1": (Decimal("0.2"), "recs"),
    }  # fmt: skip
    assert _slots_of(warehouse, only_parts.delivery_id) == expected
    whole = [line("1", resource="node-1", tags={"team": "ml", "mlcost_model": "recs"}) | none]
    both = import_bill(warehouse, write_bill(tmp_path / "both.csv", [*parts, *whole]))[0]
    assert (both.rows, both.billed_total, both.effective_total, both.list_total) == (4, *[Decimal(1)] * 3)
    assert _slots_of(warehouse, both.delivery_id) == expected
    [warning] = both.warnings
    assert "1 charges of 1 USD are there as a whole and as parts that the provider allocated" in warning


def test_a_charge_that_its_allocated_parts_do_not_add_up_to_counts_and_is_reported(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    none = dict.fromkeys(("AllocatedMethodId", "AllocatedResourceId", "AllocatedTags"))
    rows = [_part("0.5", "pod-a"), line("0.75", resource="node-1") | none, line("9", resource="node-2") | none]
    [made] = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    assert made.billed_total == Decimal("10.25")
    [warning] = made.warnings
    assert "1 charges look like those that the provider split into allocated parts" in warning


def test_doubled_charges_are_found_whatever_bucket_their_parts_are_in(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlcost_pipeline.cost.staging.LINES_OF_A_BUCKET", 8)
    none = dict.fromkeys(("AllocatedMethodId", "AllocatedResourceId", "AllocatedTags"))
    rows: list[dict[str, Any]] = []
    for number in range(40):  # every fourth charge has no parts, and every fifth no resource
        node = {"resource": None if number % 5 == 0 else f"node-{number % 3}", "start": NOON + number * HOUR}
        rows.append(line("1", **node) | none)
        split = {"AllocatedMethodId": "even", "AllocatedTags": None}
        rows += [line("0.25", **node) | split | {"AllocatedResourceId": f"pod-{number}-{part}"}
                 for part in range(4 if number % 4 else 0)]  # fmt: skip
    [made] = import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    kinds = Counter(row["allocation"] for row in stored_lines(warehouse))
    assert kinds == {"replaced": 30, "origin": 10, "allocated": 120}
    assert (made.rows, made.billed_total, made.slots) == (160, Decimal(40), 130)
    assert sum(billed for billed, _ in _slots_of(warehouse, made.delivery_id).values()) > 0
    assert "30 charges of 30 USD are there as a whole and as parts" in made.warnings[0]


def test_what_a_person_should_look_at_is_kept_with_the_delivery(warehouse: Warehouse, tmp_path: Path) -> None:
    """opencost#4022 (kinds that nobody knows) and finops-toolkit#1092 (a purchase with an effective cost)."""
    bought = line("500", category="Purchase", CommitmentDiscountId="plan-1")
    rows = [bought, line("1", category="Zorble") | {"CommitmentDiscountId": None}]
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    stored = delivery(warehouse, ACCOUNT, PERIOD)
    assert stored is not None and len(stored.warnings) == 2
    assert "charges of unknown kind Zorble are kept and stay unattributed" in stored.warnings[0]
    assert "effective cost of 500" in stored.warnings[1] and "counted twice" in stored.warnings[1]
    assert stored.billed_total == Decimal(501)  # flagged, and nothing taken off


def test_koku_3098_use_of_the_next_month_stays_in_the_bill_that_it_is_on(
    warehouse: Warehouse, tmp_path: Path, settings: Settings
) -> None:
    april = datetime(2026, 4, 1, tzinfo=UTC)
    past_run(warehouse, "r-april", start=april, hours=1)
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("7", start=april)]))
    assert bills_in_force(warehouse) == [(ACCOUNT, PERIOD)]
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    assert [(row["run_id"], row["billed"]) for row in ledger_rows(warehouse)] == [("r-april", Decimal(7))]


@pytest.mark.parametrize(("cloud", "parts", "total"), [("aws", 27, "1242.11561911486050"), ("gcp", 12, None)])
def test_published_bills_with_allocated_parts_are_slots_and_residue(
    warehouse: Warehouse, billing_data: Path, cloud: str, parts: int, total: str | None
) -> None:
    made = import_bill(warehouse, billing_data / f"focus_synthetic_{cloud}_1_3_cost_and_usage_rows100_seed42.csv")
    allocated = [row for row in stored_lines(warehouse) if row["allocation"] == "allocated"]
    assert len(allocated) == parts
    assert all("workload" in row["resource_id"] and "workload" in row["tags_text"] for row in allocated)
    for one in made:
        versions = {"billing_slots": [(scope_of(one.account, one.period), one.delivery_id)]}
        [sums] = warehouse.query(
            "SELECT sum(billed) AS b, sum(effective) AS e FROM billing_slots", tables=versions, versions=versions
        ).to_pylist()
        assert (sums["b"] + one.billed_residue, sums["e"] + one.effective_residue) == (
            one.billed_total, one.effective_total,
        )  # fmt: skip
    if total is not None:
        assert sum(one.billed_total for one in made) == Decimal(total)


def test_a_text_too_long_for_an_account_is_refused_and_a_long_account_of_azure_is_not(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    long = "/providers/Microsoft.Billing/billingAccounts/" + "0" * 36 + ":" + "1" * 36 + "_2019-05-31"
    assert import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("1", BillingAccountId=long)]))[0].took_over
    with pytest.raises(BillError, match="longer than an account id"):
        import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("1", BillingAccountId="x" * 300)]))
