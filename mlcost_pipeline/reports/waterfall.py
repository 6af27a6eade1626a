"""The picture of a bridge: from one total to another, a bar a cause, each starting where the one before ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from mlcost_pipeline.reports.document import Picture, Table
from mlcost_pipeline.reports.svg import COLOURS, Scale, box, fitted, line, picture, text, tick_label, ticks
from mlcost_pipeline.reports.values import Cell, Quantity, show_number

_TOTAL, _MORE, _LESS = COLOURS[0], COLOURS[5], COLOURS[2]
_ROW, _BAR, _SIDE = 38.0, 14.0, 10.0
_WIDE = 420
_ZOOM = 2  # where the totals are this many times what moved, the axis begins below the lowest of them


@dataclass(frozen=True)
class Step:
    """A cause and what it added, or took away."""

    name: str
    amount: Decimal


def waterfall(
    title: str, before: tuple[str, Decimal], steps: Sequence[Step], after: tuple[str, Decimal], *, unit: str = ""
) -> Picture:
    """Lying bars from the first total to the last; the name above each bar, so that it is legible on a phone."""
    reached = [before[1]]
    for step in steps:
        reached.append(reached[-1] + step.amount)
    scale, cut = _axis([float(level) for level in (*reached, after[1])])
    heading = f"{title}, {unit}" if unit else title
    if cut is not None:
        heading += f", axis from {tick_label(cut)}"
    parts, y = [text(8, 18, fitted(heading, _WIDE - 16))], 32.0
    if cut is None:
        parts.append(line(scale(0.0), y, scale(0.0), y + _ROW * (len(steps) + 2), "a"))
    parts += _bar(before[0], (Decimal(0), before[1]), show_number(before[1], unit), _TOTAL, scale, y)
    for number, step in enumerate(steps):
        y += _ROW
        amount = ("+" if step.amount > 0 else "") + show_number(step.amount, unit)
        colour = _MORE if step.amount > 0 else _LESS
        parts += _bar(step.name, (reached[number], reached[number + 1]), amount, colour, scale, y)
    y += _ROW
    parts += _bar(after[0], (Decimal(0), after[1]), show_number(after[1], unit), _TOTAL, scale, y)
    rows: list[list[Cell]] = [[before[0], Quantity(before[1], unit), Quantity(before[1], unit)]]
    rows += [[step.name, Quantity(step.amount, unit), Quantity(reached[i + 1], unit)] for i, step in enumerate(steps)]
    rows.append([after[0], Quantity(after[1], unit), Quantity(after[1], unit)])
    return Picture(
        title, picture(title, y + _ROW + 4, parts, width=_WIDE), Table(title, ["", "amount", "reached"], rows)
    )


def _axis(levels: Sequence[float]) -> tuple[Scale, float | None]:
    """The scale, and where it begins if not at nought: causes that are small beside the bill are to be seen."""
    low, high = min(levels), max(levels)
    cut = None
    if low > _ZOOM * (high - low) > 0:
        cut = ticks(low - (high - low) / 2, high)[0]
    start, end = (min(low, 0.0), max(high, 0.0)) if cut is None else (cut, high)
    return Scale(start, end if end > start else start + 1, _SIDE, _WIDE - _SIDE), cut


def _bar(name: str, ends: tuple[Decimal, Decimal], amount: str, colour: str, scale: Scale, y: float) -> list[str]:
    left, right = sorted(max(_SIDE, scale(float(end))) for end in ends)
    room = _WIDE - 2 * _SIDE - 7 * len(amount) - 10
    return [
        text(_SIDE + 5, y + 14, fitted(name, room - 5)),
        text(_WIDE - _SIDE, y + 14, amount, anchor="end"),
        box(left, y + 19, max(right - left, 1.0), _BAR, colour, f"{name}: {amount}"),
    ]
