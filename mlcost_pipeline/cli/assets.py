"""``mlcost assets``: what each asset and partition cost."""

from __future__ import annotations

from datetime import datetime

import click

from mlcost_pipeline.cli.opened import Opened, a_month, as_of_option, pass_opened

MOST_ROWS = 20
NONE = "No run of an asset is in a bill yet."


@click.command()
@click.argument("period", required=False)
@click.option("--all", "every", is_flag=True, help="Show every row.")
@as_of_option
@pass_opened
def assets(opened: Opened, period: str | None, every: bool, as_of: datetime | None) -> None:
    """Cost by asset and partition, of this pipeline and of every orchestrator in mlcost.yaml.

    Example: mlcost assets 2025-06
    """
    from mlcost_pipeline.cost.books import books
    from mlcost_pipeline.cost.by_asset import cost_by_asset
    from mlcost_pipeline.reports.document import PROVISIONAL, Document, Table
    from mlcost_pipeline.reports.dress import counted, dressed
    from mlcost_pipeline.reports.terminal import print_document
    from mlcost_pipeline.reports.values import Cell, Quantity

    period = None if period is None else a_month(period)
    settings, then = opened.settings, opened.as_of(as_of)
    opened.tell_share(then, period)
    found = cost_by_asset(then.warehouse, settings, period)
    rows: list[list[Cell]] = [
        [each.asset, each.partition or "", each.model, each.outcome.replace("_", " "), each.runs,
         Quantity(each.effective, each.currency), each.source]
        for each in found
    ]  # fmt: skip
    names = len({each.asset for each in found})
    open_ = any(book.bill.state != "final" for book in books(then.warehouse, None, period))
    doc = Document(
        title=f"Cost by asset{f', {period}' if period else ''}",
        summary=f"{counted(names, 'asset was', 'assets were')} billed." if found else NONE,
        tables=[Table("By asset and partition", ["asset", "partition", "model", "outcome", "runs", "effective", "from"],
                      rows, empty="none")],
        marks=(PROVISIONAL,) if found and open_ else (),
    )  # fmt: skip
    print_document(dressed(doc, settings), rows=len(rows) if every else MOST_ROWS, elsewhere="in a wider window")
    if len(rows) > MOST_ROWS and not every:
        click.echo("all rows: --all")


COMMANDS = (assets,)
