"""Checkpoints that can be trusted: plain ``torch.save`` files, and a manifest with their hashes written last.

The manifest is the commit: a folder without it, or with files that differ from it, is never resumed from, and what
is rejected is named together with the reason.
"""

from __future__ import annotations

import io
import platform
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlcost_pipeline import __version__
from mlcost_pipeline.errors import CheckpointError
from mlcost_pipeline.training.contract import (
    AttemptFolder,
    describe_file,
    differing_file,
    read_json,
    write_durable,
    write_json,
)
from mlcost_pipeline.training.order import Cursor

STATE, CURSOR, MANIFEST = "state.pt", "cursor.json", "MANIFEST.json"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that passed every check."""

    path: Path
    attempt: int
    step: int
    cursor: dict[str, Any]

    def load_state(self) -> dict[str, Any]:
        """The family's state, read without executing anything (``weights_only``).

        Raises:
            CheckpointError: torch cannot read the file.
        """
        import torch

        try:
            state: dict[str, Any] = torch.load(self.path / STATE, weights_only=True, map_location="cpu")
        except Exception as error:  # torch raises many kinds for an unreadable file
            raise CheckpointError(f"{self.path / STATE}: torch {torch.__version__} cannot read it: {error}") from error
        return state


@dataclass(frozen=True)
class Rejected:
    """A checkpoint that must not be resumed from, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Search:
    """What a search for a checkpoint found: the newest valid one, and all newer ones that were rejected."""

    found: Checkpoint | None
    rejected: list[Rejected]


def save(
    place: AttemptFolder, state: Mapping[str, Any], cursor: Cursor, losses: Mapping[str, Any], config_hash: str
) -> Path:
    """Write one checkpoint and commit it; returns its folder.

    Killed at any point it leaves either a committed checkpoint or one that is rejected for want of a manifest.

    Raises:
        OSError: the disk is full or gone; nothing was committed.
    """
    import torch

    folder = place.checkpoints / f"{cursor.steps:010d}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_durable(folder / STATE, buffer.getvalue())
    write_json(folder / CURSOR, {**cursor.as_dict(), "losses": dict(losses), "versions": versions()})
    files = {name: describe_file(folder / name) for name in (STATE, CURSOR)}
    manifest = {"format": FORMAT, "step": cursor.steps, "config_hash": config_hash, "files": files}
    write_json(folder / MANIFEST, manifest)
    return folder


def versions() -> dict[str, str]:
    """The versions a checkpoint depends on."""
    named = {name: version(name) for name in ("torch", "numpy")}
    return {**named, "python": platform.python_version(), "mlcost_pipeline": __version__}


def verify(folder: Path, config_hash: str) -> str | None:
    """Why a checkpoint must not be resumed from; None if it may."""
    if not (folder / MANIFEST).exists():
        return "the manifest is missing: the save never ended"
    manifest = read_json(folder / MANIFEST)
    if manifest is None or not isinstance(manifest.get("files"), dict):
        return "the manifest is not readable"
    if manifest.get("format") != FORMAT:
        return f"format {manifest.get('format')}, this code reads {FORMAT}"
    if manifest.get("config_hash") != config_hash:
        return f"made under configuration {manifest.get('config_hash')}, this job is {config_hash}"
    if not {STATE, CURSOR} <= set(manifest["files"]):
        return "the manifest does not name all files"
    try:
        difference = differing_file(folder, manifest["files"])
    except (OSError, KeyError, TypeError) as error:
        return f"cannot be checked: {error!r}"
    if difference:
        return difference
    cursor = read_json(folder / CURSOR)
    if cursor is None or cursor.get("steps") != manifest.get("step") or folder.name != f"{manifest['step']:010d}":
        return "cursor, manifest and folder name different steps"
    return None


def newest_valid(
    places: Iterable[AttemptFolder], config_hash: str, refused: Mapping[Path, str] | None = None
) -> Search:
    """The valid checkpoint with the most steps over all attempts of a job, and what was rejected on the way.

    `refused` names folders that passed these checks and yet could not be loaded, with the reason.
    """
    rejected: list[Rejected] = []
    for attempt, folder in _newest_first(places):
        reason = (refused or {}).get(folder) or verify(folder, config_hash)
        if reason is None:
            cursor = read_json(folder / CURSOR)
            assert cursor is not None
            return Search(Checkpoint(folder, attempt, int(cursor["steps"]), cursor), rejected)
        rejected.append(Rejected(folder, reason))
    return Search(None, rejected)


def retain(place: AttemptFolder, config_hash: str, keep: int = 2) -> list[Path]:
    """Remove what `keep` newer valid checkpoints of this attempt make needless; returns what was removed.

    Validity is established by reading the files back, so a damaged checkpoint never counts as kept, and the last
    valid one is never removed.
    """
    if keep < 2:
        raise CheckpointError(f"at least 2 checkpoints are kept, asked for {keep}")
    valid, removed = 0, []
    for _, folder in _newest_first([place]):
        if valid >= keep:
            (folder / MANIFEST).unlink(missing_ok=True)  # first, so that a kill half-way leaves no valid-looking rest
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
        elif verify(folder, config_hash) is None:
            valid += 1
    return removed


def _newest_first(places: Iterable[AttemptFolder]) -> list[tuple[int, Path]]:
    found = [
        (place.number, folder)
        for place in places
        if place.checkpoints.is_dir()
        for folder in place.checkpoints.iterdir()
        if folder.is_dir()
    ]
    return sorted(found, key=lambda entry: (entry[1].name, entry[0]), reverse=True)
