"""The pictures of the reports; each carries the table of the very figures it draws.

Equal input gives equal bytes: no clock, no random ids, no fonts measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from mlcost_pipeline.reports.document import Picture, Table
from mlcost_pipeline.reports.svg import (
    COLOURS,
    WIDTH,
    Scale,
    box,
    coordinate,
    escape,
    fitted,
    legend,
    line,
    picture,
    text,
    tick_label,
    ticks,
)
from mlcost_pipeline.reports.values import SHARE, Numeric, Quantity, show_number

_LEFT, _RIGHT, _TOP = 58.0, WIDTH - 14.0, 30.0
_MAX_POINTS = 240

#: Colours of what happens in a job's life, the same in every picture.
KINDS = {"spot": COLOURS[4], "on-demand": COLOURS[1], "waiting": COLOURS[6], "lost": COLOURS[5]}

#: Colours of what is drawn in several pictures: stages, the rungs of device time, and what has no model.
NAMED = {
    "training": COLOURS[0], "serving": COLOURS[1], "features": COLOURS[2], "evaluation": COLOURS[3],
    "no stage": COLOURS[7], "not attributed": COLOURS[6],
    "billed": COLOURS[6], "allocated": COLOURS[4], "active": COLOURS[0], "kept": COLOURS[2],
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """A stretch of time in a lane of a timeline; ``end`` None is still going on."""

    lane: str
    start: datetime
    end: datetime | None
    kind: str
    hint: str = ""


def lines_over_days(
    title: str,
    days: Sequence[date],
    series: Mapping[str, Sequence[float | None]],
    *,
    unit: str = "",
    bound: tuple[str, float] | None = None,
) -> Picture:
    """A line a series over days; gaps stay gaps; ``bound`` is drawn across. One value per day and series."""
    for name, values in series.items():
        if len(values) != len(days):
            raise ValueError(f"series {name!r}: {len(values)} values for {len(days)} days")
    table = Table(
        title,
        ["day", *series],
        [[day, *(Quantity(values[i], unit) for values in series.values())] for i, day in enumerate(days)],
        empty="no day was measured",
    )
    seen = [v for values in series.values() for v in values if v is not None and math.isfinite(v)]
    levels = [*seen, *([bound[1]] if bound else [])]
    height = 250.0
    heading = _heading(title, unit)
    parts, y_of, x_of, below = _frame(heading, min([0.0, *levels]), max(levels, default=1.0), days, height)
    for index, values in enumerate(series.values()):
        points = [(x_of(i), y_of(v)) for i, v in _thinned(values)]
        parts += _paths(values, points, COLOURS[index % len(COLOURS)], x_of, y_of)
    entries = [(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(series)]
    if bound:
        y = coordinate(y_of(bound[1]))
        parts.append(
            f'<path d="M{coordinate(_LEFT)} {y}H{coordinate(_RIGHT)}" stroke="{COLOURS[5]}" stroke-width="1.5" '
            'stroke-dasharray="5 4" fill="none"/>'
        )
        entries.append((f"{bound[0]} {show_number(bound[1], unit)}", COLOURS[5]))
    drawn, end = legend(entries, below)
    return Picture(title, picture(title, end + 2, [*parts, *drawn]), table)


def stacked_bars(
    title: str, labels: Sequence[str], stacks: Mapping[str, Sequence[Numeric]], *, unit: str = ""
) -> Picture:
    """A bar a label, a part a stack; parts below zero (credits) hang below the axis."""
    table = Table(
        title,
        ["", *stacks, "total"],
        [
            [
                label,
                *(Quantity(s[i], unit) for s in stacks.values()),
                Quantity(_total([s[i] for s in stacks.values()]), unit),
            ]
            for i, label in enumerate(labels)
        ],
        empty="nothing to stack",
    )
    ups = [sum(float(s[i]) for s in stacks.values() if s[i] > 0) for i in range(len(labels))]
    downs = [sum(float(s[i]) for s in stacks.values() if s[i] < 0) for i in range(len(labels))]
    parts, y_of, _, _ = _frame(_heading(title, unit), min([0.0, *downs]), max(ups, default=1.0) or 1.0, [], 240.0)
    slot, tones = (_RIGHT - _LEFT) / max(1, len(labels)), _tones(list(stacks))
    for i, label in enumerate(labels):
        x, up, down = _LEFT + slot * (i + 0.14), 0.0, 0.0
        for index, (name, values) in enumerate(stacks.items()):
            value = float(values[i])
            base = up if value >= 0 else down
            top, bottom = y_of(max(base, base + value)), y_of(min(base, base + value))
            hint = f"{label}, {name}: {show_number(values[i], unit)}"
            if value:
                width = min(slot * 0.72, 90)
                parts.append(box(x, top, width, bottom - top, tones[index], hint))
            up, down = (base + value, down) if value >= 0 else (up, base + value)
        if len(labels) <= 12 or i % math.ceil(len(labels) / 12) == 0:
            parts.append(
                text(x + min(slot * 0.72, 90) / 2, 232, fitted(label, max(slot, 40)), anchor="middle", quiet=True)
            )
    drawn, end = legend(list(zip(stacks, tones, strict=True)), 246)
    return Picture(title, picture(title, end + 2, [*parts, *drawn]), table)


def bars(title: str, entries: Sequence[tuple[str, Numeric]], *, unit: str = "", columns: tuple[str, str]) -> Picture:
    """A horizontal bar an entry, with its value written beside it."""
    table = Table(
        title, list(columns), [[name, Quantity(value, unit)] for name, value in entries], empty="nothing to draw"
    )
    top = max([float(value) for _, value in entries], default=0.0)
    scale = Scale(0.0, top or 1.0, 0.0, WIDTH - 170.0 - 110.0)
    parts = [text(8, 18, fitted(title, WIDTH - 16))]
    y, tones = 32.0, _tones([name.rpartition(" ")[2] for name, _ in entries])
    for index, (name, value) in enumerate(entries):
        width = scale(max(0.0, float(value)))
        parts.append(text(162, y + 14, fitted(name, 154), anchor="end"))
        parts.append(box(170, y, max(width, 1.0), 19, tones[index]))
        parts.append(text(176 + width, y + 14, show_number(value, unit)))
        y += 27
    return Picture(title, picture(title, y + 4, parts), table)


def timeline(title: str, spans: Sequence[Span], *, until: datetime, deadline: datetime | None = None) -> Picture:
    """A lane per attempt over hours since the first start; an open span is drawn up to ``until``."""
    lanes = list(dict.fromkeys(span.lane for span in spans))
    table = Table(
        title,
        ["lane", "what", "from (UTC)", "to (UTC)", "lasted", "note"],
        [[s.lane, s.kind, s.start, s.end or "still going on", _lasted(s), s.hint] for s in spans],
        empty="no attempt was made",
    )
    if not spans:
        return Picture(
            title, picture(title, 50, [text(8, 28, f"{fitted(title, 300)}: no attempt was made", quiet=True)]), table
        )
    origin = min(span.start for span in spans)
    ends = [span.end or until for span in spans]
    last = max([*ends, deadline] if deadline and deadline - origin < 4 * (max(ends) - origin) else ends)
    hours = max((last - origin) / timedelta(hours=1), 1e-6)
    scale = Scale(0.0, hours, 92.0, _RIGHT - 6)
    bottom = _TOP + 26 * len(lanes)
    parts = [text(8, 18, fitted(title, WIDTH - 16)), *_hours(hours, scale, bottom)]
    for row, lane in enumerate(lanes):
        y = _TOP + 26 * row
        parts.append(text(86, y + 17, fitted(lane, 80), anchor="end"))
        for span in (s for s in spans if s.lane == lane):
            start = (span.start - origin) / timedelta(hours=1)
            end = ((span.end or until) - origin) / timedelta(hours=1)
            hint = (
                f"{lane}, {span.kind}: {show_number(_lasted(span).value, 's')}{'; ' + span.hint if span.hint else ''}"
            )
            wide = max(1.5, scale(end) - scale(start))
            parts.append(box(scale(start), y + 4, wide, 18, KINDS.get(span.kind, COLOURS[2]), hint))
    shown = [(kind, KINDS.get(kind, COLOURS[2])) for kind in dict.fromkeys(s.kind for s in spans)]
    if deadline:
        at = (deadline - origin) / timedelta(hours=1)
        if at <= hours:
            x = coordinate(scale(at))
            mark = f'stroke="{COLOURS[5]}" stroke-width="2" fill="none"'
            parts.append(f'<path d="M{x} {coordinate(_TOP)}V{coordinate(bottom)}" {mark}/>')
        shown.append((f"deadline after {show_number(at * 3600, 's')}", COLOURS[5]))
    drawn, end_y = legend(shown, bottom + 28)
    return Picture(title, picture(title, end_y + 2, [*parts, *drawn]), table)


def _tones(names: Sequence[str]) -> list[str]:
    """A colour a name: its own if it has one, else the next that nobody has."""
    free = [colour for colour in COLOURS if colour not in {NAMED.get(name) for name in names}] or list(COLOURS)
    unnamed = [name for name in names if name not in NAMED]
    return [NAMED.get(name) or free[unnamed.index(name) % len(free)] for name in names]


def _heading(title: str, unit: str) -> str:
    return f"{title}, {unit}" if unit and unit != SHARE else title


def _hours(hours: float, scale: Scale, bottom: float) -> list[str]:
    parts = [line(scale.start, bottom, scale.end, bottom, "a")]
    unit, factor = ("min", 60.0) if hours < 2 else ("h", 1.0)
    for tick in ticks(0.0, hours * factor, 5):
        x = scale(tick / factor)
        if x <= scale.end + 1:
            parts += [
                line(x, _TOP, x, bottom),
                text(x, bottom + 16, f"{tick_label(tick)} {unit}", anchor="middle", quiet=True),
            ]
    return parts


def _frame(
    title: str, low: float, high: float, days: Sequence[date], height: float
) -> tuple[list[str], Scale, Scale, float]:
    """Title, grid, y axis and day labels; returns the parts, the two scales and the y below them."""
    bottom = height - 26
    levels = ticks(low, high if high > low else low + 1.0)
    y_of = Scale(levels[0], levels[-1], bottom, _TOP)
    x_of = Scale(0.0, max(1.0, len(days) - 1.0), _LEFT, _RIGHT - 6)
    parts = [text(8, 18, fitted(title, WIDTH - 16))]
    for level in levels:
        y = y_of(level)
        parts += [line(_LEFT, y, _RIGHT, y, "a" if level == 0 else "g")]
        parts += [text(_LEFT - 6, y + 4, tick_label(level), anchor="end", quiet=True)]
    count = min(5, len(days))
    for i in sorted({round(k * (len(days) - 1) / max(1, count - 1)) for k in range(count)}):
        anchor = "start" if i == 0 else "end" if i == len(days) - 1 else "middle"
        parts.append(text(x_of(i), bottom + 16, f"{days[i]:%d %b}", anchor=anchor, quiet=True))
    return parts, y_of, x_of, height


def _paths(
    values: Sequence[float | None], points: list[tuple[float, float]], colour: str, x_of: Scale, y_of: Scale
) -> list[str]:
    """One path a stretch without gaps; a lone point becomes a dot."""
    gaps = {coordinate(x_of(i)) for i, v in enumerate(values) if v is None or not math.isfinite(v)}
    stretches: list[list[tuple[float, float]]] = [[]]
    last_index = -1
    for i, v in _thinned(values):
        crossed = any(coordinate(x_of(k)) in gaps for k in range(last_index + 1, i))
        if crossed and stretches[-1]:
            stretches.append([])
        stretches[-1].append((x_of(i), y_of(v)))
        last_index = i
    parts = []
    for stretch in stretches:
        if len(stretch) == 1:
            x, y = stretch[0]
            parts.append(f'<circle cx="{coordinate(x)}" cy="{coordinate(y)}" r="2.5" fill="{escape(colour)}"/>')
        elif stretch:
            path = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in stretch)
            parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none" stroke-linejoin="round"/>')
    return parts


def _thinned(values: Sequence[float | None]) -> list[tuple[int, float]]:
    """The points to draw: all, or of each bucket the lowest and the highest, so that no peak is lost."""
    known = [(i, float(v)) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if len(known) <= _MAX_POINTS:
        return known
    size = math.ceil(len(known) / (_MAX_POINTS / 2))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(known), size):
        bucket = known[start : start + size]
        kept += sorted({min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])})
    return kept


def _lasted(span: Span) -> Quantity:
    return Quantity((span.end - span.start).total_seconds() if span.end else None, "s")


def _total(values: Sequence[Numeric]) -> Numeric:
    total: Numeric = 0
    for value in values:
        total = total + value  # type: ignore[operator]
    return total
