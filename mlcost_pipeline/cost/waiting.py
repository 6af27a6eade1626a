"""Which configured places of bills hold files that were not imported as they are now."""

from __future__ import annotations

from pathlib import Path

from mlcost_pipeline.settings import BillSource, Settings, digest
from mlcost_pipeline.warehouse import Warehouse


def bills_waiting(warehouse: Warehouse, settings: Settings) -> list[list[str]]:
    """[path, fingerprint] of each configured place whose files changed since they were imported."""
    return [[str(place), seen] for _, place, seen in waiting_places(warehouse, settings)]


def waiting_places(warehouse: Warehouse, settings: Settings) -> list[tuple[BillSource, Path, str]]:
    """The places of :func:`bills_waiting` with their settings; a place without files is not waiting.

    A spot data feed is no bill and never waits: the price book reads it where it lies.
    """
    found = []
    for source in settings.bills:
        if source.format == "spot_feed":
            continue
        place = settings.path(source.path)
        seen = _fingerprint(place)
        if seen is not None and _imported(warehouse, place) != seen:
            found.append((source, place, seen))
    return found


def note_imported(warehouse: Warehouse, place: Path, seen: str) -> None:
    """Remember that a place was imported as it was when `seen` was its fingerprint."""
    warehouse.state.update(_state_path(place), lambda _: {"path": str(place), "fingerprint": seen})


def _fingerprint(place: Path) -> str | None:
    """Names, sizes and times of a place's files; None if there are none."""
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    stats = [(str(file), file.stat()) for file in files]
    return digest([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]) if stats else None


def _imported(warehouse: Warehouse, place: Path) -> str | None:
    stored = warehouse.state.get(_state_path(place))
    return None if stored is None else str(stored.value["fingerprint"])


def _state_path(place: Path) -> str:
    return f"imports/{digest(str(place))}"
