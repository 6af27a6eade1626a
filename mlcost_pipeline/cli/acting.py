"""Commands by which a person acts; each stays on record with who and why."""

from __future__ import annotations

import click

from mlcost_pipeline.cli.opened import Opened, pass_opened, reason_option, who_option


@click.command()
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


@click.command()
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


@click.command()
@click.argument("model", required=False)
@reason_option
@who_option
@pass_opened
def freeze(opened: Opened, model: str | None, reason: str, who: str) -> None:
    """Stop all acting, of one model or of all: everything is still decided and recorded.

    Example: mlcost freeze --reason "audit"
    """
    _freeze(opened, model, reason, who, frozen=True)


@click.command()
@click.argument("model", required=False)
@reason_option
@who_option
@pass_opened
def unfreeze(opened: Opened, model: str | None, reason: str, who: str) -> None:
    """Let a model, or all, act again.

    Example: mlcost unfreeze --reason "audit is over"
    """
    _freeze(opened, model, reason, who, frozen=False)


@click.command()
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


@click.command()
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


@click.command()
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


def _freeze(opened: Opened, model: str | None, reason: str, who: str, *, frozen: bool) -> None:
    from mlcost_pipeline.evidence import acts

    settings = opened.settings
    if model is not None:
        settings.model(model)
    act = acts.freeze if frozen else acts.unfreeze
    name = model or sorted(settings.models)[0]
    act(opened.warehouse, opened.clock(name), model=model, reason=reason, who=who)
    click.echo(f"{model or 'all models'}: {'frozen' if frozen else 'acting again'}; on record")


COMMANDS = (
    retrain,
    rearm,
    freeze,
    unfreeze,
    review,
    cancel,
    rollback,
)
