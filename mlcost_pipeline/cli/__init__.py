"""The command line: the same library as the assets call, no daemon needed. Heavy parts are imported where used."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlcost_pipeline.cli import acting, asking, assets, bill, init, loop, planning, upkeep
from mlcost_pipeline.cli.opened import Group, Opened

__all__ = ["main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--config", type=click.Path(path_type=Path), envvar="MLCOST_CONFIG", help="Your mlcost.yaml.")
@click.option("--home", type=click.Path(path_type=Path), help="Folder of the kept Dagster history.")
@click.pass_context
def main(ctx: click.Context, config: Path | None, home: Path | None) -> None:
    """What machine learning costs, and what it earns for that cost.

    Example: mlcost --config examples/retail/mlcost.yaml tick
    """
    if config is None and home is not None and (home / "shop" / "mlcost.yaml").exists():
        config = home / "shop" / "mlcost.yaml"
    ctx.obj = Opened((config or Path("mlcost.yaml")).resolve(), home)
    if str(ctx.obj.config.parent) not in sys.path:  # a team's own modules may lie beside its mlcost.yaml
        sys.path.append(str(ctx.obj.config.parent))


for part in (init, loop, asking, assets, acting, bill, planning, upkeep):
    for command in part.COMMANDS:
        main.add_command(command)
