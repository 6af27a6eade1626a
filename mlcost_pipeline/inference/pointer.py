"""Which version of the lists is live: one state object per model, moved by compare-and-swap.

It never moves to an earlier data cut, except by rollback, and never back to a version that was rolled back. The
warehouse's own pointer of ``recommendations`` follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mlcost_pipeline.errors import PublicationError
from mlcost_pipeline.warehouse import Warehouse

TABLE = "recommendations"


@dataclass(frozen=True)
class Entry:
    """A version that went live at some time."""

    version: str
    model_version: str
    data_cut: datetime
    published_at: datetime

    def as_state(self) -> dict[str, str]:
        return {
            "version": self.version,
            "model_version": self.model_version,
            "data_cut": self.data_cut.isoformat(),
            "published_at": self.published_at.isoformat(),
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Entry:
        return cls(
            str(value["version"]),
            str(value["model_version"]),
            datetime.fromisoformat(value["data_cut"]),
            datetime.fromisoformat(value["published_at"]),
        )


@dataclass(frozen=True)
class Moved:
    """Whether a version is live now, and why or why not (`reason` is a code)."""

    live: bool
    reason: str
    published_at: datetime | None


def live(warehouse: Warehouse, model: str) -> Entry | None:
    """The version in force, or None before the first publication."""
    stored = warehouse.state.get(_path(model))
    return None if stored is None else _live(stored.value)


def move(warehouse: Warehouse, model: str, new: Entry) -> Moved:
    """Make `new` the live version if it may be; safe to repeat and to race."""
    outcome: list[str] = []

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is None:
            outcome.append("published")
            return {"live": new.version, "history": [new.as_state()], "rolled_back": [], "dropped": []}
        outcome.append(_verdict(value, new))
        if outcome[-1] != "published":
            return value
        kept = [entry for entry in value["history"] if entry["version"] != new.version]
        dropped = [version for version in value["dropped"] if version != new.version]
        return {**value, "live": new.version, "history": [*kept, new.as_state()], "dropped": dropped}

    stored = warehouse.state.update(_path(model), change)
    follow(warehouse, model)
    known = {entry["version"]: Entry.of(entry) for entry in stored.value["history"]}
    entry = known.get(new.version)
    is_live = stored.value["live"] == new.version
    return Moved(is_live, outcome[-1], entry.published_at if entry and outcome[-1] in _WENT_LIVE else None)


_WENT_LIVE = ("published", "already_live")


def _verdict(value: dict[str, Any], new: Entry) -> str:
    now = _live(value)
    if now.version == new.version:
        return "already_live"
    if new.version in value["rolled_back"]:
        return "rolled_back"
    if new.data_cut < now.data_cut:
        return "earlier_data_cut"
    return "published"


def step_back(warehouse: Warehouse, model: str, version: str | None, usable: Sequence[str]) -> tuple[str, Entry]:
    """Leave `version` (None: the live one) for the newest earlier one among `usable`; returns left and live.

    Naming the version makes a repeat harmless: if it has been left already, nothing moves.
    """
    left: list[str] = []

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is None:
            raise PublicationError(f"model {model}: nothing is published, so there is nothing to roll back")
        bad = version or str(value["live"])
        left.append(bad)
        if bad in value["rolled_back"]:
            return value
        if bad != value["live"]:
            raise PublicationError(f"model {model}: version {bad} is not live (live is {value['live']})")
        names = [entry["version"] for entry in value["history"]]
        earlier = names[: names.index(bad)]
        good = [name for name in earlier if name in usable and name not in value["rolled_back"]]
        if not good:
            raise PublicationError(f"model {model}: no earlier version is kept and whole; {bad} stays live")
        return {**value, "live": good[-1], "rolled_back": [*value["rolled_back"], bad]}

    stored = warehouse.state.update(_path(model), change)
    follow(warehouse, model)
    return left[-1], _live(stored.value)


def in_production(warehouse: Warehouse, model: str) -> str | None:
    """The model version in production, read from its one pointer."""
    stored = warehouse.state.get(f"models/{model}")
    value = None if stored is None else stored.value.get("incumbent")
    return None if value is None else str(value)


def follow(warehouse: Warehouse, model: str) -> None:
    """Bring the warehouse's pointer of the table to the live version, also after a kill between the two."""
    while (now := live(warehouse, model)) is not None:
        if warehouse.current(TABLE, model) != now.version:
            warehouse.point(TABLE, model, now.version)
        if live(warehouse, model) == now:
            return


def retire(warehouse: Warehouse, model: str, keep: int) -> list[str]:
    """Take all but the last `keep` versions (and the live one) out of reach; returns whose files may be deleted."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is None:
            raise PublicationError(f"model {model}: nothing is published")
        good = [e["version"] for e in value["history"] if e["version"] not in value["rolled_back"]]
        kept = {*good[-keep:], value["live"]}
        gone = [e["version"] for e in value["history"] if e["version"] not in kept]
        history = [e for e in value["history"] if e["version"] in kept]
        return {**value, "history": history, "dropped": [*value["dropped"], *gone]}

    return [str(version) for version in warehouse.state.update(_path(model), change).value["dropped"]]


def deleted(warehouse: Warehouse, model: str, versions: Sequence[str]) -> None:
    """Note that the files of retired versions are gone."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        assert value is not None
        return {**value, "dropped": [version for version in value["dropped"] if version not in versions]}

    warehouse.state.update(_path(model), change)


def history(warehouse: Warehouse, model: str) -> list[Entry]:
    """Versions that can be rolled back to, in the order in which they went live."""
    stored = warehouse.state.get(_path(model))
    return [] if stored is None else [Entry.of(entry) for entry in stored.value["history"]]


def _live(value: dict[str, Any]) -> Entry:
    return next(Entry.of(entry) for entry in value["history"] if entry["version"] == value["live"])


def _path(model: str) -> str:
    return f"publications/{model}"
