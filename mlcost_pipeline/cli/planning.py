"""Commands that look ahead: what a month will cost, and whether the price book can be believed."""

from __future__ import annotations

from datetime import datetime

import click

from mlcost_pipeline.cli.opened import Opened, a_month, as_of_option, pass_opened


@click.command()
@click.argument("model", required=False)
@click.option("--month", default=None, help='"2025-06"; by default the month that the model is in.')
@as_of_option
@pass_opened
def forecast(opened: Opened, model: str | None, month: str | None, as_of: datetime | None) -> None:
    """Say what a month costs so far and will cost, for a model or for all, and how that stands against its budget.

    Example: mlcost forecast fraud --month 2025-06
    """
    from mlcost_pipeline.cost.budgets import budget_status, spend_of
    from mlcost_pipeline.cost.forecast import forecast as foresee

    settings, then = opened.settings, opened.as_of(as_of)
    warehouse = then.warehouse
    for name in settings.owners if model is None else [model]:
        spend_of(settings, name)  # an unknown name is answered with the known ones
    month = None if month is None else a_month(month)
    opened.tell_share(then, month)
    for name in settings.owners if model is None else [model]:
        now = opened.clock(name, then).now()
        period = month or now.strftime("%Y-%m")
        status = budget_status(warehouse, settings, name, period, now)
        said = foresee(warehouse, settings, name, period, now).sentence if status is None else status.sentence
        click.echo(said)


@click.command()
@click.option("--model", default=None, help="Only runs of this model.")
@click.option("--month", default=None, help='Only bills of this month, "2025-06".')
@as_of_option
@pass_opened
def prices(opened: Opened, model: str | None, month: str | None, as_of: datetime | None) -> None:
    """Hold the price book against the bills: what it said of runs that are billed now, and what to set it to.

    Example: mlcost prices --month 2025-06
    """
    from mlcost_pipeline.cost.budgets import spend_of
    from mlcost_pipeline.cost.price_check import check_prices

    settings, then = opened.settings, opened.as_of(as_of)
    if model is not None:
        spend_of(settings, model)  # an unknown name is answered with the known ones
    now = opened.clock(model or settings.owners[0], then).now()
    month = None if month is None else a_month(month)
    found = check_prices(then.warehouse, settings, now, model=model, period=month)
    opened.tell_share(then, month)
    click.echo(found.sentence)
    for source in found.sources:
        click.echo(f"{'! ' if source.off else '  '}{source.sentence}")
    if found.not_compared:
        click.echo(f"{found.not_compared} billed runs not compared: no bill is about the time they held a resource")


COMMANDS = (forecast, prices)
