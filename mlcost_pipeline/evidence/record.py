"""One evidence record for a model and a day: faults, volume, drift and decay put together and kept.

Evidence is written once. Looking at the same data again, after being killed or by another daemon, gives the record
that is there.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evidence.decay import decay_of, measure_decay
from mlcost_pipeline.evidence.drift import drift_of, measure_drift
from mlcost_pipeline.evidence.faults import faults_of, find_faults
from mlcost_pipeline.evidence.look import DETECTOR_VERSION, POLICY_VERSION, Look, look_at
from mlcost_pipeline.evidence.values import Decay, Drift, EvidenceRecord, Fault, Faults, Volume, canonical
from mlcost_pipeline.evidence.volume import measure_volume, volume_of
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

__all__ = [
    "DETECTOR_VERSION",
    "POLICY_VERSION",
    "EvidenceRecord",
    "collect",
    "find_faults",
    "measure_decay",
    "measure_drift",
    "measure_volume",
    "stored_record",
]


def collect(warehouse: Warehouse, settings: Settings, clock: Clock, model: str, as_of: date) -> EvidenceRecord:
    """Measure what has not been measured yet, write the record, and put faulty rows into quarantine.

    `clock` is part of the frame that every step shares; evidence itself depends on the data alone.
    """
    look = look_at(warehouse, settings, model, as_of)
    stored = stored_record(warehouse, look.evidence_id)
    faults = faults_of(warehouse, look)
    if stored is None:
        record = EvidenceRecord(
            evidence_id=look.evidence_id,
            model=model,
            incumbent=_name(look),
            as_of=as_of.isoformat(),
            data_version=look.data_version,
            detector_version=DETECTOR_VERSION,
            policy_version=look.policy_version,
            faults=faults,
            volume=volume_of(warehouse, look),
            drift=drift_of(warehouse, look),
            decay=decay_of(warehouse, look),
        )
        warehouse.append("evidence", [_row(record, as_of)])
        stored = stored_record(warehouse, look.evidence_id) or record
    _quarantine(warehouse, look, faults)
    return stored


def stored_record(warehouse: Warehouse, evidence_id: str) -> EvidenceRecord | None:
    """A record as it was written (the rows it put into quarantine stand in their own table)."""
    rows = warehouse.rows("evidence", where="evidence_id = ?", params=[evidence_id])
    return _record(rows[0]) if rows else None


def _row(record: EvidenceRecord, as_of: date) -> dict[str, Any]:
    return {
        "evidence_id": record.evidence_id,
        "model": record.model,
        "incumbent": record.incumbent,
        "as_of": as_of,
        "data_version": record.data_version,
        "detector_version": record.detector_version,
        "values": canonical(record.values()),
        "faults": canonical([asdict(fault) for fault in record.faults.found]),
    }


def _record(row: dict[str, Any]) -> EvidenceRecord:
    values = json.loads(row["values"])
    drift = {name: value for name, value in values["drift"].items() if name != "material"}
    found = tuple(Fault(**fault) for fault in json.loads(row["faults"]))
    faults = Faults(found, (), tuple(values["noted"]), int(values["rows_looked_at"]))
    return EvidenceRecord(
        row["evidence_id"],
        row["model"],
        row["incumbent"],
        row["as_of"].isoformat(),
        row["data_version"],
        row["detector_version"],
        values["policy_version"],
        faults,
        Volume.from_dict(values["volume"]),
        Drift.from_dict(drift),
        Decay.from_dict(values["decay"]),
    )


def _quarantine(warehouse: Warehouse, look: Look, faults: Faults) -> None:
    """After the record, so that features rebuilt without these rows are known to be its consequence."""
    rows = [
        {**asdict(row), "evidence_id": look.evidence_id, "from": look.cuts.data_cut, "until": None}
        for row in faults.quarantine
    ]
    if rows:
        warehouse.append("quarantine", rows)


def _name(look: Look) -> str | None:
    return None if look.incumbent is None else look.incumbent.version
