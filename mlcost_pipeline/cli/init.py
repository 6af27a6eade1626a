"""``mlcost init``: the first step of a team that has a bill and nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from mlcost_pipeline.errors import SettingsError


@click.command()
@click.argument("bill", type=click.Path(path_type=Path))
@click.option("--format", "form", default=None, help="The format of the export; told by its columns by default.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("mlcost.yaml"), show_default=True)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(bill: Path, form: str | None, out: Path, force: bool) -> None:
    """Write a first mlcost.yaml from a billing export, and say what of it can be attributed by what.

    Example: mlcost init exports/2025-06.csv.gz
    """
    from mlcost_pipeline.cost.first_look.looking import first_look
    from mlcost_pipeline.cost.first_look.writing import as_yaml, write_checked
    from mlcost_pipeline.reports.first_look_view import first_look_document
    from mlcost_pipeline.reports.terminal import print_document

    target = out.resolve()
    if target.exists() and not force:
        raise SettingsError(f"{target}: is there already; name another file with --out, or add --force")
    look = first_look(bill.resolve(), format=form)
    write_checked(as_yaml(look, base=target.parent), target)
    print_document(first_look_document(look))
    click.echo(f"wrote {target}\nnext, to import the bill, attribute it and write a report: mlcost --config {out} run")


COMMANDS = (init,)
