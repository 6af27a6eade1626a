"""``mlcost bill``: billing exports, imported, compared and followed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlcost_pipeline.cli.bill_names import account_named, bills_there, line_named
from mlcost_pipeline.cli.opened import Group, Opened, Then, a_month, as_of_option, pass_opened
from mlcost_pipeline.errors import BillError, Unreconciled

if TYPE_CHECKING:
    from mlcost_pipeline.cost.deliveries import Delivery
    from mlcost_pipeline.reports.document import Document

MOST_ROWS = 20
REST = "all rows: --all, or --csv FILE"
all_option = click.option("--all", "every", is_flag=True, help="Show every row.")
csv_option = click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), help="Write the rows to a file instead."
)


@click.group(cls=Group)
def bill() -> None:
    """Billing exports: import them, see what is in force, follow any cent both ways.

    Example: mlcost bill status
    """


@bill.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "form", default=None, help="The format of the export; told by its columns by default.")
@click.option(
    "--received",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    default=None,
    help="When it arrived (UTC); by default when its manifest says it was made, else when its files were last changed.",
)
@pass_opened
def bill_import(opened: Opened, path: Path, form: str | None, received: datetime | None) -> None:
    """Take over the deliveries in a file, a folder of parts, or what a manifest names.

    Of two deliveries of a month the one that arrived later is in force.

    Example: mlcost bill import 2025-06.csv.gz
    """
    from mlcost_pipeline.cost.bills.detect import detect_format
    from mlcost_pipeline.cost.deliveries import import_bill
    from mlcost_pipeline.cost.exact import plain
    from mlcost_pipeline.cost.masking import shown_account

    absent: dict[str, str] = {}
    at = None if received is None else received.replace(tzinfo=UTC)
    for made in import_bill(opened.warehouse, path, format=form or detect_format(path), received_at=at):
        account = shown_account(made.account, opened.settings)
        click.echo(
            f"{account} {made.period}: {made.rows} lines in {made.slots} slots, billed {plain(made.billed_total)} "
            f"and effective {plain(made.effective_total)} {made.currency}, {made.state}; {_news(made)}"
        )
        for text in made.warnings:
            click.echo(f"  note: {text}", err=True)
        absent |= made.absent
    for name, why in absent.items():
        click.echo(f"  column {name} is absent: {why}", err=True)
    click.echo("to attribute it: mlcost tick")


def _news(made: Delivery) -> str:
    if made.took_over:
        return "took over"
    if made.behind is None:
        return "was known already, nothing changed"
    return (
        f"it arrived {made.received_at:%Y-%m-%d %H:%M} UTC, before {made.behind}, which stays in force; to put this "
        "one in force say when it really arrived, with --received"
    )


@bill.command("status")
@as_of_option
@pass_opened
def bill_status(opened: Opened, as_of: datetime | None) -> None:
    """What is in force for each account and month, and whether parts and bill agree.

    Example: mlcost bill status --as-of 2025-06-30
    """
    from mlcost_pipeline.cost.asof import in_force_at
    from mlcost_pipeline.cost.deliveries import delivery_of
    from mlcost_pipeline.reports.bill_views import as_of_document
    from mlcost_pipeline.reports.main_report import print_bill_status
    from mlcost_pipeline.reports.terminal import print_document

    if as_of is None:
        _tell_if_it_closes(opened, opened.as_of(None))
        print_bill_status(opened.warehouse, opened.settings)
        return
    at = as_of.replace(tzinfo=UTC) + timedelta(days=1)
    found = in_force_at(opened.warehouse, at)
    if found:
        _tell_if_it_closes(opened, opened.as_of(as_of))
    bills = {each.delivery_id: delivery_of(opened.warehouse, each.delivery_id) for each in found}
    print_document(as_of_document(found, bills, at, opened.settings), rows=len(found), elsewhere="in a wider window")


@bill.command("diff")
@click.argument("account")
@click.argument("period")
@click.option("--from", "old", default=None, help="Ledger version before; by default the one before the last.")
@click.option("--to", "new", default=None, help="Ledger version after; by default the one in force.")
@as_of_option
@all_option
@csv_option
@pass_opened
def bill_diff(
    opened: Opened, account: str, period: str, old: str | None, new: str | None, as_of: datetime | None, every: bool,
    csv_file: Path | None,
) -> None:  # fmt: skip
    """What changed between two ledgers of a month: for which runs, and why (cost, credits, tags, runs, rules).

    Example: mlcost bill diff 123456789012 2025-06
    """
    from mlcost_pipeline.cost.asof import history
    from mlcost_pipeline.cost.deliveries import scope_of
    from mlcost_pipeline.cost.restating import bills_of, restatements
    from mlcost_pipeline.reports.bill_views import restated_document

    then, account, period = opened.as_of(as_of), account_named(opened, account), a_month(period)
    warehouse = then.warehouse
    entries = history(warehouse, account, period)
    known = [each.version for each in entries if then.at is None or each.since <= then.at]
    if not entries:
        raise BillError(f"account {account}, period {period}: no ledger was ever in force; {bills_there(opened)}")
    if len(known) < 2 and (old is None or new is None):
        raise BillError(f"account {account}, period {period}: {len(known)} ledgers were ever in force, two are needed")
    before, after = old or known[-2], new or known[-1]
    for version in (before, after):
        if version not in known:
            raise BillError(f"ledger version {version}: was never in force there; these were: {', '.join(known)}")
    rows = restatements(warehouse, account, period, scope_of(account, period), before, after)
    doc = restated_document(f"{period}: {before} → {after}", rows, bills_of(warehouse), opened.settings)
    if csv_file is None:
        opened.tell_share(then, period)
    _print(doc, every=every, csv_file=csv_file)


@bill.command("explain")
@click.argument("line")
@click.option("--account", default=None, help="With a bare line number: the account of the bill in force.")
@click.option("--period", default=None, help="With a bare line number: its month, as 2025-06.")
@as_of_option
@all_option
@csv_option
@pass_opened
def bill_explain(
    opened: Opened, line: str, account: str | None, period: str | None, as_of: datetime | None, every: bool,
    csv_file: Path | None,
) -> None:  # fmt: skip
    """Follow one line of a bill to the runs that it was charged to. LINE is DELIVERY:NUMBER, or a number.

    Of the delivery's id the first eight characters will do.

    Example: mlcost bill explain 42 --account 123456789012 --period 2025-06
    """
    from mlcost_pipeline.cost.tracing import explain_line
    from mlcost_pipeline.reports.bill_views import line_document, part_lines

    then = opened.as_of(as_of)
    delivery_id, number = line_named(opened, then.warehouse, line, account, period)
    found = explain_line(then.warehouse, delivery_id, number)
    doc = line_document(found, opened.settings)
    if csv_file is not None:
        _print(doc, every=True, csv_file=csv_file)
        return
    opened.tell_share(then, found.line["period"])
    _print(replace(doc, tables=()), every=True)
    click.echo(f"{doc.tables[0].title}:")
    for text in part_lines(found, None if every else MOST_ROWS):
        click.echo(text)
    if len(found.parts) > MOST_ROWS and not every:
        click.echo(REST)
    if any(part.run_id for part in found.parts):
        click.echo("all that one of these runs was charged: mlcost bill run RUN")


@bill.command("run")
@click.argument("run_id")
@as_of_option
@all_option
@csv_option
@pass_opened
def bill_run(opened: Opened, run_id: str, as_of: datetime | None, every: bool, csv_file: Path | None) -> None:
    """Every charge of one run, by method and slot by slot.

    Example: mlcost bill run 3f2a9c/1
    """
    from mlcost_pipeline.cost.tracing import charges_of_run
    from mlcost_pipeline.reports.bill_views import run_document

    then = opened.as_of(as_of)
    found = charges_of_run(then.warehouse, run_id)
    if csv_file is None:
        opened.tell_share(then)
    _print(run_document(found, opened.settings), every=every, csv_file=csv_file, table=1)


@bill.command("restatements")
@click.argument("period", required=False)
@as_of_option
@all_option
@csv_option
@pass_opened
def bill_restatements(
    opened: Opened, period: str | None, as_of: datetime | None, every: bool, csv_file: Path | None
) -> None:
    """Everything that newer ledgers have changed, of one month or of all.

    Example: mlcost bill restatements 2025-06
    """
    from mlcost_pipeline.cost.restating import bills_of, restated
    from mlcost_pipeline.reports.bill_views import restated_document

    then, month = opened.as_of(as_of), None if period is None else a_month(period)
    title = f"Restatements of {month or 'all months'}"
    doc = restated_document(title, restated(then.warehouse, month), bills_of(then.warehouse), opened.settings)
    if csv_file is None:
        opened.tell_share(then, month)
    _print(doc, every=every, csv_file=csv_file)


@bill.command("export")
@click.argument("period")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A file named *.parquet or *.csv.")
@click.option("--account", default=None, help="Of this account alone; by default of all.")
@as_of_option
@pass_opened
def bill_export(opened: Opened, period: str, out: Path, account: str | None, as_of: datetime | None) -> None:
    """Write a month's ledger as FOCUS rows, one a part, for any FinOps tool to read.

    Example: mlcost bill export 2025-06 --out allocated.parquet
    """
    from mlcost_pipeline.cost.exact import plain
    from mlcost_pipeline.cost.focus_export import VERSION, export_focus

    then = opened.as_of(as_of)
    named = None if account is None else account_named(opened, account)
    made = export_focus(then.warehouse, opened.settings, a_month(period), out, named)
    opened.tell_share(then, period)
    money = " and ".join(f"{plain(amount)} {currency}" for currency, amount in made.effective.items())
    open_ = ", PROVISIONAL: a bill of it is open" if made.provisional else ""
    click.echo(f"{made.rows} FOCUS {VERSION} rows of {money} effective written to {out}{open_}")


def _tell_if_it_closes(opened: Opened, then: Then) -> None:
    """The share attributed; where a bill does not add up, that, and the status goes on to say which and by how much."""
    try:
        opened.tell_share(then)
    except Unreconciled:
        click.echo("How much is attributed is not told while a bill does not add up.")


def _print(doc: Document, *, every: bool, csv_file: Path | None = None, table: int = 0) -> None:
    from mlcost_pipeline.reports.csv_export import write_csv
    from mlcost_pipeline.reports.terminal import print_document
    from mlcost_pipeline.reports.values import Quantity

    if csv_file is not None:
        shown = doc.tables[table]
        rows = [[cell.value if isinstance(cell, Quantity) else cell for cell in row] for row in shown.rows]
        write_csv(csv_file, shown.columns, rows)
        click.echo(f"{len(rows)} rows written to {csv_file}")
        return
    most = max((len(each.rows) for each in doc.tables), default=0)
    print_document(doc, rows=most if every else MOST_ROWS, elsewhere="with --csv FILE")
    if most > MOST_ROWS and not every:
        click.echo(REST)


COMMANDS = (bill,)
