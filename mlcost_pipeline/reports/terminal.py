"""Documents in the terminal, compact: the sentence, the numbers, one short table a document."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Table
from mlcost_pipeline.reports.values import Quantity, is_number, printable, show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

MAX_ROWS = 12
_MAX_CELL = 40
_LEAST = 24


_MODELS = re.compile(r"; (?=[a-z][a-z0-9_]*: )")


def print_document(
    doc: Document, console: Console | None = None, *, rows: int = MAX_ROWS, elsewhere: str = "in the report"
) -> None:
    """Print one document; text from data is never read as markup, nor does it steer the terminal.

    `elsewhere` says where the columns are that are too many for the terminal.
    """
    from rich.console import Console
    from rich.text import Text

    out = console or Console()
    title = [(_text(doc.title), "bold"), *((f" [{mark}]", "bold yellow") for mark in doc.marks)]
    out.print(Text.assemble(*title))
    out.print(Text(_text(doc.summary)))
    for number in doc.numbers:
        bound = f"  ({_text(number.bound)})" if number.bound else ""
        out.print(Text.assemble(f"  {_text(number.label)}: ", (_text(str(number)), "bold"), (bound, "dim")))
    for table in doc.tables:
        if table.rows:
            out.print(_table(table, rows, out.width, elsewhere))
            if len(table.rows) > rows:
                out.print(Text(f"  … and {len(table.rows) - rows} more rows of {len(table.rows)}", style="dim"))
        else:
            out.print(Text(f"  {_text(table.title)}: {_text(table.empty)}", style="dim"))
    for note in doc.notes:
        out.print(Text(_text(note), style="dim"))
    for name, target in (*doc.links.items(), *((k, v) for k, v in doc.ids.items() if v is not None)):
        out.print(Text(f"  {_text(name)}: {_text(target)}", style="dim"), soft_wrap=True)


def as_text(doc: Document, *, width: int = 100, rows: int = MAX_ROWS) -> str:
    """The same without colours, for logs and tests."""
    from rich.console import Console

    out = io.StringIO()
    print_document(doc, Console(file=out, width=width, color_system=None, force_terminal=False), rows=rows)
    return out.getvalue()


def print_lines(lines: Sequence[str], console: Console | None = None) -> None:
    """Print lines as headings and sentences: of each what stands before the first colon is its heading.

    Where a sentence speaks of several models (``a: …; b: …``), each model begins a line.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    out = console or Console()
    for line in lines:
        head, _, rest = _text(line).partition(": ")
        out.print(Text(head, style="bold"))
        if " " in rest:
            for part in _MODELS.split(rest):
                out.print(Padding(Text(part), (0, 0, 0, 2)))
        elif rest:
            out.print(Text(f"  {rest}"), soft_wrap=True)  # a path stays in one piece


def _text(text: str) -> str:
    return printable(" ".join(text.split()))


def _table(table: Table, rows: int, width: int, elsewhere: str) -> RichTable:
    """The columns that fit, names on two lines if need be; what is left out stands `elsewhere`.

    The first column says what a row is about and the first amount how much of it there is; the rest is from the left.
    """
    from rich import box
    from rich.table import Table as Rich
    from rich.text import Text

    cells = [[_text(show(cell)) for cell in row] for row in table.rows[:rows]]
    columns = [_text(column) for column in table.columns]
    room = [min(_MAX_CELL, max(len(columns[i]), *(len(row[i]) for row in cells))) for i in range(len(columns))]
    over = sum(room) + 3 * (len(room) - 1) - width
    wrapped = 0 < over <= room[0] - _LEAST
    if wrapped:
        room[0] -= over  # a name on two lines costs less than a whole column
    shown = _fitting(table, room, width)
    left = len(columns) - len(shown)
    title = _text(table.title) + (f" ({left} more column{'s' if left > 1 else ''} {elsewhere})" if left else "")
    made = Rich(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i in shown:
        numeric = any(is_number(row[i]) for row in table.rows)
        made.add_column(
            Text(columns[i]),
            justify="right" if numeric else "left",
            max_width=room[i],
            overflow="fold" if wrapped and i == 0 else "ellipsis",
            no_wrap=not (wrapped and i == 0),
        )
    for row in cells:
        made.add_row(*(Text(row[i]) for i in shown))
    return made


def _fitting(table: Table, room: Sequence[int], width: int) -> list[int]:
    amount = next((i for i in range(1, len(room)) if any(isinstance(row[i], Quantity) for row in table.rows)), 0)
    chosen, used = [0], room[0]
    for i in sorted(range(1, len(room)), key=lambda i: i != amount):
        if used + 3 + room[i] > width:
            break
        chosen.append(i)
        used += 3 + room[i]
    return sorted(chosen)
