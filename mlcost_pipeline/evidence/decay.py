"""How much of its verified level the incumbent has lost, measured on matured labels only.

The anchor is the level that the gate verified on days held out of training, before promotion. It is never measured
again after a deploy: a model's first labelled week may already be bad, and would then hide the loss for ever.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

from mlcost_pipeline.errors import NothingCompared
from mlcost_pipeline.evaluation.versions import ModelVersion, load_predictor
from mlcost_pipeline.evidence.bounds import bounds
from mlcost_pipeline.evidence.caught import DayCount, rescored_days, said_days
from mlcost_pipeline.evidence.look import Look, look_at, part
from mlcost_pipeline.evidence.values import Decay, tidy
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

MIN_DAYS = 7
MIN_FRAUDS = 20
MIN_USERS = 50


@dataclass(frozen=True)
class Anchor:
    """The best verified level, and on how many units it was verified (None: not known, taken as exact)."""

    level: float
    units: int | None


def measure_decay(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> Decay:
    """Decay as of a day; made once for each look and kept."""
    return decay_of(warehouse, look_at(warehouse, settings, model, as_of))


def decay_of(warehouse: Warehouse, look: Look) -> Decay:
    """As :func:`measure_decay`, for a look already taken."""
    return Decay.from_dict(part(warehouse, look, "decay", lambda: asdict(_measure(warehouse, look))))


def anchor_of(version: ModelVersion) -> Anchor | None:
    """What the gate verified, before the version was promoted."""
    gate: dict[str, Any] = version.gate or {}
    level = gate.get("candidate_level")
    if level is None:
        return None
    units = gate.get("metrics", {}).get(gate.get("unit"))
    return Anchor(float(level), None if units is None else int(units))


def _measure(warehouse: Warehouse, look: Look) -> Decay:
    if look.incumbent is None:
        return Decay("unknown", "no incumbent")
    anchor = anchor_of(look.incumbent)
    if anchor is None:
        return Decay("unknown", f"the gate verified no level of {look.incumbent.version}, so there is no anchor")
    if look.settings.task == "scoring":
        return _scoring(warehouse, look, look.incumbent, anchor)
    return _recommendation(warehouse, look, look.incumbent, anchor)


def matured_window(look: Look, version: ModelVersion) -> tuple[datetime, datetime]:
    """[start, end) of the newest days whose labels have matured by age and that the model was not trained on."""
    end = look.cuts.holdout_end
    length = max(look.settings.windows.evidence_days, MIN_DAYS)
    return max(version.training_cut, end - timedelta(days=length)), end


def _scoring(warehouse: Warehouse, look: Look, version: ModelVersion, anchor: Anchor) -> Decay:
    """Recall at the alert capacity: what was said then, or, where too little was said, the incumbent asked again."""
    start, end = matured_window(look, version)
    measure = f"recall at {look.settings.alerts_per_day} alerts a day"
    if (end - start).days < MIN_DAYS:
        have = max(0, (end - start).days)
        return Decay("unknown", f"{have} matured days since the training cut, {MIN_DAYS} are needed", measure)
    days, reason = said_days(warehouse, look, version, start, end)
    source = "predictions"
    if len(days) < MIN_DAYS:
        days, again = rescored_days(warehouse, look, version, start, end)
        source, reason = "rescored", f"{reason}; asked again: {again}"
    frauds = sum(day.possible for day in days)
    if len(days) < MIN_DAYS:
        return Decay("unknown", f"{len(days)} usable days, {MIN_DAYS} are needed ({reason})", measure, source)
    if frauds < MIN_FRAUDS:
        reason = f"{frauds} frauds in {len(days)} matured days, {MIN_FRAUDS} are needed"
        return Decay("unknown", reason, measure, source)
    return _measured(look, anchor, days, measure, source, (start, end), float(len(days)), per_day=True)


def _recommendation(warehouse: Warehouse, look: Look, version: ModelVersion, anchor: Anchor) -> Decay:
    """Hit rate of the incumbent's lists on the newest days, asked exactly as the gate asked.

    A proxy: what users took anyway, not what the lists added. A user is one unit.
    """
    from mlcost_pipeline.evaluation.evaluate import hold_out  # brings pyarrow.dataset and pandas along

    try:
        held_out = hold_out(warehouse, look.settings, look.features, not_before=[version.training_cut])
        success = held_out.measure(load_predictor(warehouse, look.model, version.version)).success
    except NothingCompared as nothing:
        return Decay("unknown", f"nothing to compare: {nothing}", source="lists")
    length = (held_out.end - held_out.start).days
    measure = f"{held_out.metric.replace('_', ' ')} over {length} days (proxy)"
    if length < look.settings.windows.holdout_days:
        wanted = look.settings.windows.holdout_days
        return Decay("unknown", f"{length} days since the training cut, the anchor was verified on {wanted}", measure)
    if len(success) < MIN_USERS:
        return Decay("unknown", f"{len(success)} users with a new item, {MIN_USERS} are needed", measure, "lists")
    days = [DayCount("", int(hit), 1) for hit in success]
    return _measured(look, anchor, days, measure, "lists", (held_out.start, held_out.end), float(length), per_day=False)


def _measured(
    look: Look,
    anchor: Anchor,
    blocks: list[DayCount],
    measure: str,
    source: str,
    window: tuple[datetime, datetime],
    length: float,
    *,
    per_day: bool,
) -> Decay:
    had = np.array([block.had for block in blocks], dtype=np.float64)
    possible = np.array([block.possible for block in blocks], dtype=np.float64)
    level = float(had.sum() / possible.sum())
    confidence = look.settings.policy.decay_confidence
    low, high = bounds(had, possible, anchor.level, anchor.units, confidence)
    return Decay(
        state="measured",
        reason="",
        measure=measure,
        source=source,
        anchor=tidy(anchor.level),
        level=tidy(level),
        estimate=tidy(anchor.level - level),
        low=tidy(low),
        high=tidy(high),
        days=round(length),
        units=int(possible.sum()),
        units_per_day=tidy(possible.sum() / length),
        start=window[0].date().isoformat(),
        end=window[1].date().isoformat(),
        per_day=tuple((block.day, block.had, block.possible) for block in blocks) if per_day else (),
    )
