"""How long the work of a thread has waited for data: whatever fetches data says so, and the training loop reads it.

Only the thread that trains counts: a reader that runs ahead in a thread of its own keeps nobody waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class _Waits(threading.local):
    seconds = 0.0
    depth = 0


_waits = _Waits()


@contextmanager
def waiting_for_data() -> Iterator[None]:
    """The block (or, as a decorator, the function) fetches data; one inside another counts once.

    >>> with waiting_for_data():
    ...     rows = list(range(3))
    """
    began = time.monotonic()
    _waits.depth += 1
    try:
        yield
    finally:
        _waits.depth -= 1
        if _waits.depth == 0:
            _waits.seconds += time.monotonic() - began


def waited_for(batches: Iterable[T]) -> Iterator[T]:
    """The same batches; the time until each one comes counts as waiting (for a loader that is iterated over)."""
    left = iter(batches)
    while True:
        with waiting_for_data():
            try:
                batch = next(left)
            except StopIteration:
                return
        yield batch


def waited_seconds() -> float:
    """Wall seconds that this thread has waited for data so far."""
    return _waits.seconds
