"""Payments, frauds and the labels that come late. Every day follows from the seed alone.

Until the drift day frauds are large amounts at night (electronics, fashion); from then on small online probes in the
evening (digital, travel), which a scorer trained before has never seen. Compromised terminals run through all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlcost_pipeline.demo.files import write_csv, write_parquet
from mlcost_pipeline.demo.plan import OPENING, Plan
from mlcost_pipeline.tables import TEXT, TIME

CATEGORIES = ("grocery", "fashion", "electronics", "digital", "travel", "jewellery")
SMALL_CATEGORY = "jewellery"
_SHARES = (0.34, 0.20, 0.17, 0.17, 0.10, 0.02)
_USUAL_AMOUNT = np.array([34.0, 68.0, 175.0, 15.0, 290.0, 420.0])
_OFTEN_ONLINE = np.array([0.2, 0.4, 0.5, 0.9, 0.85, 0.3])
LONGEST_DELAY = 30
SETTLED_AFTER = 7
_LABEL_HOUR = timedelta(hours=4)
_COLUMNS = ("payment", "customer", "terminal", "category", "amount", "currency", "online", "paid_at")


@dataclass(frozen=True)
class DayPayments:
    """Payments of a day in order of time."""

    ids: list[str]
    second: NDArray[np.int64]
    customer: NDArray[np.int64]
    terminal: NDArray[np.int64]
    category: NDArray[np.int64]
    cents: NDArray[np.int64]
    online: NDArray[np.bool_]
    fraud: NDArray[np.bool_]
    delay: NDArray[np.int64]
    """Days until the label is known."""


@lru_cache(maxsize=64)
def payments_of(plan: Plan, day: int) -> DayPayments:
    """The payments of a day; none on the day that is planted empty."""
    rng = plan.rng("payments", day)
    busy = (0.95, 0.95, 1.0, 1.05, 1.2, 1.25, 0.6)[plan.day(day).weekday()]
    count = 0 if day == plan.empty_day else int(rng.poisson(plan.payments_per_day * busy))
    category_of, popularity = _terminals(plan)
    terminal = rng.choice(plan.terminals, count, p=popularity)
    category = category_of[terminal]
    customer = rng.integers(0, plan.customers, count)
    hours = np.clip(rng.normal(14.0, 4.2, count), 0, 23.99)
    amount = _USUAL_AMOUNT[category] * rng.lognormal(0, 0.55, count) * (0.7 + 0.6 * (customer % 97) / 97)
    online = rng.random(count) < _OFTEN_ONLINE[category]
    fraud, hours, amount = _plant_frauds(plan, day, rng, terminal, category, online, hours, amount)
    second = (hours * 3600).astype(np.int64)
    if day == 0:
        begin = int(OPENING.total_seconds())
        second = begin + second * (86_400 - begin) // 86_400
    delay = np.where(fraud, np.clip(rng.lognormal(1.6, 0.5, count), 1, LONGEST_DELAY).astype(np.int64), SETTLED_AFTER)
    order = np.argsort(second, kind="stable")
    ids = [f"0{plan.day(day):%Y%m%d}{number:07d}" for number in range(count)]
    cents = np.maximum(1, np.round(amount * 100)).astype(np.int64)
    return DayPayments(
        ids, second[order], customer[order], terminal[order], category[order], cents[order], online[order],
        fraud[order], delay[order],
    )  # fmt: skip


def write_payments(shop: Path, plan: Plan, day: int) -> Path:
    """The payments of a day as CSV; a day without any has its header."""
    now, start = payments_of(plan, day), plan.midnight(day)
    rows = zip(
        now.ids,
        [f"c{number:05d}" for number in now.customer.tolist()],
        [f"{number:04d}" for number in now.terminal.tolist()],
        [CATEGORIES[number] for number in now.category.tolist()],
        [f"{cents // 100}.{cents % 100:02d}" for cents in now.cents.tolist()],
        ["USD"] * len(now.ids),
        now.online.astype(int).tolist(),
        [(start + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S") for second in now.second.tolist()],
        strict=True,
    )
    return write_csv(shop / "data" / "payments" / f"{plan.day(day)}.csv.gz", _COLUMNS, rows, compress=True)


def write_labels(shop: Path, plan: Plan, day: int) -> Path:
    """The labels that became known on a day, of payments up to thirty days before."""
    ids: list[str] = []
    frauds: list[bool] = []
    for earlier in range(max(0, day - LONGEST_DELAY), day):
        now = payments_of(plan, earlier)
        due = np.flatnonzero(now.delay == day - earlier).tolist()
        ids += [now.ids[number] for number in due]
        frauds += now.fraud[due].tolist()
    known_at = plan.midnight(day) + _LABEL_HOUR
    rows = pa.table(
        {
            "payment": pa.array(ids, TEXT),
            "known": pa.array([known_at] * len(ids), TIME),
            "fraud": pa.array(frauds, pa.bool_()),
        }
    )  # fmt: skip
    return write_parquet(shop / "data" / "labels" / f"{plan.day(day)}.parquet", rows)


def _plant_frauds(
    plan: Plan, day: int, rng: np.random.Generator, terminal: NDArray[np.int64], category: NDArray[np.int64],
    online: NDArray[np.bool_], hours: NDArray[np.float64], amount: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    count, drifted = len(terminal), day >= plan.drift_day
    night = np.isin(category, (1, 2)) & (rng.random(count) < (0.002 if drifted else 0.024))
    probe = np.isin(category, (3, 4)) & online & (rng.random(count) < (0.045 if drifted else 0.0))
    stolen = np.isin(terminal, _compromised(plan, day)) & (rng.random(count) < 0.35)
    gems = (category == 5) & (rng.random(count) < 0.05)
    amount = np.where(night, amount * rng.uniform(2.5, 5.0, count), amount)
    hours = np.where(night, rng.uniform(0, 5, count), hours)
    amount = np.where(probe, rng.uniform(0.8, 6.0, count), amount)
    hours = np.where(probe, rng.uniform(18, 23, count), hours)
    amount = np.where(gems, np.round(amount * 2, -2) + 99.0, amount)
    return night | probe | stolen | gems, hours, amount


@lru_cache(maxsize=8)
def _terminals(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Category and popularity of each terminal; every category has at least one."""
    rng = plan.rng("terminals")
    category = np.repeat(
        np.arange(len(CATEGORIES)), np.maximum(1, np.round(np.array(_SHARES) * plan.terminals).astype(int))
    )
    category = np.resize(category, plan.terminals)
    popularity = rng.lognormal(0, 0.5, plan.terminals)
    total = np.array([popularity[category == number].sum() for number in range(len(CATEGORIES))])
    popularity = popularity / total[category] * np.array(_SHARES)[category]
    return category, popularity / popularity.sum()


@lru_cache(maxsize=512)
def _compromised(plan: Plan, day: int) -> tuple[int, ...]:
    """Terminals that leak cards on a day: about two, each for 7 to 14 days."""
    found = []
    for began in range(day - 14, day + 1):
        rng = plan.rng("terminals leak", began + 10_000)
        if rng.random() < 0.2 and day - began < int(rng.integers(7, 15)):
            found.append(int(rng.integers(0, plan.terminals)))
    return tuple(found)
