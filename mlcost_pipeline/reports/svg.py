"""The small part of SVG that the pictures need: a frame, axes, ticks, a legend, escaped text.

Written by hand because the files stay at a few KB, are equal byte for byte on every machine, and change
colours with the reader's dark mode by themselves, inline as well as inside an <img>.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlcost_pipeline.reports.values import printable

WIDTH = 520
_LETTER = 7.3  # a letter's width at 13 px, on the safe side
#: Okabe and Ito's colours, told apart by colour-blind readers, legible on light and dark grounds.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A100")

_STYLE = (
    ".mlp{background:#fff;font:13px system-ui,-apple-system,'Segoe UI',sans-serif}"
    ".mlp text{fill:#30343b}.mlp .q{fill:#616873}.mlp .g{stroke:#dfe2e7;stroke-width:1}"
    ".mlp .a{stroke:#858c97;stroke-width:1}.mlp .b{fill:#fff}"
    "@media screen and (prefers-color-scheme:dark){.mlp{background:#1b1e24}.mlp text{fill:#e4e6ea}"
    ".mlp .q{fill:#a6adb8}.mlp .g{stroke:#343943}.mlp .b{fill:#1b1e24}}"
)


@dataclass(frozen=True)
class Scale:
    """A straight map from data to picture units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        share = 0.0 if span == 0 else (value - self.low) / span
        return self.start + share * (self.end - self.start)


def coordinate(value: float) -> str:
    """A coordinate with one decimal: as fine as a reader sees, and short."""
    text = f"{value:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def escape(text: str) -> str:
    """Text that is safe inside elements and attributes; characters that XML forbids are shown as U+FFFD."""
    kept = printable(text)
    return (
        kept.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#39;")
    )


def picture(title: str, height: float, parts: Sequence[str], *, width: int = WIDTH) -> str:
    """A whole picture on a ground of its own, with its title for those who cannot see it.

    One that is narrower than usual stays so on a wide screen, and is legible on a phone without scrolling.
    """
    size = f"0 0 {width} {coordinate(height)}"
    narrow = f' data-narrow="" style="max-width:{width * 5 // 4}px"' if width < WIDTH else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mlp" viewBox="{size}"{narrow} role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f'<rect class="b" width="{width}" height="{coordinate(height)}"/>' + "".join(parts) + "</svg>"
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", quiet: bool = False) -> str:
    """One line of text at its baseline."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    tone = ' class="q"' if quiet else ""
    return f'<text x="{coordinate(x)}" y="{coordinate(y)}"{where}{tone}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "g") -> str:
    """A grid line (``g``) or an axis (``a``)."""
    points = f'x1="{coordinate(x1)}" y1="{coordinate(y1)}" x2="{coordinate(x2)}" y2="{coordinate(y2)}"'
    return f'<line class="{kind}" {points}/>'


def box(x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> str:
    """A filled rectangle; ``hint`` is shown when the pointer rests on it."""
    shape = f'x="{coordinate(x)}" y="{coordinate(y)}" width="{coordinate(width)}" height="{coordinate(height)}"'
    if not hint:
        return f'<rect {shape} fill="{colour}"/>'
    return f'<rect {shape} fill="{colour}"><title>{escape(hint)}</title></rect>'


def fitted(content: str, width: float) -> str:
    """Text cut to about ``width`` units at 13 px, so that labels never run into each other."""
    room = max(1, int(width / _LETTER))
    return content if len(content) <= room else content[: room - 1] + "…"


def legend(entries: Sequence[tuple[str, str]], y: float, left: float = 8) -> tuple[list[str], float]:
    """Coloured squares with names, wrapped into lines; returns the parts and the y below them."""
    parts: list[str] = []
    x = left
    for name, colour in entries:
        shown = fitted(name, 200)
        width = 26 + _LETTER * len(shown)
        if x + width > WIDTH - 4 and x > left:
            x, y = left, y + 19
        parts += [box(x, y, 11, 11, colour), text(x + 16, y + 10, shown)]
        x += width + 8
    return parts, y + 19


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers that cover the range: steps of 1, 2 or 5 times a power of ten."""
    if not math.isfinite(low) or not math.isfinite(high) or high <= low:
        return [low] if math.isfinite(low) else [0.0]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def tick_label(value: float) -> str:
    """A tick's value, short: 1.5k, 2M, 0.05."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if name == 'k' else size):g}{name}"
    return f"{value:.6g}"
