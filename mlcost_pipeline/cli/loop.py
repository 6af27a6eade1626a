"""Commands that run the loop: demo, tick, run, dev, train."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from mlcost_pipeline.cli.opened import Opened, pass_opened

STOPPED_BY_HAND: Final = 128 + signal.SIGINT


@contextmanager
def _stopped_by_hand() -> Iterator[None]:
    """Ctrl-C ends the command with a sentence and the shell's own exit code for it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("stopped; what was done is kept, and the next run takes up what was not", err=True)
        raise SystemExit(STOPPED_BY_HAND) from None


@click.command()
@click.option("--home", type=click.Path(path_type=Path), default=Path("demo-home"), show_default=True)
@click.option("--days", type=click.IntRange(12, 400), default=None, help="Days of history of the simulated shop.")
@click.option("--small", is_flag=True, help="A shop of a few days: the whole loop in under a minute.")
def demo(home: Path, days: int | None, small: bool) -> None:
    """Run the whole loop on a simulated shop and end with a summary.

    Example: mlcost demo --home demo-home
    """
    from mlcost_pipeline.demo.run import run_demo

    run_demo(home, days=days, small=small)


@click.command()
@pass_opened
def tick(opened: Opened) -> None:
    """Evaluate once what the sensors would, and run what is due.

    Example: mlcost --config mlcost.yaml tick
    """
    from mlcost_pipeline.passes import Passes
    from mlcost_pipeline.reports.progress import run_progress

    with _stopped_by_hand(), run_progress() as progress:
        done = Passes(opened.config, opened.dagster_home, progress=progress).tick()
    for item in done:
        for request in item.ran:
            click.echo(f"{item.trigger}: ran {request.job} {request.partition or ''}: {request.reason}")
        if not item.ran:
            click.echo(f"{item.trigger}: nothing: {item.reason}")


@click.command()
@pass_opened
def run(opened: Opened) -> None:
    """Tick until nothing is due, then print the summary and where the report is.

    Example: mlcost --config examples/retail/mlcost.yaml run
    """
    from mlcost_pipeline.passes import Passes
    from mlcost_pipeline.reports.main_report import print_last_closing
    from mlcost_pipeline.reports.progress import run_progress

    with _stopped_by_hand(), run_progress() as progress:
        Passes(opened.config, opened.dagster_home, progress=progress).until_quiet()
    print_last_closing(opened.warehouse)


@click.command()
@click.option("--home", "folder", type=click.Path(path_type=Path), help="As the demo's --home.")
@click.option("--port", default=3000, show_default=True)
@pass_opened
def dev(opened: Opened, folder: Path | None, port: int) -> None:
    """Open the Dagster UI and its daemon, on loopback, on the kept history.

    Example: mlcost dev --home demo-home
    """
    from mlcost_pipeline.home import PROJECT, dagster_environment, dagster_home

    config = opened.config
    if folder is not None and (folder / "shop" / "mlcost.yaml").exists():
        config = (folder / "shop" / "mlcost.yaml").resolve()
    home = dagster_home(folder or opened.home, config)
    os.chdir(PROJECT)
    command = [str(Path(sys.executable).with_name("dagster")), "dev", "-h", "127.0.0.1", "-p", str(port)]
    os.execve(command[0], [*command, "-w", "workspace.yaml"], dagster_environment(home, config))


@click.command()
@click.option("--job", "job_id", required=True, help="The job, as named by its decision.")
@click.option("--orchestrator-run-id", default=None, help="The run that asks, for the record.")
@pass_opened
def train(opened: Opened, job_id: str, orchestrator_run_id: str | None) -> None:
    """Supervise one open training job until it has a candidate or cannot have one.

    Example: mlcost train --job 3f2a9c
    """
    from dagster_pipes import open_dagster_pipes

    from mlcost_pipeline.spot.supervisor import supervise

    def work(say: Any) -> None:
        result = supervise(
            opened.warehouse, opened.settings, job_id, orchestrator_run_id=orchestrator_run_id, report=say
        )
        say(f"job {job_id}: {result.state}, version {result.version}")

    if "DAGSTER_PIPES_CONTEXT" in os.environ:
        with open_dagster_pipes() as pipes:
            work(pipes.log.info)
    else:
        work(click.echo)


COMMANDS = (
    demo,
    tick,
    run,
    dev,
    train,
)
