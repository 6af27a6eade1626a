"""A document as plain values for the metadata of a materialisation: what a tired person reads in a UI.

The order is fixed: summary, numbers, one table, one picture, the link to the full report, the ids.
Knows no orchestrator; whoever displays wraps each ``Plain`` in its own type.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from mlcost_pipeline.reports.document import Document, Number, Picture, Table
from mlcost_pipeline.reports.values import is_number, show

Kind = Literal["text", "md", "int", "float", "url", "path", "json"]

LIMIT_BYTES = 64 * 1024
MAX_NUMBERS = 6
MAX_ROWS = 20
_MAX_CELL = 200
_MAX_TEXT = 2000
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


@dataclass(frozen=True)
class Plain:
    """A value and how it is meant to be shown."""

    kind: Kind
    value: Any


def as_metadata(doc: Document) -> dict[str, Plain]:
    """The document as an ordered dict of at most 64 KB; the picture is left out first, then rows of the table.

    Raises:
        ValueError: it is still too large, or an id has the name of another key.
    """
    for rows, pictured in ((MAX_ROWS, True), (MAX_ROWS, False), (MAX_ROWS // 4, False)):
        made = _assemble(doc, rows, pictured)
        if size_bytes(made) <= LIMIT_BYTES:
            return made
    raise ValueError(f"report {doc.title!r}: {size_bytes(made)} bytes of metadata, allowed are {LIMIT_BYTES}")


def size_bytes(metadata: Mapping[str, Plain]) -> int:
    """Bytes of the values as JSON, keys included."""
    plain = {key: [entry.kind, entry.value] for key, entry in metadata.items()}
    return len(json.dumps(plain, ensure_ascii=False, default=str).encode())


def _assemble(doc: Document, rows: int, pictured: bool) -> dict[str, Plain]:
    made: dict[str, Plain] = {"summary": Plain("text", _short(doc.marked_summary, _MAX_TEXT))}
    for number in doc.numbers[:MAX_NUMBERS]:
        _put(made, number.key, _number(number))
    if doc.tables:
        _put(made, "table", Plain("md", table_markdown(doc.tables[0], rows)))
    if doc.pictures:
        _put(made, "picture", Plain("md", _picture(doc.pictures[0], pictured)))
    for name, target in doc.links.items():
        _put(made, name, Plain("url" if re.match(r"^(https?|file)://", target) else "path", target))
    for name, identity in doc.ids.items():
        if identity is not None:
            _put(made, name, Plain("text", _short(identity, _MAX_TEXT)))
    return made


def _put(made: dict[str, Plain], key: str, entry: Plain) -> None:
    if key in made:
        raise ValueError(f"metadata key {key!r} is used twice")
    made[key] = entry


def _number(number: Number) -> Plain:
    """A finite number keeps its type, so that a UI can plot it; unknown and infinite are words."""
    value = number.value
    if value is None or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        return Plain("text", str(number))
    if isinstance(value, int):
        return Plain("int", int(value)) if -(2**53) < value < 2**53 else Plain("text", str(value))
    return Plain("float", float(value))


def table_markdown(table: Table, limit: int = MAX_ROWS) -> str:
    """A Markdown table of at most ``limit`` rows; a line below says how many more there are."""
    lines = [f"**{markdown_text(table.title)}**", ""]
    if not table.rows:
        return "\n".join([*lines, markdown_text(table.empty)])
    numeric = [any(is_number(row[i]) for row in table.rows) for i in range(len(table.columns))]
    lines.append("| " + " | ".join(markdown_text(column) for column in table.columns) + " |")
    lines.append("|" + "|".join(" ---: " if right else " --- " for right in numeric) + "|")
    for row in table.rows[:limit]:
        lines.append("| " + " | ".join(markdown_text(_short(show(cell), _MAX_CELL)) for cell in row) + " |")
    more = len(table.rows) - limit
    if more > 0:
        lines += ["", f"… and {more} more rows of {len(table.rows)}; all of them are in the full report."]
    return "\n".join(lines)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, one line."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _picture(picture: Picture, pictured: bool) -> str:
    title = markdown_text(picture.title)
    if not pictured:
        return f"{title}: the picture is too large for this place; it is in the full report."
    encoded = base64.b64encode(picture.svg.encode()).decode()
    return f"![{title}](data:image/svg+xml;base64,{encoded})"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
