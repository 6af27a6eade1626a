"""The command line: the same library as the assets call, no daemon needed. Heavy parts are imported where used."""

from __future__ import annotations

import getpass
import json
import os
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlcost_pipeline.errors import MlcostError

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

    def clock(self, model: str) -> Clock:
        from mlcost_pipeline.clock import model_clock

        return model_clock(self.warehouse, self.settings, model)

    @property
    def dagster_home(self) -> Path:
        from mlcost_pipeline.home import dagster_home

        return dagster_home(self.home, self.config)


class Group(click.Group):
    """Commands in the order in which they are written; our own errors are shown as text, not as a trace."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MlcostError as error:
            raise click.ClickException(str(error)) from error


pass_opened = click.make_pass_decorator(Opened)
who_option = click.option(
    "--who", default=getpass.getuser, help="Who acts, as stated; by default the user of this machine."
)
reason_option = click.option("--reason", required=True, help="Why; it stays on record.")


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


# ── the loop ────────────────────────────────────────────────────────────────────────────────────


@main.command()
@click.option("--home", type=click.Path(path_type=Path), default=Path("demo-home"), show_default=True)
@click.option("--days", type=click.IntRange(12, 400), default=None, help="Days of history of the simulated shop.")
@click.option("--small", is_flag=True, help="A shop of a few days: the whole loop in under a minute.")
def demo(home: Path, days: int | None, small: bool) -> None:
    """Run the whole loop on a simulated shop and end with a summary.

    Example: mlcost demo --home demo-home
    """
    from mlcost_pipeline.demo.run import run_demo

    run_demo(home, days=days, small=small)


@main.command()
@pass_opened
def tick(opened: Opened) -> None:
    """Evaluate once what the sensors would, and run what is due.

    Example: mlcost --config mlcost.yaml tick
    """
    from mlcost_pipeline.passes import Passes
    from mlcost_pipeline.reports.progress import run_progress

    with run_progress() as progress:
        done = Passes(opened.config, opened.dagster_home, progress=progress).tick()
    for item in done:
        for request in item.ran:
            click.echo(f"{item.trigger}: ran {request.job} {request.partition or ''}: {request.reason}")
        if not item.ran:
            click.echo(f"{item.trigger}: nothing: {item.reason}")


@main.command()
@pass_opened
def run(opened: Opened) -> None:
    """Tick until nothing is due, then print the summary and where the report is.

    Example: mlcost --config examples/retail/mlcost.yaml run
    """
    from mlcost_pipeline.passes import Passes
    from mlcost_pipeline.reports.main_report import print_last_closing
    from mlcost_pipeline.reports.progress import run_progress

    with run_progress() as progress:
        Passes(opened.config, opened.dagster_home, progress=progress).until_quiet()
    print_last_closing(opened.warehouse)


@main.command()
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


@main.command()
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


# ── asking ──────────────────────────────────────────────────────────────────────────────────────


@main.command()
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


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Where to write it.")
@pass_opened
def report(opened: Opened, out: Path | None) -> None:
    """Write the HTML report and print its summary.

    Example: mlcost report --out report.html
    """
    from mlcost_pipeline.reports.main_report import print_closing, write_report

    warehouse, settings = opened.warehouse, opened.settings
    print_closing(warehouse, settings, written=write_report(warehouse, settings, out))


@main.command()
@click.argument("user")
@click.option("--model", default=None, help="The recommendation model, where there are several.")
@pass_opened
def recommend(opened: Opened, user: str, model: str | None) -> None:
    """Look up one user's recommendations, with tier, reason, version and age.

    Example: mlcost recommend u0007
    """
    from mlcost_pipeline.inference.lookup import Lookup

    settings = opened.settings
    chosen = _only(settings, "recommendation", model)
    answer = Lookup(opened.warehouse, settings, chosen).recommend(user)
    click.echo(json.dumps(answer.as_dict(), indent=2, ensure_ascii=False))


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8080, show_default=True)
@pass_opened
def serve(opened: Opened, host: str, port: int) -> None:
    """Serve lookups and scores over HTTP, on loopback by default.

    Example: mlcost serve --port 8080
    """
    from mlcost_pipeline.inference.service import serve as serve_http

    serve_http(opened.settings, opened.warehouse, host=host, port=port)


# ── acting ──────────────────────────────────────────────────────────────────────────────────────


@main.command()
@click.argument("model")
@reason_option
@who_option
@pass_opened
def retrain(opened: Opened, model: str, reason: str, who: str) -> None:
    """Ask for a retrain by hand; the next decision carries it out.

    Example: mlcost retrain fraud --reason "new merchant category goes live"
    """
    from mlcost_pipeline.evidence.acts import request_retrain
    from mlcost_pipeline.training.acting import why_not_act

    opened.settings.model(model)
    act = request_retrain(opened.warehouse, opened.clock(model), model=model, reason=reason, who=who)
    forbidden = why_not_act(opened.warehouse, opened.settings, model)
    waits = f"it waits: {forbidden}" if forbidden else "`mlcost tick` or the sensor carries it out"
    click.echo(f"on record as act {act}; {waits}")


@main.command()
@click.argument("model")
@reason_option
@who_option
@pass_opened
def rearm(opened: Opened, model: str, reason: str, who: str) -> None:
    """Let a model be retrained again after a job was exhausted or cancelled.

    Example: mlcost rearm fraud --reason "quota was raised"
    """
    from mlcost_pipeline.evidence.acts import rearm as rearm_model

    opened.settings.model(model)
    act = rearm_model(opened.warehouse, opened.clock(model), model=model, reason=reason, who=who)
    click.echo(f"on record as act {act}")


@main.command()
@click.argument("model", required=False)
@reason_option
@who_option
@pass_opened
def freeze(opened: Opened, model: str | None, reason: str, who: str) -> None:
    """Stop all acting, of one model or of all: everything is still decided and recorded.

    Example: mlcost freeze --reason "audit"
    """
    _freeze(opened, model, reason, who, frozen=True)


@main.command()
@click.argument("model", required=False)
@reason_option
@who_option
@pass_opened
def unfreeze(opened: Opened, model: str | None, reason: str, who: str) -> None:
    """Let a model, or all, act again.

    Example: mlcost unfreeze --reason "audit is over"
    """
    _freeze(opened, model, reason, who, frozen=False)


@main.command()
@click.argument("model")
@click.argument("verdict", type=click.Choice(["real", "expected", "data_fault"]))
@click.option("--evidence", default=None, help="The evidence that the verdict belongs to; the newest by default.")
@click.option("--note", required=True, help="What you saw.")
@who_option
@pass_opened
def review(opened: Opened, model: str, verdict: str, evidence: str, note: str, who: str) -> None:
    """Answer a question about drift; the verdict belongs to its evidence and expires.

    Example: mlcost review fraud expected --evidence 9f31 --note "winter sale"
    """
    from mlcost_pipeline.evidence.review import review as record_review

    settings = opened.settings
    settings.model(model)
    made = record_review(
        opened.warehouse, settings, opened.clock(model), model, verdict=verdict, reviewer=who, note=note,
        evidence_id=evidence,
    )  # fmt: skip
    click.echo(f"on record as review {made}: {verdict}")


@main.command()
@click.argument("model")
@reason_option
@who_option
@pass_opened
def cancel(opened: Opened, model: str, reason: str, who: str) -> None:
    """Cancel the open training job of a model.

    Example: mlcost cancel fraud --reason "wrong data"
    """
    from mlcost_pipeline.evidence.acts import cancel as cancel_open_job

    opened.settings.model(model)
    job_id = cancel_open_job(opened.warehouse, opened.clock(model), model=model, reason=reason, who=who)
    click.echo(f"job {job_id} is cancelled; retrains of {model} wait for `mlcost rearm {model}`")


@main.command()
@click.argument("model")
@reason_option
@who_option
@pass_opened
def rollback(opened: Opened, model: str, reason: str, who: str) -> None:
    """Put the previous version of the lists back in force.

    Example: mlcost rollback recommendations --reason "withdrawn items in lists"
    """
    from mlcost_pipeline.inference.publication import rollback as roll_back

    opened.settings.model(model)
    version = roll_back(opened.warehouse, opened.clock(model), model, reason=reason, who=who)
    click.echo(f"in force again: {version}")


# ── bills and upkeep ────────────────────────────────────────────────────────────────────────────


@main.group(cls=Group)
def bill() -> None:
    """Billing exports: import them, see what is in force.

    Example: mlcost bill status
    """


@bill.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "form", default="focus", show_default=True)
@pass_opened
def bill_import(opened: Opened, path: Path, form: str) -> None:
    """Take over the deliveries in a file or folder.

    Example: mlcost bill import 2025-06.csv.gz
    """
    from mlcost_pipeline.cost.deliveries import import_bill

    for delivery in import_bill(opened.warehouse, path, format=form):
        click.echo(
            f"{delivery.account} {delivery.period}: {delivery.rows} lines, billed {delivery.billed_total} "
            f"{delivery.currency}, {delivery.state}"
        )


@bill.command("status")
@pass_opened
def bill_status(opened: Opened) -> None:
    """What is in force for each account and month, and whether parts and bill agree.

    Example: mlcost bill status
    """
    from mlcost_pipeline.reports.main_report import print_bill_status

    print_bill_status(opened.warehouse, opened.settings)


@main.command()
@pass_opened
def migrate(opened: Opened) -> None:
    """Bring the warehouse to this version's schema; there has been only one schema yet.

    Example: mlcost migrate
    """
    from mlcost_pipeline.tables import SCHEMA_VERSION

    opened.warehouse  # noqa: B018  opening checks the version and refuses one it does not know
    click.echo(f"the warehouse has schema version {SCHEMA_VERSION}, which is this version's: nothing to do")


def _only(settings: Settings, task: str, model: str | None) -> str:
    if model is not None:
        settings.model(model)
        return model
    fitting = [name for name, block in settings.models.items() if block.task == task]
    if len(fitting) != 1:
        raise MlcostError(f"there are {len(fitting)} {task} models ({', '.join(fitting)}): name one with --model")
    return fitting[0]


def _freeze(opened: Opened, model: str | None, reason: str, who: str, *, frozen: bool) -> None:
    from mlcost_pipeline.evidence import acts

    settings = opened.settings
    if model is not None:
        settings.model(model)
    act = acts.freeze if frozen else acts.unfreeze
    name = model or sorted(settings.models)[0]
    act(opened.warehouse, opened.clock(name), model=model, reason=reason, who=who)
    click.echo(f"{model or 'all models'}: {'frozen' if frozen else 'acting again'}; on record")


if __name__ == "__main__":
    main()
