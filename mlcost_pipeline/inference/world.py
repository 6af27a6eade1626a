"""What a lookup holds in memory: the version in force and what happened after its data cut.

A snapshot is never changed, only replaced, so one request sees one world however long it takes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from mlcost_pipeline.errors import PublicationError, WarehouseError
from mlcost_pipeline.inference import pointer
from mlcost_pipeline.inference.popular import popular_items, withdrawn_items
from mlcost_pipeline.inference.store import Store, store_folder
from mlcost_pipeline.notify import notify
from mlcost_pipeline.settings import ModelSettings, Settings
from mlcost_pipeline.warehouse import Warehouse

_SINCE = """
    SELECT user_id, item_id, happened_at FROM interactions
    WHERE user_id IS NOT NULL AND happened_at >= ? AND list_contains(?, kind) ORDER BY happened_at
"""

_WITHDRAWALS = """
    SELECT item_id, max(coalesce(valid_to, 'infinity'::TIMESTAMPTZ)) AS ended FROM items
    WHERE valid_from <= ? GROUP BY item_id HAVING isfinite(ended)
"""


@dataclass(frozen=True)
class World:
    """A store and what came after it.

    Attributes:
        store: the version in force, or None if there is none that can be read.
        fault: why the version in force cannot be used (``no_version``, ``store_unusable``), None if it can.
        popular, static: orders that belong to nobody, from the store or, without one, from the warehouse.
        events: what each user did at or after the cut: (time, item).
        withdrawn_at: when an item's newest validity ends.
    """

    store: Store | None
    fault: str | None
    popular: list[str]
    static: list[str]
    data_cut: datetime | None
    events: dict[str, list[tuple[datetime, str]]]
    withdrawn_at: dict[str, datetime]
    model_current: bool
    live_version: str | None
    loaded_at: float = field(default_factory=time.monotonic)

    def items_since(self, user_id: str, at: datetime) -> frozenset[str]:
        """What the user did after the data cut and until `at`."""
        return frozenset(item for happened, item in self.events.get(user_id, ()) if happened <= at)

    @cached_property
    def _withdrawals(self) -> tuple[datetime | None, frozenset[str]]:
        return max(self.withdrawn_at.values(), default=None), frozenset(self.withdrawn_at)

    def withdrawn(self, at: datetime) -> frozenset[str]:
        """Items that are withdrawn at `at`."""
        last, everything = self._withdrawals
        if last is None or last <= at:
            return everything
        return frozenset(item for item, ended in self.withdrawn_at.items() if ended <= at)


def load_world(warehouse: Warehouse, settings: Settings, model: str, at: datetime, held: World | None) -> World:
    """Read the world as it is now; a store that cannot be used is replaced by what there is, and a person told once."""
    ours = settings.model(model)
    now = pointer.live(warehouse, model)
    store: Store | None = None
    fault: str | None = "no_version"
    if now is not None:
        if held is not None and held.store is not None and held.store.version == now.version:
            store, fault = held.store, None
        else:
            store, fault = _open(warehouse, settings, model, now.version)
    if store is None:
        return _without_store(warehouse, ours, model, at, fault, held, None if now is None else now.version)
    return World(
        store=store,
        fault=None,
        popular=store.orders["popular"],
        static=store.orders["static"],
        data_cut=store.data_cut,
        events=_events(warehouse, ours, store.data_cut),
        withdrawn_at=_withdrawals(warehouse, at),
        model_current=pointer.in_production(warehouse, model) == store.model_version,
        live_version=store.version,
    )


def distrust(warehouse: Warehouse, settings: Settings, model: str, world: World, at: datetime, why: str) -> World:
    """The world without its store, after the store failed in use."""
    assert world.store is not None
    _tell(warehouse, settings, model, world.store.version, why)
    return _without_store(warehouse, settings.model(model), model, at, "store_unusable", world, world.live_version)


def _open(warehouse: Warehouse, settings: Settings, model: str, version: str) -> tuple[Store | None, str | None]:
    try:
        return Store(store_folder(warehouse, model, version)), None
    except PublicationError as error:
        _tell(warehouse, settings, model, version, str(error))
        return None, "store_unusable"


def _tell(warehouse: Warehouse, settings: Settings, model: str, version: str, why: str) -> None:
    text = f"{model}: the lists of version {version} cannot be read, users are served popular items. {why}"
    notify(warehouse, settings, key=f"store/{model}/{version}", text=text)


def _without_store(
    warehouse: Warehouse,
    ours: ModelSettings,
    model: str,
    at: datetime,
    fault: str | None,
    held: World | None,
    live_version: str | None,
) -> World:
    if held is not None and held.store is not None and held.static:
        popular, static, cut = held.popular, held.static, held.data_cut
    else:
        withdrawn = withdrawn_items(warehouse, at)
        days, kinds = ours.serving.popular_days, ours.positive_kinds
        popular = popular_items(warehouse, kinds, before=at, days=days, withdrawn=withdrawn)
        static = popular_items(warehouse, kinds, before=at, days=None, withdrawn=withdrawn)
        cut = at
    return World(
        store=None,
        fault=fault,
        popular=popular,
        static=static,
        data_cut=cut,
        events=_events(warehouse, ours, at - timedelta(days=ours.windows.training_days)),
        withdrawn_at=_withdrawals(warehouse, at),
        model_current=False,
        live_version=live_version,
    )


def _events(warehouse: Warehouse, ours: ModelSettings, since: datetime) -> dict[str, list[tuple[datetime, str]]]:
    found = warehouse.query(_SINCE, [since, list(ours.positive_kinds)], tables=["interactions"])
    events: dict[str, list[tuple[datetime, str]]] = {}
    columns = (found.column(name).to_pylist() for name in ("user_id", "item_id", "happened_at"))
    for user, item, happened in zip(*columns, strict=True):
        events.setdefault(user, []).append((happened, item))
    return events


def _withdrawals(warehouse: Warehouse, at: datetime) -> dict[str, datetime]:
    found = warehouse.query(_WITHDRAWALS, [at], tables=["items"])
    return dict(zip(found.column("item_id").to_pylist(), found.column("ended").to_pylist(), strict=True))


def pointer_moved(warehouse: Warehouse, model: str, world: World) -> bool:
    """Whether another version is live than the one that the world was loaded for, or the model's status changed."""
    try:
        now = pointer.live(warehouse, model)
    except WarehouseError:  # a damaged pointer keeps what is held in service
        return False
    if (None if now is None else now.version) != world.live_version:
        return True
    return world.store is not None and world.model_current != (
        pointer.in_production(warehouse, model) == world.store.model_version
    )
