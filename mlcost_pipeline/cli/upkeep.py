"""Commands of upkeep."""

from __future__ import annotations

import click

from mlcost_pipeline.cli.opened import Opened, pass_opened


@click.command()
@pass_opened
def migrate(opened: Opened) -> None:
    """Bring the warehouse to this version's schema; make a copy of the folder first.

    Example: mlcost migrate
    """
    from mlcost_pipeline.cost.migrating import migrate as bring
    from mlcost_pipeline.tables import SCHEMA_VERSION

    settings = opened.settings
    moved = bring(settings.path(settings.warehouse))
    if moved:
        click.echo(f"schema version {SCHEMA_VERSION}: {moved} deliveries moved; mlcost tick builds their ledgers")
    else:
        click.echo(f"the warehouse has schema version {SCHEMA_VERSION}, which is this version's: nothing to do")


COMMANDS = (migrate,)
