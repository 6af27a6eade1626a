"""Day one with a bill: which share is attributable by what, and a first mlcost.yaml that loads and attributes."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcost_pipeline.cli import main
from mlcost_pipeline.cost.first_look.looking import RUNGS, first_look
from mlcost_pipeline.cost.ledger import build_ledgers
from mlcost_pipeline.errors import BillError, SettingsError
from mlcost_pipeline.settings import load_settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import line, write_bill

JOB = "arn:aws:sagemaker:eu-west-1:100000000001:training-job/fraud-7"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """100 USD: 40 tagged with an app, 10 of them of a training job; 30 on a machine; 20 tax; 10 without anything."""
    return write_bill(
        tmp_path / "exports" / "2025-05.csv",
        [
            line("30", tags={"app": "Fraud Score", "env": "prod"}, resource="i-1"),
            line("10", tags={"app": "Fraud Score", "env": "prod"}, resource=JOB),
            line("30", resource="i-2"),
            line("20", category="Tax", resource=None),
            line("10", resource=None),
        ],
    )


def test_shares_add_up_to_the_bill_and_each_charge_is_counted_once(export: Path) -> None:
    look = first_look(export)
    assert look.format == "focus"
    assert look.effective == sum(look.by_rung[name] for name in RUNGS) == Decimal(100)
    assert {name: amount for name, amount in look.by_rung.items() if amount} == {
        "other_tag": 40, "resource": 30, "derived": 20, "nothing": 10,
    }  # fmt: skip
    assert look.model_key is not None and look.model_key.key == "app"


def test_the_first_settings_load_and_attribute_what_was_promised(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "team" / "mlcost.yaml"
    done = CliRunner().invoke(main, ["init", str(export), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "40.0 % of 100.00 USD" in done.output
    settings = load_settings(out)
    assert settings.owners == ["fraud_score"]
    warehouse = Warehouse(tmp_path / "warehouse")
    from mlcost_pipeline.cost.deliveries import import_new

    import_new(warehouse, settings)
    build_ledgers(warehouse, settings)
    found = warehouse.query(
        "SELECT stage, sum(effective) AS spent FROM cost_ledger WHERE model = 'fraud_score' AND method = 'rule' "
        "GROUP BY stage ORDER BY stage",
        tables=["cost_ledger"],
    ).to_pylist()
    assert found == [{"stage": "serving", "spent": Decimal(30)}, {"stage": "training", "spent": Decimal(10)}]


def test_a_file_that_is_there_is_not_written_over(export: Path, tmp_path: Path) -> None:
    out = tmp_path / "mlcost.yaml"
    out.write_text("mine")
    done = CliRunner().invoke(main, ["init", str(export), "--out", str(out)])
    assert done.exit_code == 1 and "--force" in done.output
    assert out.read_text() == "mine"


def test_what_is_no_bill_is_refused_with_the_columns_that_were_found(tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    file.write_text("day,amount\n2025-05-01,3\n")
    with pytest.raises(BillError, match=r"sales\.csv: its columns \(amount, day"):
        first_look(file)


def test_names_that_no_settings_could_hold_are_made_fit(tmp_path: Path) -> None:
    odd = ['Größe: 7"', "7 days", "platform", "PLATFORM", "a" * 80, "-", "=cmd|' /C calc'!A0"]
    export = write_bill(tmp_path / "bill.csv", [line("1", tags={"team": name}, resource="i-1") for name in odd])
    out = tmp_path / "mlcost.yaml"
    done = CliRunner().invoke(main, ["init", str(export), "--out", str(out)])
    assert done.exit_code == 0, done.output
    settings = load_settings(out)
    assert {json.dumps(rule.when.tags["team"]) for rule in settings.rules} == {json.dumps(name) for name in odd}


def test_a_bill_that_names_nobody_still_gives_settings_and_says_what_to_switch_on(tmp_path: Path) -> None:
    export = write_bill(tmp_path / "bill.csv", [line("5", resource=None)], without=["Tags", "ResourceId"])
    out = tmp_path / "mlcost.yaml"
    done = CliRunner().invoke(main, ["init", str(export), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "column Tags" in done.output and "column ResourceId" in done.output
    assert load_settings(out).owners == ["my_model"]


def test_settings_without_any_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mlcost.yaml"
    file.write_text("version: 1\nname: x\n")
    with pytest.raises(SettingsError, match="accounted"):
        load_settings(file)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    bill = write_bill(tmp_path / "bill.csv", [line("1")])
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(main, ["init", str(bill), "--out", str(tmp_path / "file" / "mlcost.yaml")])
    assert told.exit_code == 1 and "File exists; choose another place" in told.output.replace("\n", " ")
    assert not isinstance(told.exception, OSError)
