"""Every family: trains, resumes bit for bit, and comes back from its artefact as it was saved."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import Family, Recommender, Scorer
from mlcost_pipeline.models.features import FeatureSet
from mlcost_pipeline.models.registry import FAMILIES, family

SMALL: dict[str, dict[str, Any]] = {
    "als": {"factors": 8, "iterations": 6},
    "sasrec": {"factors": 8, "max_length": 6, "epochs": 2, "batch_size": 16},
    "mlp": {"width": 8, "epochs": 2, "batch_size": 64},
    "forest": {"trees": 10},
}
STEPPED = ["als", "sasrec", "mlp"]
Find = Callable[[str], FeatureSet]


def batches(model: Family) -> list[np.ndarray]:
    """All batches of a training, in a fixed order."""
    rng = np.random.default_rng(1)
    out = []
    for _ in range(model.epochs):
        order = rng.permutation(model.samples)
        out += [order[i : i + model.batch_size] for i in range(0, model.samples, model.batch_size)]
    return out


def started(name: str, features: FeatureSet, **params: Any) -> Family:
    """A family that has read its features."""
    model = family(name)({**SMALL[name], **params}, 3)
    model.start(features.folder, features.cuts.training_cut)
    return model


def trained(name: str, features: FeatureSet, **params: Any) -> Family:
    """A family after all its steps."""
    model = started(name, features, **params)
    for number, batch in enumerate(batches(model)):
        model.step(batch, number)
    return model


def artefact(model: Family, folder: Path) -> dict[str, bytes]:
    """Saved files by name."""
    folder.mkdir()
    model.save(folder)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_same_seed_gives_the_same_artefact_to_the_byte(name: str, features_of: Find, tmp_path: Path) -> None:
    features = features_of(name)
    first = artefact(trained(name, features), tmp_path / "a")
    second = artefact(trained(name, features), tmp_path / "b")
    assert first == second
    assert len(first) >= 2


@pytest.mark.parametrize("name", STEPPED)
@pytest.mark.parametrize("cut", [1, 3])
def test_resuming_from_a_stored_state_ends_in_the_same_weights(
    name: str, cut: int, features_of: Find, tmp_path: Path
) -> None:
    features = features_of(name)
    whole = trained(name, features)
    interrupted = started(name, features)
    steps = list(enumerate(batches(interrupted)))
    for number, batch in steps[:cut]:
        interrupted.step(batch, number)
    stored = io.BytesIO()
    torch.save(interrupted.state(), stored)
    torch.rand(7)  # whatever the process draws elsewhere must not matter
    resumed = started(name, features)
    resumed.load_state(torch.load(io.BytesIO(stored.getvalue()), weights_only=True))
    for number, batch in steps[cut:]:
        resumed.step(batch, number)
    assert artefact(resumed, tmp_path / "resumed") == artefact(whole, tmp_path / "whole")


@pytest.mark.parametrize("name", STEPPED)
def test_a_state_is_a_snapshot_that_later_steps_do_not_change(name: str, features_of: Find) -> None:
    model = started(name, features_of(name))
    steps = batches(model)
    model.step(steps[0], 0)
    state = model.state()
    before = io.BytesIO()
    torch.save(state, before)
    model.step(steps[1], 1)
    after = io.BytesIO()
    torch.save(state, after)
    assert before.getvalue() == after.getvalue()


@pytest.mark.parametrize("name", STEPPED)
def test_training_lowers_the_loss(name: str, features_of: Find) -> None:
    model = started(name, features_of(name), **({"iterations": 12} if name == "als" else {"epochs": 8}))
    losses = [model.step(batch, number) for number, batch in enumerate(batches(model))]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.parametrize("name", ["als", "sasrec"])
def test_a_saved_recommender_is_the_trained_one(name: str, features_of: Find, tmp_path: Path) -> None:
    model: Any = trained(name, features_of(name))
    model.save(tmp_path)
    loaded = family(name).load(tmp_path)
    assert isinstance(loaded, Recommender)
    mine = model.recommender()
    histories = [np.array([0, 3, 3, 1]), np.array([], dtype=np.int64), np.array([2])]
    assert loaded.items == mine.items
    assert loaded.item_vectors.dtype == np.float32
    np.testing.assert_array_equal(loaded.item_vectors, mine.item_vectors)
    np.testing.assert_array_equal(loaded.represent(histories), mine.represent(histories))


@pytest.mark.parametrize("name", ["als", "sasrec"])
def test_a_user_is_represented_alike_alone_and_in_any_company(name: str, features_of: Find, tmp_path: Path) -> None:
    trained(name, features_of(name)).save(tmp_path)
    loaded: Any = family(name).load(tmp_path)
    rng = np.random.default_rng(0)
    histories = [rng.integers(len(loaded.items), size=size) for size in rng.integers(0, 20, size=150)]
    together = loaded.represent(histories)
    alone = np.concatenate([loaded.represent([history]) for history in histories])
    np.testing.assert_array_equal(together, alone)
    assert not together[[len(history) == 0 for history in histories]].any()
    assert loaded.represent([]).shape == (0, loaded.item_vectors.shape[1])


@pytest.mark.parametrize("name", ["als", "sasrec"])
def test_padding_is_no_item_and_ids_stay_as_they_are(name: str, features_of: Find) -> None:
    features = features_of(name)
    model: Any = trained(name, features)
    rows = pq.read_table(features.folder / "events.parquet").to_pylist()
    early = {row["item_id"] for row in rows if row["happened_at"] < features.cuts.training_cut}
    assert set(model.items) == early
    assert {"007", "7", "18446744073709551617", "é"} <= early
    assert model.recommender().item_vectors.shape[0] == len(model.items)


@pytest.mark.parametrize("name", ["als", "sasrec"])
def test_a_user_who_owns_everything_has_a_finite_representation(name: str, features_of: Find) -> None:
    model: Any = trained(name, features_of(name))
    everything = np.arange(len(model.items), dtype=np.int64)
    assert np.isfinite(model.recommender().represent([everything])).all()


def test_each_group_of_users_is_given_its_own_half_of_the_items(features_of: Find) -> None:
    model: Any = trained("als", features_of("als"))
    recommender = model.recommender()
    number = {item: place for place, item in enumerate(recommender.items)}
    mine = [number[f"i{n}"] for n in range(7)]
    others = [number[f"i{n}"] for n in range(7, 20) if f"i{n}" in number]
    scores = recommender.item_vectors @ recommender.represent([np.array(mine[:3])])[0]
    assert scores[mine[3:]].mean() > scores[others].mean() + 0.02


def test_large_catalogues_are_trained_with_sampled_negatives(features_of: Find) -> None:
    model = started("sasrec", features_of("sasrec"), full_softmax_items=5, negatives=10)
    again = started("sasrec", features_of("sasrec"), full_softmax_items=5, negatives=10)
    batch = batches(model)[0]
    assert model.step(batch, 5) == again.step(batch, 5)
    assert model.step(batch, 6) != again.step(batch, 7)


@pytest.mark.parametrize("name", ["forest", "mlp"])
def test_a_saved_scorer_ranks_frauds_first_and_takes_unseen_values(
    name: str, features_of: Find, tmp_path: Path
) -> None:
    features = features_of(name)
    trained(name, features, **({"epochs": 20, "batch_size": 32} if name == "mlp" else {})).save(tmp_path)
    loaded = family(name).load(tmp_path)
    assert isinstance(loaded, Scorer)
    rows = pq.read_table(features.folder / "rows.parquet")
    scores = loaded.score(rows)
    frauds = rows["is_fraud"].fill_null(False).to_numpy()
    assert scores[frauds].mean() > scores[~frauds].mean()
    strange = rows.slice(0, 3).to_pylist()
    for row in strange:
        row.update(f_category="never seen", f_terminal_fraud_rate_28d=None, f_amount_vs_customer=float("inf"))
    assert np.isfinite(loaded.score(type(rows).from_pylist(strange, schema=rows.schema))).all()
    one_by_one = np.concatenate([loaded.score(rows.slice(i, 1)) for i in range(20)])
    np.testing.assert_array_equal(one_by_one, scores[:20])
    assert loaded.score(rows.slice(0, 0)).shape == (0,)


@pytest.mark.parametrize("name", ["forest", "mlp"])
def test_a_missing_feature_is_named(name: str, features_of: Find, tmp_path: Path) -> None:
    features = features_of(name)
    trained(name, features).save(tmp_path)
    rows = pq.read_table(features.folder / "rows.parquet").drop_columns(["f_log_amount"])
    loaded: Any = family(name).load(tmp_path)
    with pytest.raises(ModelError, match="f_log_amount"):
        loaded.score(rows)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_damaged_artefact_is_refused(name: str, features_of: Find, tmp_path: Path) -> None:
    trained(name, features_of(name)).save(tmp_path)
    for file in tmp_path.iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        if file.name != "arrays.npz" or name != "forest":  # the forest keeps no arrays of its own
            with pytest.raises(ModelError, match=r"damaged|not a readable"):
                family(name).load(tmp_path)
        file.write_bytes(whole)


def test_a_forest_file_with_foreign_types_is_refused(features_of: Find, tmp_path: Path) -> None:
    import skops.io

    trained("forest", features_of("forest")).save(tmp_path)
    (tmp_path / "model.skops").write_bytes(skops.io.dumps(FeatureSet))
    with pytest.raises(ModelError, match="not trusted"):
        family("forest").load(tmp_path)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_nothing_before_the_cut_is_an_error_that_says_so(name: str, features_of: Find) -> None:
    features = features_of(name)
    model = family(name)(SMALL[name], 0)
    with pytest.raises(ModelError, match="before"):
        model.start(features.folder, features.cuts.training_cut.replace(year=2001))


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize(
    ("params", "said"),
    [({"no_such": 1}, "unknown no_such"), ({"learning_rate": "fast", "factors": "many"}, "expected|unknown")],
)
def test_wrong_parameters_are_named(name: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        family(name)(params, 0)
