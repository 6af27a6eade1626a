"""Small shops and payments, as plain rows, and settings around them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from mlcost_pipeline.settings import Settings

DAY0 = datetime(2025, 3, 1, tzinfo=UTC)
AS_OF = date(2025, 3, 30)
ODD_IDS = ["007", "7", "18446744073709551617", "é", "a b"]


def settings_with(**models: dict[str, Any]) -> Settings:
    """Settings with these models and one on-demand pool."""
    pool = {"name": "od", "market": "on_demand", "price_per_hour": "1"}
    return Settings.model_validate({"version": 1, "name": "t", "models": models, "capacity": {"pools": [pool]}})


def recommendation(**changes: Any) -> dict[str, Any]:
    """A recommendation model over 30 days."""
    trainer = {"family": "als"}
    base: dict[str, Any] = {
        "task": "recommendation",
        "first_day": DAY0.date(),
        "trainer": trainer,
        "baseline": trainer,
        "windows": {"training_days": 23, "holdout_days": 7},
        "outcome": {"unit": "hits"},
    }
    return {**base, **changes}


def scoring(**changes: Any) -> dict[str, Any]:
    """A fraud model over 30 days whose labels mature after 3."""
    trainer = {"family": "forest"}
    base: dict[str, Any] = {
        "task": "scoring",
        "first_day": DAY0.date(),
        "trainer": trainer,
        "baseline": trainer,
        "windows": {"training_days": 20, "holdout_days": 7, "label_delay_days": 3},
        "outcome": {"unit": "fraud_caught"},
        "alerts_per_day": 5,
    }
    return {**base, **changes}


def events(n_users: int = 40, n_items: int = 25, *, seed: int = 0) -> list[dict[str, Any]]:
    """Two groups of users, each buying from its own half of the items; some ids are traps."""
    rng = np.random.default_rng(seed)
    users = [*ODD_IDS, *(f"u{n}" for n in range(n_users - len(ODD_IDS)))]
    items = [*ODD_IDS, *(f"i{n}" for n in range(n_items - len(ODD_IDS)))]
    rows = []
    for place, user in enumerate(users):
        for number in range(int(rng.integers(5, 12))):
            half = n_items // 2
            chosen = int(rng.integers(half)) + half * (place % 2)
            at = DAY0 + timedelta(minutes=int(rng.integers(30 * 24 * 60)))
            rows.append(event(user, items[chosen], at, f"e{place}-{number}"))
    return rows


def event(user: str | None, item: str, at: datetime, event_id: str, kind: str = "purchase") -> dict[str, Any]:
    """One interaction."""
    return {"event_id": event_id, "user_id": user, "item_id": item, "kind": kind, "happened_at": at}


def payment(number: int, at: datetime, amount: str = "10", **changes: Any) -> dict[str, Any]:
    """One transaction of customer c0 at terminal t0."""
    base = {
        "transaction_id": f"{number:05d}",
        "happened_at": at,
        "merchant_category": "food",
        "amount": Decimal(amount),
        "currency": "EUR",
        "customer_id": "c0",
        "terminal_id": "t0",
    }
    return {**base, **changes}


def payments(count: int = 600, *, seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Transactions over 30 days, frauds large and at night, and labels known two days later."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for number in range(count):
        fraud = bool(rng.random() < 0.08)
        day = timedelta(days=int(rng.integers(30)))
        hour = rng.uniform(0, 5) if fraud else rng.uniform(8, 22)
        at = DAY0 + day + timedelta(microseconds=int(hour * 3.6e9))
        amount = rng.uniform(200, 500) if fraud else rng.uniform(5, 80)
        names = {"customer_id": f"c{rng.integers(20)}", "terminal_id": f"t{rng.integers(5)}"}
        category = ["food", "fuel", "toys"][int(rng.integers(3))]
        online = bool(rng.integers(2))
        rows.append(payment(number, at, f"{amount:.2f}", merchant_category=category, feature_online=online, **names))
        labels.append(label(number, at + timedelta(days=2), fraud))
    return rows, labels


def label(number: int, known_at: datetime, is_fraud: bool) -> dict[str, Any]:
    """One label."""
    return {"transaction_id": f"{number:05d}", "known_at": known_at, "is_fraud": is_fraud}
