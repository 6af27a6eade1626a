"""What `mlcost init` says of a bill: how much can be attributed by what, and what to switch on for the rest."""

from __future__ import annotations

from decimal import Decimal

from mlcost_pipeline.cost.first_look.looking import FirstLook
from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.values import Cell

_MOST_ROWS = 12
_RUNG_TEXT = {
    "run_tag": ("tag mlcost_run", "to a run, directly"),
    "model_tag": ("tag mlcost_model or model", "to a model, directly"),
    "other_tag": ("tag {key}", "to a model, by the rules written"),
    "resource": ("a resource id", "once runs are on record: who held the resource when"),
    "derived": ("tax, support, discounts", "in proportion to what they are charged on"),
    "commitment": ("commitments", "their use goes to the runs, what is unused is shown apart"),
    "nothing": ("nothing", "to no model: no tag and no resource id"),
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
        tables=[_by_rung(look), _tags(look), _switch_on(look)],
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


def _switch_on(look: FirstLook) -> Table:
    rows = [[f"column {name}", why] for name, why in sorted(look.absent.items())]
    if look.model_key is None and look.by_rung["model_tag"] == 0:
        rows.append(["tags", "no tag names a model: tag resources with mlcost_model and mlcost_stage, and activate the "
                     "tags in the billing console (tags are seen only from then on, so do it first)"])  # fmt: skip
    for service, amount in look.untagged_services[:5]:
        if amount > 0:
            rows.append([f"{service}", f"{_money(amount)} {look.currency} that no tag names"])
    rows.append(["run records", "docs/run-records.md: a Dagster URL, a context manager, or a table of runs and what "
                 "they held; then shared resources are split by time and share"])  # fmt: skip
    rows += [["check", text] for text in look.warnings]
    rows += [[f"{code}", f"{_money(amount)} {code} is left out of the shares: currencies are never added up"]
             for code, amount in look.other_currencies.items()]  # fmt: skip
    return Table("What to switch on for the rest", ["what", "why"], rows)


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f}"
