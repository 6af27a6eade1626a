"""Which files make one export: a file, the files that a manifest names, or all bill files of a folder.

A manifest says what a whole delivery is, so a part that it names and that is missing or cut off is refused by name.
Of manifests of one export and period the newest counts. Read are those of AWS Data Exports and the legacy report
(``*Manifest.json``: ``dataFiles`` or ``reportKeys``) and of Azure cost exports (``manifest.json``: ``blobs``).
Manifests are untrusted: nothing outside the folder of the export is looked at, whatever they name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from mlcost_pipeline.errors import BillError

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T|\d{8}T?\d*")
_MOMENT = re.compile(r"\d{4}-?\d{2}-?\d{2}T\d{2}:?\d{2}:?\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Export:
    """Files of one delivery, and the manifest that names them, if there is one.

    `rows` are charges that the manifest says a file holds, `sized` the files whose size it says and that have it,
    `made_at` when the provider made the delivery, where that is said. `unlisted` are bill files beside it that no
    manifest names.
    """

    files: Sequence[Path]
    manifest: Path | None = None
    rows: Mapping[Path, int] = field(default_factory=dict)
    unlisted: Sequence[Path] = ()
    sized: frozenset[Path] = frozenset()
    made_at: datetime | None = None


@dataclass(frozen=True)
class _Part:
    name: str
    size: int | None = None
    rows: int | None = None


def find_exports(path: Path, suffixes: Sequence[str]) -> list[Export]:
    """The exports in a place, oldest manifest first.

    Raises:
        BillError: there is no bill there, or a part that a manifest names is missing or of another size.
    """
    if path.is_file() and path.name.lower().endswith("manifest.json"):
        made = _of_manifest(path, _folder_of(path), suffixes)
        return [replace(made, unlisted=_beside(made.files, path, suffixes))]
    if path.is_file():
        if not path.name.endswith(tuple(suffixes)):
            raise BillError(f"{path}: expected a file named *{', *'.join(suffixes)}")
        return [Export([path])]
    if not path.exists():
        raise BillError(f"{path}: is not there; name a billing export, a folder of its parts, or its manifest")
    manifests = sorted(file for file in path.rglob("*") if file.is_file() and _is_manifest(file))
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(tuple(suffixes)))
    if manifests:
        exports = [_of_manifest(file, path, suffixes) for file in _newest_of_each(manifests)]
        return [*exports[:-1], replace(exports[-1], unlisted=_unnamed(files, manifests, path))]
    if not files:
        raise BillError(f"{path}: holds no billing export (looked for *{', *'.join(suffixes)})")
    return [Export(files)]


def _beside(files: Sequence[Path], manifest: Path, suffixes: Sequence[str]) -> list[Path]:
    """Bill files in the folders of a manifest and of the files that it names, which no manifest there names."""
    folders = sorted({manifest.parent, *(file.parent for file in files)})
    there = [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file() and file not in files]
    manifests = [file for file in there if _is_manifest(file) and file != manifest]
    return _unnamed([file for file in there if file.name.endswith(tuple(suffixes))], manifests, manifest.parent)


def _unnamed(files: Sequence[Path], manifests: Sequence[Path], root: Path) -> list[Path]:
    """Those of the files that none of the manifests names, wherever a copy of the bucket may begin."""
    named: set[tuple[str, ...]] = set()
    for manifest in manifests:
        folders = [folder for folder in manifest.parents if folder.is_relative_to(root)]
        for part in _parts(_read(manifest), manifest):
            names = _names_of(part)
            named |= {(*folder.parts, *names[first:]) for folder in folders for first in range(len(names))}
    return [file for file in files if file.parts not in named]


def _is_manifest(file: Path) -> bool:
    return file.name.lower().endswith("manifest.json")


def _folder_of(manifest: Path) -> Path:
    """The folder of the export that a manifest lies in: AWS Data Exports keeps data and metadata beside each other."""
    above = [folder.parent for folder in manifest.parents if folder.name == "metadata"]
    return above[0] if above else manifest.parent


def _newest_of_each(manifests: Sequence[Path]) -> Iterator[Path]:
    """One manifest for each export and period, the newest; the others are earlier deliveries, or copies of it."""
    newest: dict[tuple[str, str], tuple[str, int, str, float, str, Path]] = {}
    for file in manifests:
        said = _read(file)
        key = _identity(said), _period(said, file)
        rank = (_submitted(said), -len(file.parts), _timed(file), file.stat().st_mtime, str(file))
        if key not in newest or newest[key][:5] < rank:
            newest[key] = (*rank, file)
    yield from (entry[5] for _, entry in sorted(newest.items()))


def _identity(said: Mapping[str, Any]) -> str:
    """Which export a manifest is of, where it says so."""
    config = said.get("exportConfig")
    named = [said.get("exportArn"), said.get("reportName")]
    named += [config.get("resourceId"), config.get("exportName")] if isinstance(config, Mapping) else []
    return next((str(name) for name in named if name), "")


def _period(said: Mapping[str, Any], file: Path) -> str:
    """What a manifest is about: its billing period where it says one, else the folder of a hive layout."""
    info, period = said.get("runInfo"), said.get("billingPeriod")
    if isinstance(period, Mapping) and period.get("start"):
        return str(period["start"])
    if isinstance(info, Mapping) and info.get("startDate"):
        return str(info["startDate"])
    names = [*file.parts, *(part for entry in _parts(said, file)[:1] for part in PurePosixPath(entry.name).parts)]
    named = [part for part in names if part.upper().startswith("BILLING_PERIOD=")]
    return named[-1].upper() if named else str(file.parent)


def _submitted(said: Mapping[str, Any]) -> str:
    info = said.get("runInfo")
    return str(info.get("submittedTime", "")) if isinstance(info, Mapping) else ""


def _timed(file: Path) -> str:
    """When an execution was delivered: Data Exports names its folder so. The legacy report keeps its newest manifest
    above those of the assemblies."""
    return file.parent.name if _TIME.match(file.parent.name) else ""


def _of_manifest(file: Path, root: Path, suffixes: Sequence[str]) -> Export:
    said = _read(file)
    parts = _parts(said, file)
    if not parts:
        raise BillError(f"{file}: names no file of the export; is it the manifest of a bill, and whole?")
    count = said.get("blobCount")
    if isinstance(count, int) and count != len(parts):
        raise BillError(f"{file}: says it has {count} files and names {len(parts)}; nothing was taken over")
    for part in parts:
        if not part.name.endswith(tuple(suffixes)):
            raise BillError(f"{file}: names {part.name[:200]!r}, expected files named *{', *'.join(suffixes)}")
    files = [_found(part, file, root) for part in parts]
    told = {found: part.rows for found, part in zip(files, parts, strict=True) if part.rows is not None}
    sized = frozenset(found for found, part in zip(files, parts, strict=True) if part.size is not None)
    return Export(files, file, told, sized=sized, made_at=_made_at(said, file))


def _made_at(said: Mapping[str, Any], file: Path) -> datetime | None:
    """When the provider made a delivery, as its manifest says or the folder of its execution is named; UTC."""
    found = _MOMENT.match(_submitted(said)) or _MOMENT.match(_timed(file))
    try:
        made = datetime.fromisoformat(found.group()) if found is not None else None
    except ValueError:
        return None
    return None if made is None else made.replace(tzinfo=UTC) if made.tzinfo is None else made.astimezone(UTC)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise BillError(f"{file}: is no readable manifest ({error}); nothing was taken over") from error
    if not isinstance(said, dict):
        raise BillError(f"{file}: is no manifest of a bill: expected a JSON object; nothing was taken over")
    return said


def _parts(said: Mapping[str, Any], file: Path) -> list[_Part]:
    found: list[_Part] = []
    for key in ("dataFiles", "reportKeys", "blobs"):
        listed = said.get(key)
        if listed is None:
            continue
        if not isinstance(listed, list):
            raise BillError(f"{file}, {key}: expected a list of files; nothing was taken over")
        for entry in listed:
            name = entry if isinstance(entry, str) else _named(entry)
            if not name:
                raise BillError(f"{file}, {key}: expected names of files, found {str(entry)[:60]!r}")
            told = [entry.get(key) if isinstance(entry, Mapping) else None for key in ("byteCount", "dataRowCount")]
            size, rows = (number if isinstance(number, int) and number >= 0 else None for number in told)
            found.append(_Part(str(name), size, rows))
    return found


def _named(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return None
    return next((entry[key] for key in ("blobName", "key", "filePath", "name") if entry.get(key)), None)


def _found(part: _Part, manifest: Path, root: Path) -> Path:
    """Where a part lies: manifests name objects of a bucket, and a copy of the bucket may begin at any folder of it."""
    names = _names_of(part)
    if ".." in names or "\0" in part.name or max(map(len, names), default=0) > _LONGEST_NAME:
        raise BillError(f"{manifest}: names {part.name[:200]!r}, which is no file of an export; nothing was taken over")
    inside = root.resolve()
    folders = [folder for folder in manifest.parents if folder.resolve().is_relative_to(inside)]
    for folder in folders:
        for first in range(len(names)):
            file = folder.joinpath(*names[first:])
            if file.is_file() and file.resolve().is_relative_to(inside):
                return _whole(file, part, manifest)
    raise BillError(
        f"{manifest}: names {part.name[:200]}, which is not there; the delivery is not complete, so nothing was taken "
        "over and what was in force stays"
    )


def _names_of(part: _Part) -> tuple[str, ...]:
    names = PurePosixPath(part.name.partition("://")[2] or part.name).parts
    return tuple(name for name in names if name not in ("/", "."))


def _whole(file: Path, part: _Part, manifest: Path) -> Path:
    if part.size is not None and file.stat().st_size != part.size:
        raise BillError(
            f"{file}: has {file.stat().st_size} bytes, {manifest.name} says {part.size}; the part is not whole, so "
            "nothing was taken over and what was in force stays"
        )
    return file
