"""Any cent followed both ways, as of any day, and shown only to whom it may be shown."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mlcost_pipeline.cli import main
from mlcost_pipeline.cost.asof import history, in_force_at, standing, versions_of
from mlcost_pipeline.cost.csv_cells import neutral
from mlcost_pipeline.cost.deliveries import import_bill, in_force
from mlcost_pipeline.cost.ledger import build_ledger, build_ledgers, reconcile
from mlcost_pipeline.cost.loaded import Policy, fully_loaded
from mlcost_pipeline.cost.registry import register_resource
from mlcost_pipeline.cost.tracing import charges_of_run, explain_line
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import ACCOUNT, HOUR, NOON, PERIOD, line, past_run, stored_lines, write_bill


@pytest.fixture
def shop(warehouse: Warehouse, settings: Settings, tmp_path: Path) -> Warehouse:
    """A GPU that two runs share with idle time, a tagged bucket, a tax: lines 2 to 6 of one bill."""
    register_resource(warehouse, "gpu-1", "gpu", 1000, "milli_gpu", NOON - timedelta(days=30))
    past_run(warehouse, "r1", hours=0.5)
    past_run(warehouse, "r2", model="recs", stage="serving", start=NOON + HOUR / 2, hours=0.25, share=500)
    rows = [
        line("4"), line("0.1"), line("7", resource="=HYPERLINK(1)", tags={"mlcost_model": "recs"}),
        line("0.5", category="Tax", resource=None), line("2", tags={"mlcost_run": "r2"}, start=NOON + HOUR),
    ]  # fmt: skip
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", rows))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    return warehouse


def test_a_line_is_followed_to_its_runs_with_the_ground_of_each_part(shop: Warehouse) -> None:
    bill = in_force(shop, ACCOUNT, PERIOD)
    assert bill is not None
    found = explain_line(shop, bill, 2)
    assert found.slot["lines"] == 2  # the two charges of that hour
    told = {part.run_id or part.method: (part.effective, part.ground) for part in found.parts}
    assert told == {
        "r1": (Decimal("2.05"), "held 1,800 s × 1000 milli of 3,600 s"),
        "r2": (Decimal("0.5125"), "held 900 s × 500 milli of 3,600 s"),
        "idle": (Decimal("1.5375"), "nobody held this part of the pool"),
    }
    assert explain_line(shop, bill, 6).parts[0].ground == "tag names run r2"
    assert {part.ground for part in explain_line(shop, bill, 5).parts} >= {
        "tax in proportion to what was charged as occupancy"
    }


def test_every_cent_of_every_line_comes_back_from_the_runs(shop: Warehouse) -> None:
    bill = in_force(shop, ACCOUNT, PERIOD)
    assert bill is not None
    by_run: dict[tuple[str, str, int], Decimal] = {}
    for number in (row["line"] for row in stored_lines(shop)):
        found = explain_line(shop, bill, number)
        assert sum(part.effective for part in found.parts) == found.slot["effective"]
        for part in found.parts:
            if part.run_id is not None:
                by_run[part.run_id, found.slot["slot_id"], part.part] = part.effective
    for run_id in ("r1", "r2"):
        charges = charges_of_run(shop, run_id)
        mine = {(run_id, row["slot_id"], row["part"]): row["effective"] for row in charges.charges}
        assert mine == {key: amount for key, amount in by_run.items() if key[0] == run_id}
        assert charges.total("effective", "USD") == sum(amount for _, amount in charges.by_method.values())


def test_ids_that_are_not_there_are_answered_with_those_that_are(shop: Warehouse) -> None:
    bill = in_force(shop, ACCOUNT, PERIOD)
    assert bill is not None
    with pytest.raises(BillError, match="has no line 99; its lines are 2 to 6"):
        explain_line(shop, bill, 99)
    with pytest.raises(BillError, match=f"in force: {bill}"):
        explain_line(shop, "nothing", 2)
    with pytest.raises(BillError, match="near it: r1, r2"):
        charges_of_run(shop, "r")


def test_reports_can_be_had_as_of_a_day_before_a_restatement(
    shop: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    [first] = standing(shop)
    import_bill(shop, write_bill(tmp_path / "later.csv", [line("9")]))
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    entries = history(shop, ACCOUNT, PERIOD)
    assert [entry.version for entry in entries][:1] == [first.version] and len(entries) == 2
    assert in_force_at(shop, entries[0].since - timedelta(seconds=1)) == []
    then = in_force_at(shop, entries[1].since - timedelta(microseconds=1))
    assert then == [first]
    sums = [
        shop.query("SELECT sum(effective) AS n FROM cost_ledger", tables=["cost_ledger"], versions=versions_of(found))
        for found in (then, standing(shop))
    ]
    assert [found["n"][0].as_py() for found in sums] == [Decimal("13.6"), Decimal(9)]


def test_fully_loaded_views_spread_what_is_nobodys_to_the_last_unit() -> None:
    own = {"fraud": Decimal("1.000000000000000001"), "recs": Decimal(2), "none": Decimal(-1)}
    nobodys = Decimal("10.000000000000000001")
    policies: tuple[Policy, ...] = ("proportional", "even", "none")
    for policy in policies:
        models, rest = fully_loaded(own, nobodys, policy)
        assert sum(each.total for each in models) + rest == sum(own.values()) + nobodys
        assert (rest == 0) == (policy != "none")
    assert {each.model: each.carried for each in fully_loaded(own, nobodys, "proportional")[0]}["none"] == 0


def _mlcost(shop: Warehouse, tmp_path: Path, *words: str, mask: bool = False) -> Result:
    config = tmp_path / "mlcost.yaml"
    config.write_text(
        f"version: 1\nname: t\nwarehouse: {shop.root}\naccounted: {{recs: {{}}, fraud: {{}}}}\n"
        f"mask_accounts: {str(mask).lower()}\n"
    )
    return CliRunner().invoke(main, ["--config", str(config), "bill", *words])


def test_the_command_line_follows_a_line_and_a_run_and_masks_accounts(shop: Warehouse, tmp_path: Path) -> None:
    explained = _mlcost(shop, tmp_path, "explain", "2")
    assert explained.exit_code == 0 and "1,800 s × 1000 milli" in explained.output.replace("\n", " ")
    assert ACCOUNT in explained.output
    assert ACCOUNT not in _mlcost(shop, tmp_path, "explain", "2", mask=True).output
    assert "2.05" in _mlcost(shop, tmp_path, "run", "r1").output
    wrong = _mlcost(shop, tmp_path, "diff", ACCOUNT, PERIOD)
    assert wrong.exit_code == 1 and "1 ledgers were ever in force, two are needed" in wrong.output
    assert "expected DELIVERY:NUMBER" in _mlcost(shop, tmp_path, "explain", "two").output


def test_any_telling_begins_with_the_share_and_can_be_had_as_of_a_day(
    shop: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    asked = _mlcost(shop, tmp_path, "run", "r1").output.replace("\n", " ")
    assert asked.startswith("88.3 % of 13.60 USD is attributed to models, unattributed by reason: ")
    rows = [line("9", InvoiceId=None), line("1", start=NOON + HOUR, InvoiceId=None)]
    import_bill(shop, write_bill(tmp_path / "later.csv", rows))
    build_ledger(shop, settings, ACCOUNT, PERIOD)
    now = _mlcost(shop, tmp_path, "run", "r1").output
    assert "(PROVISIONAL: a bill is open)" in now.replace("\n", " ") and "Run r1 [PROVISIONAL]" in now
    first, second = history(shop, ACCOUNT, PERIOD)
    shop.state.update(f"ledgers/{ACCOUNT}/{PERIOD}/history", lambda now: _a_week_before(now, first.version))
    day = f"{second.since - timedelta(days=3):%Y-%m-%d}"
    then = _mlcost(shop, tmp_path, "run", "r1", "--as-of", day).output.replace("\n", " ")
    assert "88.3 % of 13.60 USD" in then and "2.05" in then and "runs, outcomes and predictions are as they are" in then
    assert "7 USD" in _mlcost(shop, tmp_path, "explain", "4", "--as-of", day).output.replace("\n", " ")
    assert "has no line 4; its lines are 2 to 3" in _mlcost(shop, tmp_path, "explain", "4").output.replace("\n", " ")
    none = _mlcost(shop, tmp_path, "diff", ACCOUNT, PERIOD, "--as-of", day)
    assert none.exit_code == 1 and "1 ledgers were ever in force" in none.output


def _a_week_before(now: dict[str, Any] | None, version: str) -> dict[str, Any]:
    assert now is not None
    return {"entries": [
        entry | ({"at": (datetime.fromisoformat(entry["at"]) - timedelta(days=7)).isoformat()}
                 if entry["version"] == version else {})
        for entry in now["entries"]
    ]}  # fmt: skip


def test_money_of_two_currencies_and_of_more_than_28_digits_stays_what_it_is(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    past_run(warehouse, "r1", hours=0.5)
    huge = ("123456789012.123456789012345678", "0.000000000000000001")
    import_bill(warehouse, write_bill(tmp_path / "usd.csv", [line(huge[0]), line(huge[1], resource="other")]))
    euros = line("3", BillingAccountId="north", BillingCurrency="EUR", tags={"mlcost_run": "r1"})
    import_bill(warehouse, write_bill(tmp_path / "eur.csv", [euros]))
    build_ledgers(warehouse, settings)
    found = charges_of_run(warehouse, "r1")
    assert found.currencies == ["EUR", "USD"] and found.total("effective", "EUR") == 3
    told = _mlcost(warehouse, tmp_path, "status").output + reconcile(warehouse, ACCOUNT, PERIOD).sentence
    assert "123456789012.123456789012345679 USD reconciled to the last unit" in told
    again = _mlcost(warehouse, tmp_path, "import", str(tmp_path / "usd.csv")).output
    assert "billed 123456789012.123456789012345679 and" in again.replace("\n", " ")
    assert " EUR and " in _mlcost(warehouse, tmp_path, "run", "r1").output.replace("\n", " ")


def test_exported_cells_never_start_a_formula(shop: Warehouse, tmp_path: Path) -> None:
    past_run(shop, "r3", resource="=HYPERLINK(1)")
    out = tmp_path / "run.csv"
    assert _mlcost(shop, tmp_path, "run", "r1", "--csv", str(out)).exit_code == 0
    with out.open(newline="") as stream:
        rows: list[dict[str, Any]] = list(csv.DictReader(stream))
    assert sum(Decimal(row["its part"]) for row in rows) == charges_of_run(shop, "r1").total("effective", "USD")
    hostile = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "＝1"]
    assert [neutral(text) for text in hostile] == [f"'{text}" for text in hostile]
    assert neutral(Decimal("-3.5")) == "-3.5"
