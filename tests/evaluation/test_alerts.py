"""Scorers on held-out days: known labels only, days of UTC, nothing compared is an error."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcost_pipeline.errors import ModelError, NothingCompared
from mlcost_pipeline.evaluation.alerts import AmountRule, catch, labelled_rows
from mlcost_pipeline.evaluation.evaluate import evaluate_recommender, evaluate_scorer
from mlcost_pipeline.evaluation.rankings import PopularList, question
from mlcost_pipeline.warehouse import Warehouse
from tests.evaluation.toys import MIDNIGHT, ToyScorer, payments, purchases, settings_of


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def test_caught_and_frauds_by_day(warehouse: Warehouse) -> None:
    features = payments(warehouse, settings_of(warehouse.root), {"food": 16}, days=8, a_day=5)
    days, caught, frauds = evaluate_scorer(ToyScorer([f"food-{n:03d}" for n in range(8)]), features, 1)
    assert len(days) == 8 and frauds.tolist() == [2] * 8 and caught.tolist() == [1] * 8


def test_rows_without_a_known_label_are_left_out_and_counted(warehouse: Warehouse) -> None:
    features = payments(warehouse, settings_of(warehouse.root), {"food": 8}, a_day=3)
    table = pq.read_table(features.folder / "rows.parquet")
    unknown = [None if name.startswith("ok-00") else fraud for name, fraud in
               zip(table["transaction_id"].to_pylist(), table["is_fraud"].to_pylist(), strict=True)]  # fmt: skip
    place = table.schema.get_field_index("is_fraud")
    pq.write_table(table.set_column(place, "is_fraud", pa.array(unknown, pa.bool_())), features.folder / "rows.parquet")
    asked = labelled_rows(features.folder, features.cuts.training_cut, features.cuts.holdout_end)
    assert (asked.unlabelled, len(asked.fraud), int(asked.fraud.sum())) == (24, 8, 8)


def test_days_are_half_open(warehouse: Warehouse) -> None:
    features = payments(warehouse, settings_of(warehouse.root), {"food": 8}, a_day=1)
    day = timedelta(days=1)
    one = labelled_rows(features.folder, MIDNIGHT - 3 * day, MIDNIGHT - 2 * day)
    assert one.days == 1 and len(one.fraud) == 2  # one honest, at midnight sharp, and one fraud
    with pytest.raises(NothingCompared, match="hold no fraud"):
        labelled_rows(features.folder, MIDNIGHT, MIDNIGHT + day)


def test_a_scorer_that_answers_for_other_rows_is_refused(warehouse: Warehouse) -> None:
    features = payments(warehouse, settings_of(warehouse.root), {"food": 8})
    asked = labelled_rows(features.folder, features.cuts.training_cut, features.cuts.holdout_end)

    class Short(AmountRule):
        def score(self, rows: pa.Table) -> object:  # type: ignore[override]
            return super().score(rows)[1:]

    with pytest.raises(ModelError, match="shape"):
        catch(Short(), asked, 5)  # type: ignore[arg-type]


def test_the_users_asked_and_their_hits(warehouse: Warehouse) -> None:
    features = purchases(warehouse, settings_of(warehouse.root), 10)
    asked = question(features.folder, features.cuts.training_cut, features.cuts.holdout_end)
    users, hit, ndcg = evaluate_recommender(PopularList.of(asked), features, 30)
    assert len(users) == 10 and hit.all() and (ndcg > 0).all()
