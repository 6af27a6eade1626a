"""The files of a trained model, checked against the sums its attempt wrote beside them.

An attempt writes ``artefact/`` and, last, ``result.json`` with the SHA-256 of each of its files. A file that is
missing, changed or too much means that this is not what was trained, and it is not loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.training.contract import describe_files, read_json


def verify(folder: Path) -> None:
    """Check an artefact against ``result.json`` of its attempt, which lies beside it.

    Raises:
        ModelError: there is no whole result, it names no files, or a file is missing, changed or too much.
    """
    expected, found = _expected(folder), describe_files(folder)
    if expected == found:
        return
    faults = {
        "missing": sorted(set(expected) - set(found)),
        "not of this attempt": sorted(set(found) - set(expected)),
        "changed": sorted(name for name in set(found) & set(expected) if found[name] != expected[name]),
    }
    told = "; ".join(f"{fault}: {', '.join(names)}" for fault, names in faults.items() if names)
    raise ModelError(f"{folder}: differs from what its attempt wrote ({told}); restore these files or train again")


def _expected(folder: Path) -> dict[str, Any]:
    file = folder.parent / "result.json"
    result = read_json(file)
    if result is None:
        raise ModelError(f"{file}: is missing or not whole, so the attempt never finished; nothing of it is used")
    files = result.get("artefact")
    if not isinstance(files, dict) or not files:
        raise ModelError(f"{file}: field artefact names no files with their SHA-256; train again")
    return files
