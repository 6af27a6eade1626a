"""Folders that jobs record themselves in: runs there that gave no sign of life are closed before they are read."""

from __future__ import annotations

from mlcost_pipeline.recording import HOLDS, RUNS, close_silent
from mlcost_pipeline.settings import Settings

#: Source tables that recordings are read into.
RECORDED = (RUNS, HOLDS)


def close_recorded(settings: Settings, table: str) -> list[str]:
    """Close lost recordings of the folders that `table` is read from; returns their run ids."""
    lost: list[str] = []
    for source in settings.sources.get(table, []):
        place = settings.path(source.path)
        folder = place if place.is_dir() else place.parent
        if folder.name in RECORDED:
            lost += close_silent(folder.parent)
    return lost
