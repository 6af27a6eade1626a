"""A folder for work on the way, which a killed process leaves behind and the next one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _HELD = "staged-", ".held"


@contextmanager
def folder_aside(place: Path) -> Iterator[Path]:
    """A new folder in `place`, gone at the end; folders there that no living process holds are removed first."""
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in place.glob(f"{_PREFIX}*"):
            _remove_if_dead(folder)
        mine = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        held = os.open(mine / _HELD, os.O_CREAT | os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        os.close(held)


def _remove_if_dead(folder: Path) -> None:
    """A folder is held by a lock on a file in it, which ends with the process, however that ended."""
    try:
        held = os.open(folder / _HELD, os.O_CREAT | os.O_RDWR)
    except OSError:  # its owner is removing it just now
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(held)
