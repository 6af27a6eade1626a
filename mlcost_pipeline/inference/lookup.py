"""Recommendations for one user now: the precomputed list while it is fresh, else the next best thing.

Tiers: ``fresh`` → ``filtered`` → ``popular`` → ``static``. Whatever breaks, somebody who asks gets items: a store that
cannot be read is replaced by popular items, the reason says so, and a person is told once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.errors import MlcostError, PublicationError
from mlcost_pipeline.inference.answer import Answer, Choice, Since, choose_personal, choose_popular
from mlcost_pipeline.inference.arms import arm_of
from mlcost_pipeline.inference.lookup_log import LineLog, lookup_log
from mlcost_pipeline.inference.store import Entry
from mlcost_pipeline.inference.world import World, distrust, load_world, pointer_moved
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

log = logging.getLogger(__name__)


class Lookup:
    """Lookups of one model.

    Args:
        events_seconds: wall seconds for which the users' newest events are held before they are read again; None:
            until :meth:`refresh` (or a new version), which makes answers a function of their arguments.
        pointer_seconds: wall seconds between two looks at which version is live; 0: at every request.
        log: where lookups are noted; by default the warehouse's log, written before the answer returns.

    Example:
        >>> lookup = Lookup(warehouse, settings, "recommendations")       # doctest: +SKIP
        >>> lookup.recommend("007").items                                 # doctest: +SKIP
    """

    def __init__(
        self,
        warehouse: Warehouse,
        settings: Settings,
        model: str,
        *,
        events_seconds: float | None = None,
        pointer_seconds: float = 0.0,
        log: LineLog | None = None,
    ) -> None:
        self._warehouse, self._settings, self._model = warehouse, settings, model
        self._ours = settings.model(model)
        self.clock = model_clock(warehouse, settings, model)
        self._events_seconds, self._pointer_seconds = events_seconds, pointer_seconds
        self._lines = log or lookup_log(warehouse, model)
        self._loading = threading.Lock()
        self._world: World | None = None
        self._looked = 0.0

    def recommend(
        self, user_id: str | None, *, at: datetime | None = None, request_id: str | None = None, log: bool = True
    ) -> Answer:
        """Items for a user (None: anonymous) at a time, by default now on the model's clock."""
        started = time.perf_counter()
        at = (at or self.clock.now()).astimezone(UTC)
        request = request_id or uuid.uuid4().hex
        world = self._current(at)
        entry: Entry | None = None
        if user_id is not None and world.store is not None:
            try:
                entry = world.store.get(user_id)
            except PublicationError as error:
                world = self._without_store(world, at, str(error))
        arm = arm_of(self._model, request if user_id is None else user_id, self._ours.holdout_share)
        choice = self._choose(world, user_id, entry, arm == "holdout", at)
        age = None if world.data_cut is None else (at - world.data_cut).total_seconds()
        version = None if world.store is None else world.store.version
        answer = Answer(choice.items, choice.tier, choice.reason, version, world.data_cut, age, arm, request)
        if log:
            self._note(answer, user_id, at, time.perf_counter() - started)
        return answer

    def refresh(self) -> None:
        """Read the version in force and the newest events again."""
        with self._loading:
            self._load(self.clock.now())

    def describe(self) -> dict[str, Any]:
        """What answers come from now; `ready` if there is a version that can be read."""
        world = self._current(self.clock.now())
        store = world.store
        return {
            "ready": store is not None,
            "fault": world.fault,
            "version": None if store is None else store.version,
            "model_version": None if store is None else store.model_version,
            "data_cut": None if store is None else store.data_cut.isoformat(),
        }

    def close(self) -> None:
        """Write out what was noted."""
        self._lines.close()

    def _choose(self, world: World, user_id: str | None, entry: Entry | None, holdout: bool, at: datetime) -> Choice:
        serving, withdrawn = self._ours.serving, world.withdrawn(at)
        done = frozenset[str]() if user_id is None else world.items_since(user_id, at)
        reason = world.fault or ("anonymous" if user_id is None else "holdout" if holdout else None)
        if reason is None:
            assert world.data_cut is not None
            since = Since(done, withdrawn, world.model_current, at - world.data_cut)
            personal = choose_personal(entry, since, serving)
            if isinstance(personal, Choice):
                return personal
            reason = personal
        seen = entry.seen if entry is not None else frozenset[str]()
        return choose_popular(
            world.popular,
            world.static,
            seen=frozenset() if serving.recommend_seen else seen | done,
            withdrawn=withdrawn,
            length=serving.list_length,
            reason=reason,
        )

    def _current(self, at: datetime) -> World:
        """The world to answer from. While one thread reads a newer one, the others answer from the one they have."""
        world = self._world
        if world is None:
            with self._loading:
                return self._world or self._load(at)
        if not self._is_due(world, at) or not self._loading.acquire(blocking=False):
            return world
        try:
            return self._load(at)
        except (MlcostError, OSError) as error:  # what is held is better than nothing; the next request tries again
            log.warning("%s: answering from what is held, the warehouse cannot be read: %s", self._model, error)
            return world
        finally:
            self._loading.release()

    def _is_due(self, world: World, at: datetime) -> bool:
        now = time.monotonic()
        if self._events_seconds is not None and now - world.loaded_at >= self._events_seconds:
            return True
        if world.store is None and world.data_cut is not None and at - world.data_cut >= timedelta(days=1):
            return True
        if now - self._looked < self._pointer_seconds:
            return False
        self._looked = now
        return pointer_moved(self._warehouse, self._model, world)

    def _load(self, at: datetime) -> World:
        self._world = load_world(self._warehouse, self._settings, self._model, at, self._world)
        self._looked = time.monotonic()
        return self._world

    def _without_store(self, world: World, at: datetime, why: str) -> World:
        with self._loading:
            self._world = distrust(self._warehouse, self._settings, self._model, world, at, why)
            return self._world

    def _note(self, answer: Answer, user_id: str | None, at: datetime, latency: float) -> None:
        row = {
            "request_id": answer.request_id,
            "looked_up_at": at.isoformat(),
            "user_id": user_id,
            "arm": answer.arm,
            "tier": answer.tier,
            "reason": answer.reason,
            "version": answer.version,
            "items": answer.items,
            "age_seconds": answer.age_seconds,
            "latency_seconds": latency,
            "model": self._model,
        }
        try:
            self._lines.write(row)
        except OSError as error:  # whoever asked is answered all the same
            log.warning("%s: lookup %s waits to be noted: %s", self._model, answer.request_id, error)
