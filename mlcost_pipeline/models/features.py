"""Features as a stage of its own: what a model may see as of a day, frozen under a hash of its content.

A features folder is written once and never changes; training, the gate and evidence all read the same one.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import Cuts, cuts
from mlcost_pipeline.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from mlcost_pipeline.warehouse import Warehouse

MANIFEST = "features.json"


@dataclass(frozen=True)
class FeatureSet:
    """A frozen features folder. ``rows``: events or transactions in it; ``positives``: known frauds (scoring only)."""

    model: str
    as_of: date
    cuts: Cuts
    data_version: str
    folder: Path
    rows: int
    positives: int | None
    training_rows: int
    dropped: Mapping[str, int]


def build_features(warehouse: Warehouse, settings: Settings, model: str, as_of: date) -> FeatureSet:
    """Make, or find again, the features of a model that knows the world up to the end of ``as_of`` (UTC).

    The same rows give the same ``data_version``, however they were ordered or cut into files. May be killed and
    called again at any point: the manifest is written last.

    Raises:
        ModelError: no rows in the window, or a feature that the settings forbid.
    """
    chosen = settings.model(model)
    moments = cuts(chosen, as_of)
    tables, dropped = _tables(warehouse, chosen, moments)
    data_version = _data_version(model, moments, tables)
    folder = warehouse.folder(model, "features", data_version)
    if not (folder / MANIFEST).exists():
        for name, table in tables.items():
            warehouse.write_file(folder / f"{name}.parquet", _parquet(table))
        manifest = _manifest(model, as_of, moments, data_version, tables, dropped)
        warehouse.write_file(folder / MANIFEST, json.dumps(manifest, sort_keys=True, indent=1).encode())
    return load_features(warehouse, model, data_version)


def load_features(warehouse: Warehouse, model: str, data_version: str) -> FeatureSet:
    """The features of a data version that was built before.

    Raises:
        ModelError: that version was never built whole.
    """
    folder = warehouse.folder(model, "features", data_version)
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: no whole features ({error}); build those of {model!r} again") from error
    moments = Cuts(*(datetime.fromisoformat(found[name]) for name in ("data_cut", "holdout_end", "training_cut")))
    return FeatureSet(
        model=model,
        as_of=date.fromisoformat(found["as_of"]),
        cuts=moments,
        data_version=data_version,
        folder=folder,
        rows=int(found["rows"]),
        positives=found["positives"],
        training_rows=int(found["training_rows"]),
        dropped=found["dropped"],
    )


def _tables(warehouse: Warehouse, model: ModelSettings, moments: Cuts) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """The tables of a features folder, and how many rows were left out, by reason."""
    if model.task == "recommendation":
        from mlcost_pipeline.models.recommendation_features import recommendation_tables

        return recommendation_tables(warehouse, model, moments)
    from mlcost_pipeline.models.scoring_features import scoring_tables

    return scoring_tables(warehouse, model, moments)


def _manifest(
    model: str,
    as_of: date,
    moments: Cuts,
    data_version: str,
    tables: Mapping[str, pa.Table],
    dropped: Mapping[str, int],
) -> dict[str, Any]:
    main = tables["events"] if "events" in tables else tables["rows"]
    early = pc.less(main["happened_at"], pa.scalar(moments.training_cut, main["happened_at"].type))
    scoring = "is_fraud" in main.column_names
    training = pc.and_(early, pc.is_valid(main["is_fraud"])) if scoring else early
    return {
        "model": model,
        "as_of": as_of.isoformat(),
        "data_cut": moments.data_cut.isoformat(),
        "holdout_end": moments.holdout_end.isoformat(),
        "training_cut": moments.training_cut.isoformat(),
        "data_version": data_version,
        "rows": main.num_rows,
        "training_rows": int(pc.sum(training).as_py() or 0),
        "positives": int(pc.sum(main["is_fraud"]).as_py() or 0) if scoring else None,
        "dropped": dict(dropped),
        "tables": {name: {"rows": table.num_rows, "columns": table.column_names} for name, table in tables.items()},
    }


def _data_version(model: str, moments: Cuts, tables: Mapping[str, pa.Table]) -> str:
    """Hash of names, cuts and values: independent of file layout, chunks and the version of Arrow."""
    sink = hashlib.sha256()
    head = [model, moments.data_cut.isoformat(), moments.holdout_end.isoformat(), moments.training_cut.isoformat()]
    sink.update(json.dumps(head).encode())
    for name in sorted(tables):
        for column in tables[name].column_names:
            sink.update(json.dumps([name, column, tables[name].num_rows]).encode())
            _feed(sink, tables[name][column])
    return sink.hexdigest()[:16]


def _feed(sink: Any, column: pa.ChunkedArray) -> None:
    """Values and gaps of one column, in row order."""
    sink.update(np.packbits(column.is_null().to_numpy().astype(bool)).tobytes())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        filled = pc.fill_null(column, "")
        sink.update(pc.binary_length(filled).to_numpy().astype("<i8").tobytes())
        sink.update("".join(filled.to_pylist()).encode())
        return
    if pa.types.is_timestamp(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    values = pc.fill_null(column, 0).to_numpy()
    sink.update(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).tobytes())


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()
