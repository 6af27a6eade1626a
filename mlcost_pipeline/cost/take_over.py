"""Which delivery of a period is in force: the one that arrived last, whichever was imported first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass
class News:
    """What a delivery changed: whether it came into force, or the id of the delivery that it stays behind."""

    took_over: bool = False
    behind: str | None = None


def moved(value: dict[str, Any] | None, delivery_id: str, received_at: datetime, news: News) -> dict[str, Any]:
    """The pointer of a period after a delivery; what that changed is left in `news`."""
    ours, news.took_over, news.behind = delivery_id, True, None
    fresh = {"delivery_id": ours, "received_at": received_at.isoformat()}
    if value is None:
        return {**fresh, "history": [ours]}
    arrived, known = datetime.fromisoformat(value["received_at"]), ours in value["history"]
    if value["delivery_id"] == ours:
        news.took_over = False  # delivered again, it is as new as the last time that it came
        return {**value, "received_at": max(arrived, received_at).isoformat()}
    if received_at < arrived or (known and received_at == arrived):
        news.took_over, news.behind = False, value["delivery_id"]
        return value if known else {**value, "history": [ours, *value["history"]]}
    return {**fresh, "history": [*(name for name in value["history"] if name != ours), ours]}
