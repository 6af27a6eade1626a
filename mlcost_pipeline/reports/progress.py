"""Progress bars in the terminal for everything that takes longer than a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

Report = Callable[[str, str | None, int, int], None]


@contextmanager
def run_progress(console: Console | None = None) -> Iterator[Report]:
    """Yield a function ``report(job, asset, done, total)`` that keeps one bar a job; finished bars stay as lines."""
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[asset]}"),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        bars: dict[str, TaskID] = {}

        def report(job: str, asset: str | None, done: int, total: int) -> None:
            if job not in bars or (done == 0 and asset is None):
                bars[job] = progress.add_task(job, total=total, asset="")
            progress.update(bars[job], completed=done, asset=(asset or "").replace("__", "/"))
            if asset is None and done == total and total > 0:
                progress.update(bars[job], asset="")
                progress.stop_task(bars[job])

        yield report
