"""The one small object a model that the sensors read: the newest decision, what was done with it, what is new since."""

from __future__ import annotations

from typing import Any

from mlcost_pipeline.warehouse import Warehouse


def summary_of(warehouse: Warehouse, model: str) -> dict[str, Any]:
    """The summary of a model, empty before its first decision."""
    stored = warehouse.state.get(f"summaries/{model}")
    return {} if stored is None else stored.value


def ask_again(warehouse: Warehouse, model: str, cause: str) -> None:
    """Note that a person did something the newest decision did not know of (an act or a review, by its id)."""

    def change(value: dict[str, Any] | None) -> dict[str, Any]:
        return {**(value or {"model": model}), "retake": cause}

    warehouse.state.update(f"summaries/{model}", change)
