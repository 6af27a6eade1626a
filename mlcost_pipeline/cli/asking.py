"""Commands that ask: why, report, bridge, recommend, serve."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from mlcost_pipeline.cli.opened import Opened, a_month, as_of_option, only_model, pass_opened
from mlcost_pipeline.errors import MlcostError


@click.command()
@click.argument("model")
@click.option("--day", type=click.DateTime(["%Y-%m-%d"]), default=None, help="As-of day; the newest by default.")
@pass_opened
def why(opened: Opened, model: str, day: Any) -> None:
    """Say what was decided for a model and why.

    Example: mlcost why fraud --day 2025-06-27
    """
    from mlcost_pipeline.evidence.why import explain

    opened.settings.model(model)
    chosen: date | None = day.date() if day else None
    click.echo(explain(opened.warehouse, model, chosen).text())


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Where to write it.")
@as_of_option
@pass_opened
def report(opened: Opened, out: Path | None, as_of: datetime | None) -> None:
    """Write the HTML report and print its summary.

    Example: mlcost report --as-of 2025-06-30 --out report.html
    """
    from mlcost_pipeline.reports.dress import report_path
    from mlcost_pipeline.reports.main_report import print_closing, write_report

    then, settings = opened.as_of(as_of), opened.settings
    if as_of is not None:
        out = out or report_path(settings).with_name(f"report-as-of-{as_of:%Y-%m-%d}.html")
    print_closing(then.warehouse, settings, written=write_report(then.warehouse, settings, out, at=then.at))


@click.command()
@click.argument("before", required=False)
@click.argument("after", required=False)
@click.option("--model", default=None, help="Of this model's money only.")
@as_of_option
@pass_opened
def bridge(opened: Opened, before: str | None, after: str | None, model: str | None, as_of: datetime | None) -> None:
    """Say why the bill moved between two months; without months, the last two that are over.

    Example: mlcost bridge 2026-02 2026-03 --model fraud
    """
    from mlcost_pipeline.cost import bridge as bridges
    from mlcost_pipeline.reports.bridge_view import bridge_document
    from mlcost_pipeline.reports.terminal import print_document

    then, settings = opened.as_of(as_of), opened.settings
    warehouse = then.warehouse
    months = (a_month(before), a_month(after)) if before and after else None
    if before and not after:
        raise MlcostError(f"a bridge has two ends, found {before} alone; give two months, or none for the last two")
    months = months or bridges.last_two_months(warehouse, settings)
    if months is None:
        raise MlcostError("no two months in a row are over and have a bill; give two months, see: mlcost bill status")
    found = bridge_document(bridges.bridge(warehouse, settings, *months, model), settings)
    opened.tell_share(then, months[1])
    print_document(replace(found, tables=found.tables[:1], numbers=()))  # every cause is in the report


@click.command()
@click.argument("user")
@click.option("--model", default=None, help="The recommendation model, where there are several.")
@pass_opened
def recommend(opened: Opened, user: str, model: str | None) -> None:
    """Look up one user's recommendations, with tier, reason, version and age.

    Example: mlcost recommend u0007
    """
    from mlcost_pipeline.inference.lookup import Lookup

    settings = opened.settings
    chosen = only_model(settings, "recommendation", model)
    answer = Lookup(opened.warehouse, settings, chosen).recommend(user)
    click.echo(json.dumps(answer.as_dict(), indent=2, ensure_ascii=False))


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8080, show_default=True)
@pass_opened
def serve(opened: Opened, host: str, port: int) -> None:
    """Serve lookups and scores over HTTP, on loopback by default.

    Example: mlcost serve --port 8080
    """
    from mlcost_pipeline.inference.service import serve as serve_http

    serve_http(opened.settings, opened.warehouse, host=host, port=port)


COMMANDS = (
    why,
    report,
    bridge,
    recommend,
    serve,
)
