"""Whether a model may act: the one place that knows mode and freeze, asked before every launch and every promotion."""

from __future__ import annotations

from typing import Any

from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def frozen(warehouse: Warehouse, model: str) -> dict[str, Any] | None:
    """Who froze this model (or all of them) and why, or None."""
    stored = warehouse.state.get("freeze")
    if stored is None:
        return None
    found: dict[str, Any] | None = stored.value["all"] or stored.value["models"].get(model)
    return found


def why_not_act(warehouse: Warehouse, settings: Settings, model: str) -> str | None:
    """None if the model may launch, promote and reject; otherwise the reason in words."""
    if settings.model(model).mode != "act":
        return f"mode is observe (models.{model}.mode: act lets it)"
    stopped = frozen(warehouse, model)
    if stopped is not None:
        return f"frozen by {stopped['who']}: {stopped['reason']} (mlcost unfreeze lifts it)"
    return None
