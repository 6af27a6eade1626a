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
    assert found.together == [2, 3]  # the two charges of that hour
    assert {part.run_id: part.outcome for part in found.parts} == {"r1": "succeeded", "r2": "succeeded", None: None}
    told = {part.run_id or part.method: (part.effective, part.ground) for part in found.parts}
    assert told == {
        "r1": (Decimal("2.05"), "held 1000 of 1000 milli_gpu for 1,800 s of 3,600 s"),
        "r2": (Decimal("0.5125"), "held 500 of 1000 milli_gpu for 900 s of 3,600 s"),
        "idle": (Decimal("1.5375"), "nobody held this part of the resource"),
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
    for wrong in ("nothing", bill[:4]):
        with pytest.raises(BillError, match=f"in force: {bill}"):
            explain_line(shop, wrong, 2)
    with pytest.raises(BillError, match="near it: r1, r2"):
        charges_of_run(shop, "r")
    with pytest.raises(BillError, match="none begins like it; the runs of a charge: mlcost bill explain LINE"):
        charges_of_run(shop, "nothing")


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


def _mlcost(shop: Warehouse, tmp_path: Path, *words: str, mask: bool = False, group: str = "bill") -> Result:
    config = tmp_path / "mlcost.yaml"
    config.write_text(
        f"version: 1\nname: t\nwarehouse: {shop.root}\naccounted: {{recs: {{}}, fraud: {{}}}}\n"
        f"mask_accounts: {str(mask).lower()}\n"
    )
    return CliRunner().invoke(main, ["--config", str(config), *([group] if group else []), *words])


def test_the_command_line_follows_a_line_and_a_run_and_masks_accounts(shop: Warehouse, tmp_path: Path) -> None:
    explained = _mlcost(shop, tmp_path, "explain", "2").output
    for said in (
        "its slot has 2 lines that are equal in all that attribution looks at: 2, 3.",
        "2.05 USD (50 %) to run r1",
        "fraud, training, succeeded; occupancy: held 1000 of 1000 milli_gpu for 1,800 s of 3,600 s",
        "1.5375 USD (37.5 %) to nobody",
        "4.1 USD in all, which is the slot",
    ):
        assert said in " ".join(explained.split())
    assert ACCOUNT in explained
    masked = _mlcost(shop, tmp_path, "explain", "2", mask=True).output
    shown = next(word for word in masked.split() if "#" in word).rstrip(",")
    assert ACCOUNT not in masked and _mlcost(
        shop, tmp_path, "explain", "2", "--account", shown, mask=True
    ).output == masked  # fmt: skip
    for words in (("explain", "2", "--account", "x"), ("explain", "nothing:2"), ("diff", ACCOUNT, PERIOD)):
        refused = _mlcost(shop, tmp_path, *words, mask=True)
        assert refused.exit_code == 1 and shown in refused.output and ACCOUNT not in refused.output
    wrong = _mlcost(shop, tmp_path, "diff", ACCOUNT, PERIOD)
    assert wrong.exit_code == 1 and "1 ledgers were ever in force, two are needed" in wrong.output
    assert "expected DELIVERY:NUMBER" in _mlcost(shop, tmp_path, "explain", "two").output
    assert f"in force: {ACCOUNT} {PERIOD}" in _mlcost(shop, tmp_path, "diff", "other", PERIOD).output
    assert "'march' is no month" in _mlcost(shop, tmp_path, "restatements", "march").output


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_run_names_the_lines_that_lead_back_to_it(shop: Warehouse, tmp_path: Path) -> None:
    out, back = tmp_path / "run.csv", tmp_path / "line.csv"
    for run_id in ("r1", "r2"):
        assert _mlcost(shop, tmp_path, "run", run_id, "--csv", str(out)).exit_code == 0
        charges = _rows(out)
        for charge in charges:
            assert _mlcost(shop, tmp_path, "explain", charge["line"], "--csv", str(back)).exit_code == 0
            parts = _rows(back)
            here = [row["its part"] for row in charges if row["line"] == charge["line"]]
            assert [part["effective"] for part in parts if part["to"] == run_id] == here
            assert sum(Decimal(part["effective"]) for part in parts) == Decimal(charge["of the slot"])
        assert {row["method"] for row in charges} >= {"occupancy", "derived (tax on occupancy)"}
    told = " ".join(_mlcost(shop, tmp_path, "run", "r2").output.split())
    assert "run r2 of recs (serving, succeeded) was charged 2.6" in told and "4 parts of 4 lines of bills" in told


def test_the_status_of_a_bill_that_does_not_add_up_says_so_first(shop: Warehouse, tmp_path: Path) -> None:
    assert _mlcost(shop, tmp_path, "status").output.startswith("88.3 % of 13.60 USD is attributed to models")
    [row] = shop.rows("bill_deliveries")
    shop.append("bill_deliveries", [{**row, "effective_total": row["effective_total"] + Decimal("1e-18")}])
    told = _mlcost(shop, tmp_path, "status", mask=True)
    assert told.exit_code == 1 and told.output.startswith("How much is attributed is not told while a bill does not")
    assert "effective off by 0.000000000000000001" in " ".join(told.output.split()) and ACCOUNT not in told.output


def test_a_slot_of_many_parts_is_told_by_the_largest_and_one_sum(
    warehouse: Warehouse, settings: Settings, tmp_path: Path
) -> None:
    for number in range(30):
        past_run(warehouse, f"r{number}", resource="pool", start=NOON + number * HOUR / 60, hours=1 / 60)
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [line("60", resource="pool")]))
    build_ledger(warehouse, settings, ACCOUNT, PERIOD)
    few, every = (_mlcost(warehouse, tmp_path, "explain", "2", *more).output for more in ((), ("--all",)))
    assert "11 USD in 11 smaller parts" in " ".join(few.replace("\u202f", "").split())
    assert few.count(" to run ") == 19 and every.count(" to run ") == 30
    assert all("60 USD in all, which is the slot" in told for told in (few, every))


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
    gone = _mlcost(shop, tmp_path, "explain", f"{first.delivery_id}:4").output.replace("\n", " ")
    assert f"its ledger was in force until {second.since:%Y-%m-%d}" in gone
    assert f"--as-of {second.since - timedelta(days=1):%Y-%m-%d}" in gone
    share = "of 10.00 USD is attributed to models"
    for words, group in (
        (("explain", "2"), "bill"), (("diff", ACCOUNT, PERIOD), "bill"), (("restatements", PERIOD), "bill"),
        (("restatements",), "bill"), (("assets",), ""), (("forecast", "recs"), ""), (("prices",), ""),
        (("run", "r1"), "bill"),
    ):  # fmt: skip
        told = _mlcost(shop, tmp_path, *words, group=group)
        begins = told.output.splitlines()[0]
        assert told.exit_code == 0 and share in begins and begins.endswith("(PROVISIONAL: a bill is open)."), words
        assert group == "" or "[PROVISIONAL]" in told.output, words
    assert "Nothing was restated" in _mlcost(shop, tmp_path, "restatements", "--as-of", day).output
    assert "88.3 % of 13.60 USD" in _mlcost(shop, tmp_path, "status", "--as-of", day).output.replace("\n", " ")
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
    warehouse.append("restatements", [
        {"old_ledger_version": "a", "new_ledger_version": "b", "entry": f"{who}", "account": who, "period": PERIOD,
         "cause": "runs", "run_id": "r1", "model": "fraud", "stage": "training", "billed_delta": Decimal(delta),
         "effective_delta": Decimal(delta)} for who, delta in ((ACCOUNT, "5"), ("north", "7"))
    ])  # fmt: skip
    restated = _mlcost(warehouse, tmp_path, "restatements").output.replace("\n", " ")
    assert "2 entries were restated, by cause: runs +7.0000 EUR, runs +5.0000 USD." in restated
    past_run(warehouse, "r1", hours=0.5, asset="train")
    listed = _mlcost(warehouse, tmp_path, "assets", group="").output
    # 61 728 394 506.06 USD and 3.00 EUR, each of its own currency
    assert [row.split("USD")[0].split("EUR")[0].split()[-1] for row in listed.splitlines() if row[:5] == "train"] == [
        "506.06", "3.00",
    ]  # fmt: skip
    assert "123456789012.123456789012345678 USD" in _mlcost(
        warehouse, tmp_path, "explain", "2", "--account", ACCOUNT
    ).output.replace("\u202f", "")  # fmt: skip


def test_exported_cells_never_start_a_formula(shop: Warehouse, tmp_path: Path) -> None:
    past_run(shop, "r3", resource="=HYPERLINK(1)")
    out = tmp_path / "run.csv"
    assert _mlcost(shop, tmp_path, "run", "r1", "--csv", str(out)).exit_code == 0
    assert sum(Decimal(row["its part"]) for row in _rows(out)) == charges_of_run(shop, "r1").total("effective", "USD")
    hostile = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "＝1"]
    assert [neutral(text) for text in hostile] == [f"'{text}" for text in hostile]
    assert neutral(Decimal("-3.5")) == "-3.5"
