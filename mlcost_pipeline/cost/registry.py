"""The things that are billed, and what each can hold."""

from __future__ import annotations

from datetime import datetime

from mlcost_pipeline.warehouse import Warehouse


def register_resource(
    warehouse: Warehouse,
    resource_id: str,
    kind: str,
    capacity_milli: int,
    capacity_unit: str,
    valid_from: datetime,
    *,
    valid_to: datetime | None = None,
    parent: str | None = None,
) -> None:
    """Put a billed thing on record with its capacity (milli-GPU or milli-CPU); repeating it changes nothing."""
    row = {
        "resource_id": resource_id, "valid_from": valid_from, "valid_to": valid_to, "kind": kind,
        "capacity_milli": capacity_milli, "capacity_unit": capacity_unit, "parent": parent,
    }  # fmt: skip
    warehouse.append("resources", [row])
