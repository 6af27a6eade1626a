"""How much new there is to learn from: rows, matured labels and positives since the incumbent's training cut."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.evidence.look import Look, look_at, part, reference_features
from mlcost_pipeline.evidence.values import Volume
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse


def measure_volume(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> Volume:
    """New rows, matured labels and positives as of a day; made once for each look and kept."""
    return volume_of(warehouse, look_at(warehouse, settings, model, as_of))


def volume_of(warehouse: Warehouse, look: Look) -> Volume:
    """As :func:`measure_volume`, for a look already taken."""
    return Volume.from_dict(part(warehouse, look, "volume", lambda: asdict(_measure(warehouse, look))))


def _measure(warehouse: Warehouse, look: Look) -> Volume:
    scoring = look.settings.task == "scoring"
    file, columns = ("rows.parquet", ["happened_at", "is_fraud"]) if scoring else ("events.parquet", ["happened_at"])
    rows = pq.read_table(look.features.folder / file, columns=columns)
    since = None if look.incumbent is None else look.incumbent.training_cut
    new = rows if since is None else _between(rows, since, look.cuts.data_cut)
    trained = _trained_rows(warehouse, look, file)
    usable = _between(rows, None, look.cuts.training_cut)
    if not scoring:
        return Volume(new.num_rows, new.num_rows, None, trained, usable.num_rows, None)
    matured = _labelled(_between(new, None, look.cuts.holdout_end))
    known = _labelled(usable)
    return Volume(new.num_rows, matured.num_rows, _positives(matured), trained, known.num_rows, _positives(known))


def _trained_rows(warehouse: Warehouse, look: Look, file: str) -> int:
    if look.incumbent is None:
        rows = pq.read_table(look.features.folder / file, columns=["happened_at"])
        return int(_between(rows, None, look.cuts.training_cut).num_rows)
    folder = reference_features(warehouse, look).folder
    rows = pq.read_table(folder / file, columns=["happened_at"])
    return int(_between(rows, None, look.incumbent.training_cut).num_rows)


def _between(rows: pa.Table, start: datetime | None, end: datetime) -> pa.Table:
    at = rows.column("happened_at")
    inside = pc.less(at, pa.scalar(end, at.type))
    if start is not None:
        inside = pc.and_(inside, pc.greater_equal(at, pa.scalar(start, at.type)))
    return rows.filter(inside)


def _labelled(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.is_valid(rows.column("is_fraud")))


def _positives(rows: pa.Table) -> int:
    return int(np.asarray(rows.column("is_fraud").to_numpy(), dtype=bool).sum()) if rows.num_rows else 0
