"""What every command starts from: the project that the options name, and errors shown as text."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcost_pipeline.errors import BillError, MlcostError

if TYPE_CHECKING:
    from mlcost_pipeline.clock import Clock
    from mlcost_pipeline.settings import Settings
    from mlcost_pipeline.warehouse import Warehouse


@dataclass
class Opened:
    """The project that the options name; opened on first use."""

    config: Path
    home: Path | None

    @property
    def settings(self) -> Settings:
        from mlcost_pipeline.settings import load_settings

        return load_settings(self.config)

    @property
    def warehouse(self) -> Warehouse:
        from mlcost_pipeline.warehouse import Warehouse

        settings = self.settings
        return Warehouse(settings.path(settings.warehouse))

    def as_of(self, day: datetime | None) -> Then:
        """The warehouse as its bills and ledgers stood at the end of `day`, UTC; without a day, as they are."""
        from mlcost_pipeline.reports.as_of import warehouse_as_of

        if day is None:
            return Then(self.warehouse, None)
        end = day.replace(tzinfo=UTC) + timedelta(days=1)
        return Then(warehouse_as_of(self.warehouse, end), end)

    def tell_share(self, then: Then, period: str | None = None) -> None:
        """Print the line that every telling of money begins with."""
        from mlcost_pipeline.reports.first_line import first_lines

        for line in first_lines(then.warehouse, self.settings, period, at=then.at):
            click.echo(line)

    def clock(self, model: str, then: Then | None = None) -> Clock:
        """A model's clock; as of a day, one that is not past it."""
        from mlcost_pipeline.clock import model_clock

        return model_clock(self.warehouse if then is None else then.warehouse, self.settings, model)

    @property
    def dagster_home(self) -> Path:
        from mlcost_pipeline.home import dagster_home

        return dagster_home(self.home, self.config)


@dataclass(frozen=True)
class Then:
    """A warehouse, and the moment that it shows where that is not now."""

    warehouse: Warehouse
    at: datetime | None


class Group(click.Group):
    """Commands in the order in which they are written; our own errors are shown as text, not as a trace."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MlcostError as error:
            raise click.ClickException(_masked(ctx, str(error))) from error
        except OSError as error:
            if error.filename is None:
                raise
            text = f"{error.filename}: {error.strerror}; choose another place, or make it one that can be written"
            raise click.ClickException(text) from error


def _masked(ctx: click.Context, text: str) -> str:
    """An error's text, with account ids as they may be shown."""
    from mlcost_pipeline.cost.deliveries import bills_in_force
    from mlcost_pipeline.cost.masking import masked_text

    if not isinstance(ctx.obj, Opened):
        return text
    try:
        settings = ctx.obj.settings
        accounts = {account for account, _ in bills_in_force(ctx.obj.warehouse)} if settings.mask_accounts else set()
    except (MlcostError, OSError):  # without settings or warehouse no account was read
        return text
    for account in sorted(accounts, key=len, reverse=True):
        text = masked_text(text, account, settings)
    return text


def a_month(text: str) -> str:
    """A month as it was given.

    Raises:
        BillError: it is none.
    """
    from mlcost_pipeline.cost.counted import month_bounds

    try:
        if f"{month_bounds(text)[0]:%Y-%m}" != text:
            raise ValueError(text)
    except ValueError as error:
        raise BillError(f"{text!r} is no month; give one such as 2026-03") from error
    return text


as_of_option = click.option(
    "--as-of", type=click.DateTime(["%Y-%m-%d"]), default=None, help="Bills and ledgers as at the end of that day, UTC."
)
pass_opened = click.make_pass_decorator(Opened)
who_option = click.option(
    "--who", default=getpass.getuser, help="Who acts, as stated; by default the user of this machine."
)
reason_option = click.option("--reason", required=True, help="Why; it stays on record.")


def only_model(settings: Settings, task: str, model: str | None) -> str:
    if model is not None:
        settings.model(model)
        return model
    fitting = [name for name, block in settings.models.items() if block.task == task]
    if len(fitting) != 1:
        raise MlcostError(f"there are {len(fitting)} {task} models ({', '.join(fitting)}): name one with --model")
    return fitting[0]
