"""``mlcost assets``: what each asset and partition cost."""

from __future__ import annotations

from datetime import datetime

import click

from mlcost_pipeline.cli.opened import Opened, as_of_option, pass_opened


@click.command()
@click.argument("period", required=False)
@click.option("--all", "every", is_flag=True, help="Show every row.")
@as_of_option
@pass_opened
def assets(opened: Opened, period: str | None, every: bool, as_of: datetime | None) -> None:
    """Cost by asset and partition, of this pipeline and of every orchestrator in mlcost.yaml.

    Example: mlcost assets 2025-06
    """
    from mlcost_pipeline.cost.by_asset import cost_by_asset
    from mlcost_pipeline.reports.document import Document, Table
    from mlcost_pipeline.reports.dress import dressed
    from mlcost_pipeline.reports.terminal import print_document
    from mlcost_pipeline.reports.values import Cell, Quantity

    settings, then = opened.settings, opened.as_of(as_of)
    opened.tell_share(then, period)
    found = cost_by_asset(then.warehouse, settings, period)
    rows: list[list[Cell]] = [
        [each.asset, each.partition or "", each.model, each.outcome.replace("_", " "), each.runs,
         Quantity(each.effective, settings.currency), each.source]
        for each in found
    ]  # fmt: skip
    names = len({each.asset for each in found})
    doc = Document(
        title=f"Cost by asset{f', {period}' if period else ''}",
        summary=f"{names} assets were billed." if found else "No run of an asset is in a bill yet.",
        tables=[Table("By asset and partition", ["asset", "partition", "model", "outcome", "runs", "effective", "from"],
                      rows, empty="none")],
    )  # fmt: skip
    print_document(dressed(doc, settings), rows=len(rows) if every else 20)


COMMANDS = (assets,)
