"""What was measured, as plain frozen values that go to JSON and back without loss.

A figure that cannot be had is ``None`` with a reason beside it; NaN and infinity never enter these values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Number = int | float | str


@dataclass(frozen=True)
class Fault:
    """Something wrong with the data: which column, how many rows, with what numbers, and what to do about it."""

    kind: str
    column: str
    rows: int
    numbers: dict[str, Number]
    sentence: str
    todo: str


@dataclass(frozen=True)
class Quarantined:
    """One row to keep out of training, and why."""

    table_name: str
    row_key: str
    reason: str


@dataclass(frozen=True)
class Faults:
    """All faults of one look at the data, and the rows to keep out of training because of them."""

    found: tuple[Fault, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    noted: tuple[str, ...] = ()
    rows: int = 0
    """Rows that were looked at."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Faults:
        return cls(
            tuple(Fault(**fault) for fault in value["found"]),
            tuple(Quarantined(**row) for row in value["quarantine"]),
            tuple(value["noted"]),
            int(value["rows"]),
        )


@dataclass(frozen=True)
class Volume:
    """Rows a retrain could learn from that the incumbent has not seen, and what there is in all."""

    new_rows: int
    """Rows since the incumbent's training cut."""
    new_labelled: int
    """... of which the label has matured (recommendation: every row is its own label)."""
    new_positives: int | None
    """... and is positive (scoring only)."""
    training_rows: int
    """Rows that the incumbent was trained on; without an incumbent, rows that one would be trained on."""
    usable_rows: int
    """Labelled rows that a training as of this day would see."""
    usable_positives: int | None

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Volume:
        return cls(**value)


@dataclass(frozen=True)
class WindowDrift:
    """One feature in one window against the reference."""

    start: str
    end: str
    rows: int
    psi: float | None
    null_bound: float | None
    """What PSI stays below without drift, at these two sample sizes."""
    over: bool
    missing_share: float = 0.0
    infinite_rows: int = 0
    unseen_share: float = 0.0
    outside_share: float = 0.0
    """Share outside the reference's 0.1 to 99.9 % range."""


@dataclass(frozen=True)
class FeatureDrift:
    """One feature: ``measured``, or why not (``no_data``, ``too_few``, ``excluded``)."""

    feature: str
    kind: str
    state: str
    reference_rows: int
    windows: tuple[WindowDrift, ...] = ()
    material: bool = False
    note: str = ""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> FeatureDrift:
        return cls(**{**value, "windows": tuple(WindowDrift(**window) for window in value["windows"])})


@dataclass(frozen=True)
class Drift:
    """All features against the incumbent's own training rows."""

    state: str
    """``measured`` or ``unknown``"""
    reason: str
    reference: str
    features: tuple[FeatureDrift, ...] = ()
    began: str | None = None
    """First day of the earliest window that a material feature is over in."""
    matured_days_since: int = 0
    """Days since then whose labels have matured."""
    differing_columns: tuple[str, ...] = ()

    @property
    def material(self) -> tuple[str, ...]:
        """Names of the features that drifted materially: the one place from which the count and the share come."""
        return tuple(feature.feature for feature in self.features if feature.material)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Drift:
        features = tuple(FeatureDrift.from_dict(feature) for feature in value["features"])
        return cls(**{**value, "features": features, "differing_columns": tuple(value["differing_columns"])})


@dataclass(frozen=True)
class Decay:
    """Anchor level minus level now, on matured labels; positive is worse. ``unknown`` has a reason and no numbers."""

    state: str
    reason: str
    measure: str = ""
    source: str = ""
    anchor: float | None = None
    level: float | None = None
    estimate: float | None = None
    low: float | None = None
    """One-sided lower bound at the policy's confidence."""
    high: float | None = None
    days: int = 0
    units: int = 0
    """Outcomes that could have been had in the window: frauds, or users with a new item."""
    units_per_day: float | None = None
    start: str | None = None
    end: str | None = None
    per_day: tuple[tuple[str, int, int], ...] = field(default=())
    """(day, had, possible)"""

    @property
    def known(self) -> bool:
        return self.state == "measured"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Decay:
        per_day = tuple((str(day), int(had), int(possible)) for day, had, possible in value["per_day"])
        return cls(**{**value, "per_day": per_day})


@dataclass(frozen=True)
class EvidenceRecord:
    """One piece of evidence: what was looked at and what was found."""

    evidence_id: str
    model: str
    incumbent: str | None
    as_of: str
    data_version: str
    detector_version: str
    policy_version: str
    faults: Faults
    volume: Volume
    drift: Drift
    decay: Decay

    def values(self) -> dict[str, Any]:
        """The ``values`` column: all measurements with their intervals."""
        return {
            "volume": asdict(self.volume),
            "drift": {**asdict(self.drift), "material": list(self.drift.material)},
            "decay": asdict(self.decay),
            "policy_version": self.policy_version,
            "rows_looked_at": self.faults.rows,
            "noted": list(self.faults.noted),
            "quarantined_rows": len(self.faults.quarantine),
        }


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, and no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def tidy(value: float) -> float:
    """A measured float with nine decimals, so that a record reads the same on every machine."""
    return round(float(value), 9)
