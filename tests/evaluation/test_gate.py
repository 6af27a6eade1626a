"""The gate: it lets pass what is not shown harmful, blocks what is, names what it cannot tell, and never deadlocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.evaluation.gate import GateResult, judge
from mlcost_pipeline.evaluation.intervals import loss_p_value
from mlcost_pipeline.evaluation.versions import record_gate
from mlcost_pipeline.warehouse import Warehouse
from tests.evaluation.toys import payments, purchases, settings_of, shop_model, trained


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def in_force(warehouse: Warehouse, model: str, version: str) -> None:
    warehouse.state.update(f"models/{model}", lambda now: {**(now or {}), "incumbent": version})


def shop_gate(warehouse: Warehouse, before: list[int], after: list[int], users: int = 100) -> GateResult:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, users)
    in_force(warehouse, "shop", trained(warehouse, "shop", "old", shop_model(users, before)))
    return judge(warehouse, settings, "shop", trained(warehouse, "shop", "new", shop_model(users, after)), features)


def fraud_gate(
    warehouse: Warehouse, frauds: dict[str, int], missed_before: list[str], missed_after: list[str]
) -> GateResult:
    settings = settings_of(warehouse.root)
    features = payments(warehouse, settings, frauds, a_day=60)
    names = [f"{category}-{n:03d}" for category, count in frauds.items() for n in range(count)]

    def model(job: str, missed: list[str]) -> str:
        return trained(warehouse, "fraud", job, {"suspects": [name for name in names if name not in missed]})

    in_force(warehouse, "fraud", model("old", missed_before))
    config = settings.model("fraud").model_copy(update={"alerts_per_day": 40})
    settings = settings.model_copy(update={"models": {**settings.models, "fraud": config}})
    return judge(warehouse, settings, "fraud", model("new", missed_after), features)


def test_a_better_candidate_passes_with_its_numbers(warehouse: Warehouse) -> None:
    gate = shop_gate(warehouse, before=list(range(40)), after=list(range(55)))
    assert gate.passed and gate.reason == "harmless"
    assert (gate.candidate_level, gate.reference_level) == (0.55, 0.40)
    assert gate.difference == pytest.approx(0.15) and gate.margin == pytest.approx(0.008)
    assert gate.metrics["candidate_hit_rate_at_1"] == 0.55 and gate.metrics["baseline_hit_rate_at_1"] <= 0.01
    assert "Promote" in gate.sentence and "55.00%" in gate.sentence and "+15.00 points" in gate.sentence


def test_a_harmful_candidate_is_blocked(warehouse: Warehouse) -> None:
    gate = shop_gate(warehouse, before=list(range(60)), after=list(range(40)))
    assert not gate.passed and gate.reason == "harmful" and gate.high is not None and gate.high < -0.012
    assert gate.sentence.startswith("Keep")


def test_an_equal_candidate_on_few_users_is_not_deadlocked(warehouse: Warehouse) -> None:
    # as many hits on other users: nothing is shown either way, and the fresh model may go on
    gate = shop_gate(warehouse, before=[0, 1, 2, 3, 4, 5], after=[6, 7, 8, 9, 10, 11], users=20)
    assert gate.passed and gate.reason == "not_shown_harmful"
    assert gate.low is not None and gate.margin is not None and gate.low < -gate.margin
    assert "nor shown not to" in gate.sentence


def test_a_slice_shown_harmed_blocks_though_the_whole_gains(warehouse: Warehouse) -> None:
    lost = [f"travel-{n:03d}" for n in range(16)]
    won = [f"food-{n:03d}" for n in range(30)]
    gate = fraud_gate(warehouse, {"food": 120, "travel": 24}, missed_before=won, missed_after=lost)
    assert gate.difference is not None and gate.difference > 0
    assert not gate.passed and gate.reason == "slice_harmed" and gate.harmed == ["merchant_category=travel"]
    travel = next(s for s in gate.slices if s["value"] == "travel")
    assert (travel["lost"], travel["won"], travel["units"], travel["important"]) == (16, 0, 24, True)
    assert "merchant_category=travel" in gate.sentence


def test_a_slice_too_small_is_named_and_does_not_block(warehouse: Warehouse) -> None:
    gate = fraud_gate(warehouse, {"food": 120, "travel": 4}, missed_before=[], missed_after=["travel-000"])
    assert loss_p_value(1, 0) == 0.5  # one lost case proves nothing
    assert gate.passed and "merchant_category=travel" in gate.not_shown and gate.harmed == []
    assert "too small to tell: merchant_category=travel" in gate.sentence


def test_an_important_slice_that_is_empty_is_named(warehouse: Warehouse) -> None:
    gate = fraud_gate(warehouse, {"food": 80}, missed_before=[], missed_after=[])
    assert gate.passed and gate.not_shown == ["merchant_category=travel"]
    food = next(s for s in gate.slices if s["value"] == "food")
    assert food["status"] == "held" and food["reference_count"] == 80


def test_the_first_model_is_held_against_the_popular_list(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 50)
    good = trained(warehouse, "shop", "good", shop_model(50, list(range(25))))
    gate = judge(warehouse, settings, "shop", good, features)
    assert gate.passed and gate.incumbent is None and gate.compared_with == "the popular list"
    assert "the popular list" in gate.sentence and gate.sentence.endswith("shown to be no worse.")


def test_a_first_scorer_worse_than_the_largest_amounts_is_blocked(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = payments(warehouse, settings, {"food": 0})
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(features.folder / "rows.parquet")
    large = [i % 20 == 0 for i in range(table.num_rows)]  # the frauds are the large ones, and the model sees none
    amounts = pa.array([1000.0 if is_large else 1.0 for is_large in large])
    table = table.set_column(table.schema.get_field_index("is_fraud"), "is_fraud", pa.array(large))
    table = table.set_column(table.schema.get_field_index("amount"), "amount", amounts)
    pq.write_table(table, features.folder / "rows.parquet")
    blind = trained(warehouse, "fraud", "blind", {"suspects": [f"ok-{n:04d}" for n in range(320) if n % 20]})
    gate = judge(warehouse, settings, "fraud", blind, features)
    assert not gate.passed and gate.reason == "worse_than_baseline" and gate.compared_with == "the largest amounts"


def test_a_gate_that_compared_nothing_fails_and_says_so(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = payments(warehouse, settings, {"food": 0})
    version = trained(warehouse, "fraud", "j", {"suspects": []})
    gate = judge(warehouse, settings, "fraud", version, features)
    assert not gate.passed and gate.reason == "nothing_compared" and "no fraud" in gate.sentence


def test_days_that_a_model_was_trained_on_are_left_out(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 30)
    late = replace(features, cuts=replace(features.cuts, training_cut=features.cuts.holdout_end))
    version = trained(warehouse, "shop", "j", shop_model(30, [1, 2]))
    gate = judge(warehouse, settings, "shop", version, late)
    assert gate.reason == "nothing_compared" and "trained up to" in gate.sentence


def test_withdrawn_targets_are_not_counted(warehouse: Warehouse) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 40)
    items = pq.read_table(features.folder / "items.parquet").to_pylist()
    gone = {f"t{n:03d}" for n in range(30)}
    pq.write_table(
        pa.Table.from_pylist([{**row, "withdrawn": row["item_id"] in gone} for row in items]),
        features.folder / "items.parquet",
    )
    version = trained(warehouse, "shop", "j", shop_model(40, list(range(35))))
    gate = judge(warehouse, settings, "shop", version, features)
    assert gate.metrics["users"] == 10 and gate.metrics["candidate_hit_rate_at_1"] == 0.5


def test_a_recorded_verdict_is_given_again_also_after_promotion(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 30)
    version = trained(warehouse, "shop", "j", shop_model(30, list(range(9))))
    first = judge(warehouse, settings, "shop", version, features)
    assert judge(warehouse, settings, "shop", version, features) == first  # bit for bit, not yet recorded
    record_gate(warehouse, model="shop", version=version, gate=first)
    in_force(warehouse, "shop", version)
    assert judge(warehouse, settings, "shop", version, features) == first
    assert judge(warehouse, settings, "shop", version, replace(features, data_version="d2")) == first


def test_what_is_in_force_without_a_verdict_is_not_judged_against_itself(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 30)
    version = trained(warehouse, "shop", "j", shop_model(30, [1]))
    in_force(warehouse, "shop", version)
    with pytest.raises(ModelError, match="in force already"):
        judge(warehouse, settings, "shop", version, features)


def test_other_data_or_another_incumbent_is_another_question(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root)
    features = purchases(warehouse, settings, 30)
    version = trained(warehouse, "shop", "j", shop_model(30, list(range(9))))
    record_gate(warehouse, model="shop", version=version, gate=judge(warehouse, settings, "shop", version, features))
    in_force(warehouse, "shop", trained(warehouse, "shop", "rival", shop_model(30, list(range(25)))))
    again = judge(warehouse, settings, "shop", version, features)
    assert again.compared_with != "the popular list" and again.reason == "harmful"


def test_activity_and_segment_slices_of_users(warehouse: Warehouse) -> None:
    settings = settings_of(warehouse.root, slices=["segment", "activity"])
    features = purchases(warehouse, settings, 20)
    known = [{"user_id": f"u{n:03d}", "valid_from": features.cuts.training_cut, "segment": "gold"} for n in range(12)]
    warehouse.append("users", known)
    version = trained(warehouse, "shop", "j", shop_model(20, list(range(9))))
    gate = judge(warehouse, settings, "shop", version, features)
    units = {f"{s['dimension']}={s['value']}": s["units"] for s in gate.slices}
    assert units == {"segment=gold": 12, "segment=unknown": 8, "activity=light": 20}
