"""What a trainer and its supervisor agree on: exit codes, the files of a job folder, and how files become durable.

docs/trainer-contract.md tells the same to people who bring a trainer of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcost_pipeline.state import sync_folder

DONE = 0
INTERRUPTED = 75  # EX_TEMPFAIL: run me again, I resume
BAD_JOB = 64  # EX_USAGE: the job itself is wrong, never retried
MODEL_ERROR = 70  # EX_SOFTWARE: the model's code failed, retried within a small budget

JOB_FILE = "job.json"


@dataclass(frozen=True)
class AttemptFolder:
    """The files of one attempt, ``<job folder>/attempts/<number>/``; nobody but this attempt writes there."""

    job_folder: Path
    number: int

    @property
    def path(self) -> Path:
        return self.job_folder / "attempts" / str(self.number)

    @property
    def heartbeat(self) -> Path:
        return self.path / "heartbeat.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def error(self) -> Path:
        return self.path / "error.json"

    @property
    def resume(self) -> Path:
        return self.path / "resume.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def exit_code(self) -> Path:
        return self.path / "exit"

    @property
    def artefact(self) -> Path:
        return self.path / "artefact"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"


def attempt_folders(job_folder: Path) -> list[AttemptFolder]:
    """All attempts of a job that have a folder, oldest first."""
    place = job_folder / "attempts"
    numbers = sorted(int(entry.name) for entry in place.iterdir() if entry.name.isdigit()) if place.is_dir() else []
    return [AttemptFolder(job_folder, number) for number in numbers]


def write_durable(path: Path, data: bytes) -> None:
    """Write a file that is whole or absent, and there after a power cut: aside, fsync, rename, fsync of the folder."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value: dict[str, Any], *, durable: bool = True) -> None:
    """Write JSON atomically; `durable=False` spares the fsync where only the newest state matters (heartbeats)."""
    data = json.dumps(value, sort_keys=True).encode()
    if durable:
        write_durable(path, data)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is absent or not whole."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def describe_files(folder: Path, *, durable: bool = False) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below `folder`, by relative path; `durable` forces them to disk first."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files if durable else []:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    return {file.relative_to(folder).as_posix(): describe_file(file) for file in files}


def describe_file(file: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of one file."""
    with file.open("rb") as stream:
        checksum = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": checksum}


def differing_file(folder: Path, described: dict[str, Any]) -> str | None:
    """The first way in which files differ from their manifest, in words; None if all are as described."""
    for name, expected in described.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        size = file.stat().st_size
        if size != expected["bytes"]:
            return f"{name} has {size} bytes, the manifest says {expected['bytes']}"
        if describe_file(file)["sha256"] != expected["sha256"]:
            return f"{name} does not match its SHA-256"
    return None
