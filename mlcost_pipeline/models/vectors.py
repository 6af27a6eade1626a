"""The artefact files that recommenders share: item ids as JSON text, arrays as npz, both without pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import ModelError

FORMAT_VERSION = 1


def write_arrays(folder: Path, family: str, *, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``model.json`` (family, ids, parameters) and ``arrays.npz``; equal content gives equal bytes."""
    buffer = io.BytesIO()
    contiguous: dict[str, Any] = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    np.savez(buffer, **contiguous)
    (folder / "arrays.npz").write_bytes(buffer.getvalue())
    head = {"format_version": FORMAT_VERSION, "family": family, **meta}
    (folder / "model.json").write_text(json.dumps(head, sort_keys=True, ensure_ascii=False), encoding="utf-8")


def read_meta(folder: Path, family: str) -> dict[str, Any]:
    """``model.json`` of an artefact of this family.

    Raises:
        ModelError: no artefact there, a damaged one, or one of another family or format.
    """
    path = folder / "model.json"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable model artefact: {error}") from error
    if not isinstance(meta, dict) or meta.get("family") != family or meta.get("format_version") != FORMAT_VERSION:
        raise ModelError(f"{path}: expected family {family!r}, format {FORMAT_VERSION}; train the model again")
    return meta


def read_arrays(folder: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    """The named arrays of ``arrays.npz``, which is read without pickle."""
    path = folder / "arrays.npz"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return [stored[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: damaged model artefact: {error}") from error
