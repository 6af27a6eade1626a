"""Now, for one model: an origin and a rate over the monotonic clock, never frozen.

A model whose data lie in the past has its own origin, shared by every process of this machine through one state
object, so that work has a duration in every mode. Without a configured origin, now is real time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Clock:
    """``now = origin + rate × (monotonic − anchor)``; without an origin, the system's UTC time."""

    origin: datetime | None = None
    rate: float = 1.0
    anchor: float = 0.0

    @classmethod
    def fixed_origin(cls, origin: datetime, rate: float = 1.0) -> Clock:
        """A clock that starts at `origin` now and runs at `rate` simulated seconds a second."""
        return cls(origin.astimezone(UTC), rate, time.monotonic())

    def now(self) -> datetime:
        """The present, UTC with zone."""
        if self.origin is None:
            return datetime.now(UTC)
        return self.origin + timedelta(seconds=self.rate * (time.monotonic() - self.anchor))

    def wall_seconds(self, simulated_seconds: float) -> float:
        """How long `simulated_seconds` take on this machine."""
        return simulated_seconds / self.rate

    def sleep(self, simulated_seconds: float) -> None:
        """Wait for a stretch of this clock's time."""
        time.sleep(max(0.0, self.wall_seconds(simulated_seconds)))


def model_clock(warehouse: Warehouse, settings: Settings, model: str) -> Clock:
    """The clock of a model; the first caller anchors it, everybody else on this machine shares the anchor.

    Work of no model of the pipeline (the platform's, or a model that is only accounted) reads the first model's.
    """
    if model not in settings.models:
        model = min(settings.models, default=model)
    configured = settings.models[model].clock if model in settings.models else None
    stored = warehouse.state.get(f"clocks/{model}")
    if stored is None:
        if configured is None:
            return Clock()
        warehouse.state.create(f"clocks/{model}", _anchored(configured.origin, configured.rate))
        stored = warehouse.state.get(f"clocks/{model}")
        assert stored is not None
    if stored.value["boot_id"] != boot_id():  # the monotonic clock began anew: so does this one, at its origin
        origin, rate = datetime.fromisoformat(stored.value["origin"]), float(stored.value["rate"])
        stored = warehouse.state.update(f"clocks/{model}", _reanchor(origin, rate))
    return _clock(stored.value)


def standing_at(stored: dict[str, Any] | None, moment: datetime) -> dict[str, Any] | None:
    """A stored clock (None: real time), or one that stands at `moment` for good if it has passed that."""
    if stored is None:
        now = datetime.now(UTC)
    else:  # of another boot it begins anew
        now = _clock(stored if stored["boot_id"] == boot_id() else {**stored, "rate": 0}).now()
    return stored if now <= moment else _anchored(moment, 0.0)


def _clock(value: dict[str, Any]) -> Clock:
    return Clock(datetime.fromisoformat(value["origin"]), float(value["rate"]), float(value["anchor"]))


def set_clock(warehouse: Warehouse, model: str, origin: datetime, rate: float) -> None:
    """Move a model's clock: from now on it reads `origin` and runs at `rate`."""
    warehouse.state.update(f"clocks/{model}", lambda _: _anchored(origin, rate))


def boot_id() -> str:
    """Identifies this boot of this machine: monotonic times of another boot mean nothing here."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else "unknown"


def _anchored(origin: datetime, rate: float) -> dict[str, Any]:
    return {
        "origin": origin.astimezone(UTC).isoformat(),
        "rate": rate,
        "anchor": time.monotonic(),
        "boot_id": boot_id(),
    }


def _reanchor(origin: datetime, rate: float) -> Callable[[dict[str, Any] | None], dict[str, Any]]:
    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is not None and value["boot_id"] == boot_id():
            return value
        return _anchored(origin, rate)

    return change
