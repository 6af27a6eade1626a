"""What `mlcost init` says of a bill: how much can be attributed by what, and what to switch on for the rest."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.cost.first_look.looking import FirstLook
from mlcost_pipeline.cost.first_look.tag_keys import MOST_MODELS
from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.values import Cell

_MOST_ROWS = 12
_RUNG_TEXT = {
    "run_tag": ("tag mlcost_run", "to a run, directly"),
    "model_tag": ("tag mlcost_model or model", "to a model, directly"),
    "other_tag": ("tag {key}", "to a model, by rules"),
    "resource": ("a resource id", "to runs, once they are on record"),
    "derived": ("tax, support, discounts", "with what they are charged on"),
    "commitment": ("commitments", "use to runs, unused apart"),
    "nothing": ("nothing", "to nobody"),
}


def first_look_document(look: FirstLook) -> Document:
    """One sentence with the shares, then what names whom, the tags that were found, and what to switch on."""
    now = _percent(look, "run_tag", "model_tag", "other_tag")
    later = _percent(look, "resource")
    follows = _percent(look, "derived", "commitment")
    return Document(
        title=f"First look at {look.path.name}",
        summary=(
            f"{now} of {look.effective:,.2f} {look.currency} (effective) is attributable by tags today, {later} by "
            f"resource once runs are on record; {follows} follows other charges or is a commitment; "
            f"{_percent(look, 'nothing')} names nobody."
        ),
        numbers=[Number("lines", "lines", look.lines)],
        tables=[_by_rung(look), _tags(look)],
        notes=["What to switch on for the rest:", *_switch_on(look)],
    )


def _percent(look: FirstLook, *rungs: str) -> str:
    shares = [look.share(rung) for rung in rungs]
    known = [share for share in shares if share is not None]
    return f"{100 * sum(known):.1f} %" if known else "an unknown share"


def _by_rung(look: FirstLook) -> Table:
    rows = []
    for rung, amount in look.by_rung.items():
        what, whose = _RUNG_TEXT[rung]
        if rung == "other_tag" and look.model_key is None:
            continue
        key = look.model_key.key if look.model_key is not None else ""
        rows.append([what.format(key=key), _money(amount), _percent(look, rung), whose])
    return Table("What names whose a charge is", ["by", look.currency, "share", "goes"], rows)


def _tags(look: FirstLook) -> Table:
    rows: list[list[Cell]] = []
    for key in look.keys[:_MOST_ROWS]:
        use = "names models" if key == look.model_key else "names stages" if key == look.stage_key else ""
        shown = ", ".join(value for value, _ in key.values[:4]) + (", …" if len(key.values) > 4 else "")
        rows.append([key.key, _money(key.effective), len(key.values), shown[:60], use])
    return Table("Tags in the bill", ["key", look.currency, "values", "dearest values", "used here"], rows)


def _switch_on(look: FirstLook) -> list[str]:
    """What is missing and what to do about it, in whole sentences: this is what a team acts on."""
    said = [f"- column {name}: {why}" for name, why in sorted(look.absent.items())]
    if look.model_key is None and look.by_rung["model_tag"] == 0:
        said.append(
            "- tags: no tag names a model; tag resources with mlcost_model and mlcost_stage, and activate the tags in "
            "the billing console (a tag is in the bill only from then on, so do it first)"
        )
    elif look.model_key is not None and len(look.model_key.values) > MOST_MODELS:
        said.append(
            f"- tag {look.model_key.key} has {len(look.model_key.values)} values: the {MOST_MODELS} dearest got a rule "
            "each; drop those that are no models, add those that are missing"
        )
    untagged = [f"{name} {_money(amount)}" for name, amount in look.untagged_services[:5] if amount > 0]
    if untagged:
        said.append(f"- no tag names the models of ({look.currency}): {', '.join(untagged)}")
    said.append(
        "- run records: a Dagster URL, a context manager, or a table of runs and what they held (docs/run-records.md); "
        "then shared resources are split by time and share"
    )
    said += [f"- check: {text}" for text in look.warnings]
    said += [
        f"- {_money(amount)} {code} is left out of the shares: currencies are never added up"
        for code, amount in look.other_currencies.items()
    ]
    return said


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f}"
