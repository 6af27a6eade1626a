"""Decay on matured labels: found when it is there, unknown (never zero) when it cannot be told."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from mlcost_pipeline.evidence.bounds import bounds
from mlcost_pipeline.evidence.decay import measure_decay
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse
from tests.evidence.worlds import (
    AS_OF,
    CUT,
    DELAY,
    TRAINED_UP_TO,
    fraud_world,
    labels,
    payments,
    predictions,
    put_incumbent,
    shop_world,
)


def test_a_loss_of_half_is_found_with_its_bounds(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", caught=2)
    found = measure_decay(warehouse, settings, "fraud", AS_OF)
    assert (found.state, found.source, found.days, found.units) == ("measured", "predictions", 7, 42)
    assert found.level == pytest.approx(1 / 3) and found.anchor == 0.8
    assert found.low is not None and found.high is not None
    assert 0.3 < found.low < 0.8 - 1 / 3 < found.high < 0.6
    assert found.units_per_day == 6.0
    assert (found.start, found.end) == ("2025-04-21", "2025-04-28")  # nothing younger than the labels' delay


def test_no_loss_has_a_lower_bound_below_zero(tmp_path: Path, settings: Settings) -> None:
    found = measure_decay(fraud_world(tmp_path / "warehouse"), settings, "fraud", AS_OF)
    assert found.low is not None and found.low < 0


def test_early_labels_that_are_all_fraud_do_not_count(tmp_path: Path, settings: Settings) -> None:
    """The two newest weeks hold only reports of fraud, none of them caught; the matured week is as verified."""
    warehouse = Warehouse(tmp_path / "warehouse")
    rows = payments()
    warehouse.append("transactions", rows)
    early = [label for label in labels(rows) if label["is_fraud"] or label["known_at"] < CUT - timedelta(days=DELAY)]
    warehouse.append("labels", early)
    version = put_incumbent(warehouse, "fraud")
    matured = (CUT - timedelta(days=2 * DELAY)).date()
    warehouse.append("predictions", predictions(rows, version, lambda day: 5 if day < matured else 0))
    found = measure_decay(warehouse, settings, "fraud", AS_OF)
    assert found.state == "unknown"
    assert "labels still missing" in found.reason


def test_labels_that_come_later_do_not_change_what_was_known_then(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", caught=2)
    before = measure_decay(warehouse, settings, "fraud", AS_OF - timedelta(days=1))
    assert before.end == "2025-04-27"
    assert all(day < "2025-04-27" for day, _, _ in before.per_day)


def test_a_bad_first_week_after_the_deploy_does_not_become_the_baseline(tmp_path: Path, settings: Settings) -> None:
    """The ratchet: the level broke on the day of the training cut, so every labelled day is bad; the anchor is not."""
    warehouse = fraud_world(tmp_path / "warehouse", caught=1)
    for days in (0, 3, 6):
        found = measure_decay(warehouse, settings, "fraud", AS_OF - timedelta(days=days))
        assert found.anchor == 0.8
        assert found.low is not None and found.low > 0.4


def test_without_predictions_the_incumbent_is_asked_again(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse", said=False)
    found = measure_decay(warehouse, settings, "fraud", AS_OF)
    assert (found.state, found.source) == ("measured", "rescored")
    assert found.units == 42 and len(found.per_day) == 7


def test_unknown_has_its_reason(tmp_path: Path, settings: Settings) -> None:
    no_anchor = fraud_world(tmp_path / "a", level=None)
    assert "no anchor" in measure_decay(no_anchor, settings, "fraud", AS_OF).reason
    no_labels = Warehouse(tmp_path / "b")
    rows = payments()
    no_labels.append("transactions", rows)
    no_labels.append("predictions", predictions(rows, put_incumbent(no_labels, "fraud"), lambda _: 5))
    found = measure_decay(no_labels, settings, "fraud", AS_OF)
    assert (found.state, found.low) == ("unknown", None)
    assert "0 usable days" in found.reason
    young = fraud_world(tmp_path / "c")
    put_incumbent(young, "fraud", trained_up_to=TRAINED_UP_TO + timedelta(days=10), job="job1")
    assert "matured days since the training cut" in measure_decay(young, settings, "fraud", AS_OF).reason


def test_hits_of_the_newest_days_against_the_verified_hit_rate(tmp_path: Path, settings: Settings) -> None:
    well = measure_decay(shop_world(tmp_path / "a", hit=lambda n: n % 2 == 0), settings, "shop", AS_OF)
    assert (well.state, well.level, well.units) == ("measured", 0.5, 240)
    assert "proxy" in well.measure and well.low is not None and well.low < 0
    lost = measure_decay(shop_world(tmp_path / "b", hit=lambda n: n % 4 == 0), settings, "shop", AS_OF)
    assert lost.level == 0.25 and lost.low is not None and 0.15 < lost.low < 0.25


def test_few_users_are_unknown(tmp_path: Path, settings: Settings) -> None:
    found = measure_decay(shop_world(tmp_path / "a", hit=lambda n: True, users=20), settings, "shop", AS_OF)
    assert (found.state, "50 are needed" in found.reason) == ("unknown", True)


def test_the_lower_bound_holds_as_often_as_stated() -> None:
    """Seven days without decay, an anchor measured on as many: the bound lies above zero one time in ten."""
    generator, above = np.random.default_rng(8), 0
    for _ in range(300):
        possible = generator.poisson(10, 7).astype(float) + 1
        had = generator.binomial(possible.astype(int), 0.6).astype(float)
        anchor = generator.binomial(70, 0.6) / 70
        above += bounds(had, possible, anchor, 70, 0.9)[0] > 0
    assert 0.04 <= above / 300 <= 0.16


def test_days_in_another_order_are_the_same_evidence() -> None:
    had, possible = np.array([3.0, 5, 2, 0, 4, 4, 1]), np.array([6.0, 6, 7, 2, 5, 6, 6])
    mixed = np.array([4, 2, 0, 6, 1, 5, 3])
    assert bounds(had, possible, 0.8, 50, 0.9) == bounds(had[mixed], possible[mixed], 0.8, 50, 0.9)
