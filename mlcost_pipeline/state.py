"""Small JSON objects changed by compare-and-swap: claims, leases, pointers, the sensors' summaries.

Each object carries a serial, so that equal content is never an equal state, and the nonce of its writer, so that
a writer who does not know whether its create went through can read it back and tell.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mlcost_pipeline.errors import StateConflict, WarehouseError


@dataclass(frozen=True)
class Stored:
    """A state object as it was read: its value and the serial a swap has to name."""

    value: dict[str, Any]
    serial: int


class StateStore:
    """State objects as files below one folder; a path is words separated by ``/``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, path: str) -> Stored | None:
        """The object at `path`, or None."""
        file = self._file(path)
        try:
            document = json.loads(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise WarehouseError(f"{file}: state object is not JSON ({error}); restore it or remove it") from error
        return Stored(document["value"], document["serial"])

    def create(self, path: str, value: dict[str, Any]) -> bool:
        """Create the object on condition that it does not exist; True if this call made it."""
        file, nonce = self._file(path), uuid.uuid4().hex
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = self._write_aside(file, value, serial=1, nonce=nonce)
        try:
            os.link(aside, file)
        except FileExistsError:
            return bool(json.loads(file.read_bytes())["nonce"] == nonce)
        finally:
            aside.unlink(missing_ok=True)
        sync_folder(file.parent)
        return True

    def swap(self, path: str, value: dict[str, Any], *, serial: int) -> Stored:
        """Replace the object if its serial still is `serial`.

        Raises:
            StateConflict: the object is gone or somebody else changed it.
        """
        file = self._file(path)
        with self._locked(file):
            now = self.get(path)
            if now is None or now.serial != serial:
                found = "no object" if now is None else f"serial {now.serial}"
                raise StateConflict(f"state {path}: expected serial {serial}, found {found}; read it again and retry")
            aside = self._write_aside(file, value, serial=serial + 1, nonce=uuid.uuid4().hex)
            aside.replace(file)
            sync_folder(file.parent)
        return Stored(value, serial + 1)

    def update(self, path: str, change: Callable[[dict[str, Any] | None], dict[str, Any]]) -> Stored:
        """Read, change and swap until it holds. `change` may be called more than once and sees None if absent."""
        while True:
            now = self.get(path)
            if now is None:
                value = change(None)
                if self.create(path, value):
                    return Stored(value, 1)
                continue
            value = change(json.loads(json.dumps(now.value)))
            if value == now.value:
                return now
            try:
                return self.swap(path, value, serial=now.serial)
            except StateConflict:
                continue

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly below `folder`, sorted."""
        place = self._file(folder).with_suffix("")
        if not place.is_dir():
            return []
        return sorted(unquote(file.stem) for file in place.iterdir() if file.suffix == ".json")

    def _file(self, path: str) -> Path:
        parts = [quote(part, safe="") for part in path.split("/")]
        if not all(parts):
            raise WarehouseError(f"state path {path!r} has an empty part")
        return self.root.joinpath(*parts[:-1], parts[-1].replace(".", "%2E") + ".json")

    def _write_aside(self, file: Path, value: dict[str, Any], *, serial: int, nonce: str) -> Path:
        aside = file.with_name(f".{file.name}.{nonce}")
        data = json.dumps({"serial": serial, "nonce": nonce, "value": value}, sort_keys=True).encode()
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        return aside

    @contextmanager
    def _locked(self, file: Path) -> Iterator[None]:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_name(f".{file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel if this process is killed
            yield


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
