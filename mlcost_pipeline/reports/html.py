"""Documents as one HTML file that opens offline, prints, fits a phone and follows dark mode. No scripts."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from mlcost_pipeline.reports.document import MEANING, Document, Number, Picture, Table
from mlcost_pipeline.reports.style import CSS
from mlcost_pipeline.reports.svg import escape
from mlcost_pipeline.reports.values import Cell, is_number, show
from mlcost_pipeline.state import sync_folder

MAX_ROWS = 500
_OPEN_ROWS = 20
_WIDE = 6  # columns above which paper needs smaller print


def as_html(docs: Sequence[Document], title: str, *, note: str | None = None) -> str:
    """The whole file: a contents list, then one section a document. ``note`` is shown under the title."""
    anchors = _anchors(docs)
    marks = tuple(dict.fromkeys(mark for doc in docs for mark in doc.marks))
    contents = "".join(
        f'<li><a href="#{anchor}">{escape(doc.title)}</a></li>' for doc, anchor in zip(docs, anchors, strict=True)
    )
    sections = "".join(_section(doc, anchor) for doc, anchor in zip(docs, anchors, strict=True))
    lead = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body>"
        f"<header><h1>{escape(title)}</h1>{_banner(marks, whole=True)}{lead}</header>"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>{sections}</main></body></html>\n'
    )


def write_html(path: Path, docs: Sequence[Document], title: str, *, note: str | None = None) -> Path:
    """Write the file aside, then rename: a reader sees the old report or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(as_html(docs, title, note=note))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return path


def _anchors(docs: Sequence[Document]) -> list[str]:
    anchors: list[str] = []
    for doc in docs:
        base = re.sub(r"[^a-z0-9]+", "-", doc.title.lower()).strip("-") or "section"
        anchor, count = base, 2
        while anchor in anchors:
            anchor, count = f"{base}-{count}", count + 1
        anchors.append(anchor)
    return anchors


def _section(doc: Document, anchor: str) -> str:
    parts = [f'<section id="{anchor}"><h2>{escape(doc.title)}</h2>', _banner(doc.marks)]
    parts.append(f'<p class="summary">{escape(doc.summary)}</p>')
    if doc.numbers:
        parts.append('<dl class="numbers">' + "".join(_number(number) for number in doc.numbers) + "</dl>")
    parts += [f'<p class="note">{escape(note)}</p>' for note in doc.notes]
    parts += [_picture(picture) for picture in doc.pictures]
    parts += [_table(table) for table in doc.tables]
    parts.append(_links_and_ids(doc))
    return "".join(parts) + "</section>\n"


def _banner(marks: Sequence[str], *, whole: bool = False) -> str:
    """The marks of a section; ``whole`` says what they mean, once, at the top of the file."""
    shown = [f"{mark}: {MEANING[mark]}" if whole and mark in MEANING else mark for mark in marks]
    return "".join(f'<p class="mark" role="note">{escape(text)}</p>' for text in shown)


def _number(number: Number) -> str:
    bound = f'<dd class="bound">{escape(number.bound)}</dd>' if number.bound else ""
    return f'<div><dt>{escape(number.label)}</dt><dd class="value">{escape(str(number))}</dd>{bound}</div>'


def _picture(picture: Picture) -> str:
    return (
        f"<figure>{picture.svg}<details><summary>The same figures as a table</summary>"
        f"{_rows(picture.table)}</details></figure>"
    )


def _table(table: Table) -> str:
    title = f"<h3>{escape(table.title)}</h3>"
    if len(table.rows) <= _OPEN_ROWS:
        return title + _rows(table)
    return f"{title}<details><summary>{len(table.rows)} rows</summary>{_rows(table)}</details>"


def _rows(table: Table) -> str:
    if not table.rows:
        return f'<p class="note">{escape(table.empty)}</p>'
    classes = [_column_class([row[i] for row in table.rows]) for i in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(table.columns, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(show(cell))}</td>" for cell, kind in zip(row, classes, strict=True))
        + "</tr>"
        for row in table.rows[:MAX_ROWS]
    )
    more = len(table.rows) - MAX_ROWS
    rest = f'<p class="note">… and {more} more rows of {len(table.rows)}.</p>' if more > 0 else ""
    caption = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
    wide = ' class="wide"' if len(table.columns) > _WIDE else ""
    return f"{caption}<table{wide}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}"


def _column_class(cells: Sequence[Cell]) -> str:
    """Numbers to the right, short words on one line, long text wide enough to read on a phone."""
    if any(is_number(cell) for cell in cells):
        return ' class="n"'
    if any(isinstance(cell, date) for cell in cells):
        return ' class="d"'
    longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
    return ' class="t"' if longest > 60 else ' class="d"' if longest <= 26 else ""


def _links_and_ids(doc: Document) -> str:
    entries = [f"{escape(name)}: {_anchor(target)}" for name, target in doc.links.items()]
    entries += [f"{escape(name)}: <code>{escape(value)}</code>" for name, value in doc.ids.items() if value is not None]
    return f'<p class="ids">{" · ".join(entries)}</p>' if entries else ""


def _anchor(target: str) -> str:
    """A link, if its scheme is one that only opens a page or a file."""
    try:
        scheme = urlsplit(target).scheme
    except ValueError:
        scheme = "broken"
    if scheme not in ("", "http", "https", "file"):
        return f"<code>{escape(target)}</code>"
    return f'<a href="{escape(target)}" rel="noreferrer">{escape(target)}</a>'
