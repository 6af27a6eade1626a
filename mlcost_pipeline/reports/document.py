"""The one document model of all reports: a sentence, numbers, tables, pictures, links, ids, marks.

A report is data first; terminal, metadata and HTML only show it. Nothing here renders anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mlcost_pipeline.reports.values import Cell, Numeric, show_number

SIMULATED = "SIMULATED"
ESTIMATE = "ESTIMATE"
PROVISIONAL = "PROVISIONAL"
PROXY = "PROXY"

#: What each mark says to a reader.
MEANING = {
    SIMULATED: "everything so marked comes from a simulated shop; no figure is about a real business",
    ESTIMATE: "priced by the price book, not by a bill",
    PROVISIONAL: "the bill or the labels of this period are not final",
    PROXY: "hits on held-out days, not clicks added; the two are never compared",
}

_KEY = re.compile(r"^[a-z][a-z0-9_]*$")


@dataclass(frozen=True)
class Number:
    """A figure with a stable key, so that it can be plotted over time; None is unknown, never zero.

    ``bound`` says in words what the figure was held against; ``unit`` is as in ``values.Quantity``.
    """

    key: str
    label: str
    value: Numeric | None
    unit: str = ""
    bound: str | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if not _KEY.match(self.key):
            raise ValueError(f"a number's key is lower case letters, digits and _, found {self.key!r}")

    def __str__(self) -> str:
        return show_number(self.value, self.unit, exact=self.exact)


@dataclass(frozen=True)
class Table:
    """Rows under column titles; ``empty`` says why there are none."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str = "no rows"

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r}, row {number}: {len(row)} cells under {len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Picture:
    """A figure as SVG text, and the very same figures as a table."""

    title: str
    svg: str
    table: Table


@dataclass(frozen=True)
class Document:
    """One report. ``summary`` is one sentence with the verdict, the number and the bound it was held against."""

    title: str
    summary: str
    numbers: Sequence[Number] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, str | None] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.summary.strip() or "\n" in self.summary:
            raise ValueError(f"report {self.title!r}: the summary is one sentence on one line")
        keys = [number.key for number in self.numbers]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"report {self.title!r}: the same key twice: {', '.join(twice)}")

    @property
    def marked_summary(self) -> str:
        """The summary led by its marks, for places that have no banner."""
        return "".join(f"[{mark}] " for mark in self.marks) + self.summary

    def linked(self, **links: str) -> Document:
        """The same document with links added, for example to the full report."""
        return replace(self, links={**self.links, **links})

    def marked(self, *marks: str) -> Document:
        """The same document with marks added, each once."""
        return replace(self, marks=tuple(dict.fromkeys((*marks, *self.marks))))
