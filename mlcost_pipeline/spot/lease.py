"""The supervisor's lease on a job: one supervisor at a time, and a successor soon after one has died.

A lease is live until it expires, or until its owner is seen to be gone. The owner renews it from a thread; one that
slept too long finds its lease taken, and must then touch nothing more.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlcost_pipeline.cost.processes import ProcessIdentity, identify, is_alive
from mlcost_pipeline.warehouse import Warehouse

LEASE_SECONDS = 10.0
RENEW_SECONDS = 2.0


@dataclass(frozen=True)
class Lease:
    """A supervisor's lease as it stands; `launches` counts the supervisors that this job has had."""

    owner: ProcessIdentity
    launches: int
    live: bool


class HeldLease:
    """A lease in our hands."""

    def __init__(self, warehouse: Warehouse, path: str, nonce: str) -> None:
        self._state, self._path, self._nonce = warehouse.state, path, nonce
        self._stop, self._lost = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease {path}", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether another supervisor has taken over."""
        return self._lost.is_set()

    def start(self) -> None:
        self._thread.start()

    def release(self) -> None:
        """Give the lease up, so that a successor need not wait."""
        self._stop.set()
        self._thread.join()
        self._swap(seconds=0.0)

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            self._swap(seconds=LEASE_SECONDS)
            if self.lost:
                return

    def _swap(self, seconds: float) -> None:
        def change(value: dict[str, Any] | None) -> dict[str, Any]:
            now = value or {}
            return {**now, **_expiry(seconds)} if now.get("nonce") == self._nonce else now

        if self._state.update(self._path, change).value.get("nonce") != self._nonce:
            self._lost.set()


@contextmanager
def held(warehouse: Warehouse, job_id: str) -> Iterator[HeldLease | None]:
    """The lease of a job for the ``with`` block; None if a live supervisor holds it."""
    path, nonce = f"jobs/{job_id}/supervisor", uuid.uuid4().hex

    def take(value: dict[str, Any] | None) -> dict[str, Any]:
        if value is not None and _live(value):
            return value
        launches = int((value or {}).get("launches", 0)) + 1
        return {"owner": identify().as_json(), "nonce": nonce, "launches": launches, **_expiry(LEASE_SECONDS)}

    if warehouse.state.update(path, take).value["nonce"] != nonce:
        yield None
        return
    lease = HeldLease(warehouse, path, nonce)
    lease.start()
    try:
        yield lease
    finally:
        lease.release()


def supervisor_lease(warehouse: Warehouse, job_id: str) -> Lease | None:
    """The lease of a job's supervisor, live or expired; None if it never had one."""
    stored = warehouse.state.get(f"jobs/{job_id}/supervisor")
    if stored is None:
        return None
    value = stored.value
    return Lease(ProcessIdentity.from_json(value["owner"]), int(value["launches"]), _live(value))


def _expiry(seconds: float) -> dict[str, float]:
    """Until when, on the clock that all processes of this boot share, and on the wall for other machines."""
    return {"expires_monotonic": time.monotonic() + seconds, "expires_wall": time.time() + seconds}


def _live(value: Mapping[str, Any]) -> bool:
    alive = is_alive(ProcessIdentity.from_json(value["owner"]))
    if alive is None:
        return bool(time.time() < value["expires_wall"])
    return alive and bool(time.monotonic() < value["expires_monotonic"])
