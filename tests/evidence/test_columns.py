"""Drift of one column: the cases that other tools answer wrongly and silently, each with its right answer."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mlcost_pipeline.evidence.columns import Sample, compare
from mlcost_pipeline.evidence.psi import bin_counts, null_bound, psi, quantile_edges
from mlcost_pipeline.evidence.values import FeatureDrift
from mlcost_pipeline.settings import Policy

POLICY = Policy()
BASE = np.random.default_rng(1).normal(size=20_000)


def drift(reference: Any, *currents: Any, policy: Policy = POLICY) -> FeatureDrift:
    """The column with one window for each of `currents` (newest first); one current stands for three."""
    windows = currents * 3 if len(currents) == 1 else currents
    samples = [
        Sample(date(2025, 6, 1) - timedelta(weeks=n), date(2025, 6, 8) - timedelta(weeks=n), pa.array(values))
        for n, values in enumerate(windows)
    ]
    return compare("x", pa.array(reference), samples, policy)


def normal(n: int, shift: float = 0.0, seed: int = 2) -> Any:
    return np.random.default_rng(seed).normal(shift, 1.0, n)


def test_psi_of_known_shares() -> None:
    """Half and half against one and three quarters: (1/4)·ln 3 twice over, by hand."""
    found = psi(np.array([500_000, 500_000]), np.array([250_000, 750_000]))
    assert found == pytest.approx(-0.25 * np.log(0.5) + 0.25 * np.log(1.5), abs=1e-5)


def test_without_drift_psi_stays_below_its_null_bound_as_often_as_stated() -> None:
    generator, over = np.random.default_rng(3), 0
    reference = generator.normal(size=2000)
    for _ in range(400):
        reference = generator.normal(size=2000)
        edges = quantile_edges(reference)
        found = psi(bin_counts(reference, edges), bin_counts(generator.normal(size=300), edges))
        over += found > null_bound(2000, 300, 10, 0.95)
    assert 0.02 <= over / 400 <= 0.09  # 0.05 stated, three standard errors of 400 draws


@pytest.mark.parametrize("n", [250, 1_000, 10_000, 200_000])
def test_the_same_shift_is_one_verdict_whatever_the_sample_size(n: int) -> None:
    assert drift(BASE, normal(n, shift=1.0)).material
    assert not drift(BASE, normal(n, shift=0.03)).material  # a p-value would call it drift at 200,000


def test_empty_and_all_missing_windows_are_no_data_and_never_crash() -> None:
    nothing: Any = pa.array([], pa.float64())
    assert drift(BASE, nothing).state == "no_data"
    assert drift(BASE, [None] * 5000, normal(5000), normal(5000)).state == "no_data"
    assert drift(pa.array([], pa.float64()), normal(500)).state == "no_data"
    assert drift(["a"] * 500, pa.array([], pa.string())).state == "no_data"


@pytest.mark.parametrize("n", [1, 5, 8])
def test_a_handful_of_rows_is_too_few(n: int) -> None:
    found = drift(BASE, normal(n, shift=5.0))
    assert (found.state, found.material) == ("too_few", False)


def test_missing_values_are_counted_and_left_out() -> None:
    values = np.where(np.arange(5000) % 2 == 0, np.nan, normal(5000))
    found = drift(BASE, values)
    assert (found.material, found.windows[0].missing_share, found.windows[0].rows) == (False, 0.5, 2500)


def test_one_infinity_is_counted_and_changes_nothing() -> None:
    values = normal(5000)
    clean = drift(BASE, values[1:])
    values[0] = np.inf
    found = drift(BASE, values)
    assert (found.windows[0].infinite_rows, found.windows[0].psi) == (1, clean.windows[0].psi)


def test_one_wild_value_is_no_drift_and_hides_none() -> None:
    values = normal(5000)
    values[0] = 1e9
    assert not drift(BASE, values).material
    moved = normal(5000, shift=3.0)
    moved[0] = 1e6
    assert drift(BASE, moved).material


def test_a_tiny_unit_hides_no_drift() -> None:
    assert drift(BASE * 1e-5, normal(5000, shift=3.0) * 1e-5).material


def test_sixty_rows_without_drift_are_no_drift_even_where_sixty_are_enough() -> None:
    lenient = Policy(min_window_rows=50)
    found = [drift(BASE, normal(60, seed=seed), policy=lenient) for seed in range(40)]
    assert not any(each.material for each in found)


def test_nine_hundred_rows_and_twenty_columns_without_drift() -> None:
    generator = np.random.default_rng(4)
    found = [drift(generator.normal(size=900), *(generator.normal(size=900) for _ in range(3))) for _ in range(20)]
    assert [each.material for each in found] == [False] * 20


def test_booleans_are_numbers_of_two_values() -> None:
    before, now = np.arange(5000) % 2 == 0, np.arange(5000) % 5 != 0
    by_hand = 0.3 * np.log(0.8 / 0.5) - 0.3 * np.log(0.2 / 0.5)
    assert drift(before, now).windows[0].psi == pytest.approx(by_hand, abs=1e-2)
    assert drift(before, now).material


def test_a_constant_that_moves_by_a_twentieth_is_not_material() -> None:
    found = drift(np.full(5000, 1.0), np.full(5000, 1.05))
    assert (found.material, found.windows[0].psi) == (False, pytest.approx(0.05))
    assert drift(np.full(5000, 1.0), np.full(5000, 100.0)).material


def test_unseen_categories_are_counted_on_their_own() -> None:
    before = ["a", "b"] * 2500
    rare = ["a", "b"] * 2487 + ["new"] * 26
    assert not drift(before, rare).material
    assert drift(before, rare).windows[0].unseen_share == pytest.approx(26 / 5000)
    assert drift(before, ["new"] * 5000).material


def test_ids_are_excluded_by_their_cardinality() -> None:
    found = drift([f"id{n}" for n in range(5000)], [f"other{n}" for n in range(5000)])
    assert (found.state, found.material) == ("excluded", False)


def test_two_of_three_windows_are_needed() -> None:
    calm, moved = normal(1000), normal(1000, shift=2.0)
    assert not drift(BASE, moved, calm, calm).material
    assert not drift(BASE, calm, moved, calm).material
    assert drift(BASE, moved, moved, calm).material


@hypothesis_settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 0.25, 4096.0]), shift=st.sampled_from([0.0, 0.4, 1.0]))
def test_a_verdict_does_not_depend_on_row_order_or_unit(seed: int, scale: float, shift: float) -> None:
    values = normal(600, shift=shift, seed=seed)
    mixed = np.random.default_rng(seed).permutation(values)
    first, second = drift(BASE[:3000], values), drift(BASE[:3000][::-1] * scale, mixed * scale)
    assert first.windows[0].psi == second.windows[0].psi
    assert first.material == second.material
