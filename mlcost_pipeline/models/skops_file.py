"""skops archives with equal bytes for equal content: skops names members by memory address and stamps them with now."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

_SCHEMA = "schema.json"


def canonical(archive: bytes) -> bytes:
    """The same archive with addresses numbered in order of appearance and no times."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    numbers: dict[str, int] = {}
    schema = _renumber(json.loads(members.pop(_SCHEMA)), numbers)
    renamed = {_member(name, numbers): data for name, data in members.items()}
    renamed[_SCHEMA] = json.dumps(schema, sort_keys=True).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(renamed):
            target.writestr(zipfile.ZipInfo(name), renamed[name])
    return out.getvalue()


def _renumber(node: Any, numbers: dict[str, int]) -> Any:
    if isinstance(node, list):
        return [_renumber(inner, numbers) for inner in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key in sorted(node):
        value = node[key]
        if key == "__id__":
            value = numbers.setdefault(str(value), len(numbers))
        elif key == "file" and isinstance(value, str):
            value = _member(value, numbers)
        else:
            value = _renumber(value, numbers)
        out[key] = value
    return out


def _member(name: str, numbers: dict[str, int]) -> str:
    stem, dot, ending = name.partition(".")
    return f"{numbers.setdefault(stem, len(numbers))}{dot}{ending}"
