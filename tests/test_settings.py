"""mlcost.yaml is validated as a whole; an error names the path, what was found and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcost_pipeline.errors import SettingsError
from mlcost_pipeline.settings import digest, load_settings

GOOD = """
version: 1
name: shop
models:
  fraud:
    task: scoring
    first_day: 2025-03-01
    trainer: {family: mlp}
    baseline: {family: forest}
    outcome: {unit: fraud_caught}
    alerts_per_day: 25
capacity:
  pools:
    - {name: od, market: on_demand, price_per_hour: "3.06"}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mlcost.yaml"
    path.write_text(text)
    return path


def test_defaults_observe_and_never_act(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    assert settings.model("fraud").mode == "observe"
    assert settings.path("data/x.csv") == tmp_path.resolve() / "data" / "x.csv"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("family: mlp", "famly: mlp", r"models\.fraud\.trainer\.famly: Extra inputs are not permitted, found 'mlp'"),
        ("task: scoring", "task: score", r"models\.fraud\.task: Input should be .*, found 'score'"),
        ("alerts_per_day: 25", "alerts_per_day: 0", r"alerts_per_day: .*greater than or equal to 1, found 0"),
        ("    alerts_per_day: 25\n", "", "a scoring model needs alerts_per_day"),
        ("market: on_demand", "market: spot", "one pool must have market: on_demand"),
        ("unit: fraud_caught", "unit: hits", "outcome.unit of a scoring model is fraud_caught, found hits"),
        ("  fraud:", "  Fraud Model:", "a name is lower case letters"),
        ("family: mlp", "family: nope", r"models\.fraud\.trainer\.family: found 'nope'; for a scoring model: forest"),
        ("family: forest", "family: als", r"models\.fraud\.baseline\.family: found 'als'; for a scoring model"),
        ("  fraud:", "  platform:", "this name is kept for work that serves every model"),
        (
            "capacity:\n  pools:\n",
            "capacity:\n  pools:\n    - {name: od, market: spot, price_per_hour: '1'}\n",
            "two pools are named 'od'",
        ),
        (
            "    task: scoring",
            "    slices: [day]\n    important_slices: {zone: [north]}\n    task: scoring",
            r"models\.fraud\.important_slices\.zone: is not in slices",
        ),
        (
            "name: shop",
            "name: shop\nsources: {transactions: {path: x, columns: {amount: a}}}",
            r"models\.fraud: a scoring model needs sources\.labels, which is not there",
        ),
        (
            "name: shop",
            "name: shop\nsources: {payments: {path: x, columns: {}}}",
            "sources.payments: no such table; allowed: acts",
        ),
        (
            "name: shop",
            "name: shop\nsources: {labels: {path: x, columns: {fraud: f}}}",
            "sources.labels.0.columns.fraud: no such column; allowed: transaction_id, known_at, is_fraud",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(SettingsError, match=says):
        load_settings(write(tmp_path, GOOD.replace(old, new)))


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        text = GOOD.replace("family: mlp", "famly: mlp").replace("version: 1", "version: 2")
        load_settings(write(tmp_path, text.replace("name: shop", "name: shop\nsources: {payments: {path: x}}")))
    for fault in ("version", "famly", "sources.payments"):
        assert fault in str(caught.value)


def test_paths_take_the_environment_with_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    assert settings.path("${MLCOST_TEST_DATA:-data}/a") == tmp_path.resolve() / "data" / "a"
    monkeypatch.setenv("MLCOST_TEST_DATA", "/elsewhere")
    assert settings.path("${MLCOST_TEST_DATA:-data}/a") == Path("/elsewhere/a")
    monkeypatch.delenv("MLCOST_TEST_DATA")
    with pytest.raises(SettingsError, match="MLCOST_TEST_DATA, which is not set"):
        settings.path("${MLCOST_TEST_DATA}/a")


def test_a_missing_model_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no model 'frau' in mlcost\.yaml; there are: fraud"):
        load_settings(write(tmp_path, GOOD)).model("frau")


def test_a_digest_is_of_content_not_of_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest("1") != digest(1)


def test_where_there_is_no_file_the_way_to_a_first_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none.yaml: there is no such file; .* mlcost init BILL"):
        load_settings(tmp_path / "none.yaml")
