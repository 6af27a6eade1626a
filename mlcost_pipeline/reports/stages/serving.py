"""Reports of what goes to users: published lists, lookups served, payments scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import counted, share_of, stage_report
from mlcost_pipeline.reports.pictures import bars
from mlcost_pipeline.reports.values import Cell, Quantity, show, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.inference.publication import Publication
    from mlcost_pipeline.inference.served import Served
    from mlcost_pipeline.settings import Settings


def publication_report(made: Publication, settings: Settings) -> Document:
    """Whether the new version is live, for how many users, and every check that it went through."""
    serving = settings.model(made.model).serving
    checks = made.validation.get("checks", [])
    failed = [check["name"] for check in checks if check["state"] == "failed"]
    judged = sum(check["state"] != "not_judged" for check in checks)
    listed = made.users - made.no_history - made.owns_all
    state = "is live" if made.live else f"is not live ({made.reason})"
    without = made.no_history + made.owns_all
    rows: list[list[Cell]] = [
        [check["name"], str(check["state"]).replace("_", " "), check["sentence"], check["value"], check["bound"]]
        for check in checks
    ]
    doc = Document(
        title=f"Lists of {made.model}",
        summary=(
            f"{made.model}: version {made.version} {state} with {counted(listed, 'list')} for "
            f"{counted(made.users, 'known user')} as of {show(made.data_cut)} UTC; {len(failed)} of "
            f"{counted(judged, 'check')} failed, allowed are 0."
        ),
        numbers=[
            Number("users", "known users", made.users),
            Number("users_listed", "users with a list", listed),
            Number("users_without", "users without", without, bound="served by a fallback"),
            Number("places", "places in lists", made.places, bound=f"at most {serving.stored_length} a user"),
            Number("checks_failed", "checks failed", len(failed), bound="none allowed"),
            Number("coverage", "share of the catalogue listed", made.validation.get("coverage"), "share"),
        ],
        tables=[
            Table("Checks", ["check", "state", "what was found", "value", "bound"], rows, empty="nothing was checked"),
            Table(
                "Users",
                ["who", "users"],
                [
                    ["with a list", listed],
                    ["without: no event on an item that the model knows", made.no_history],
                    ["without: nothing left to recommend", made.owns_all],
                ],
            ),
        ],
        ids={"version": made.version, "model_version": made.model_version},
    )
    return stage_report(doc, settings, model=made.model)


def served_report(found: Served, settings: Settings) -> Document:
    """From which tier lookups were answered, and how old the lists were."""
    span = f"from {show(found.start)} to before {show(found.end)}"
    bound = f"at most {show_number(settings.model(found.model).serving.fallback_share_bound, 'share')}"
    fresh = found.tiers.get("fresh", 0)
    if found.lookups:
        summary = (
            f"{found.model}: {counted(found.lookups, 'lookup')} {span}, "
            f"{show_number(share_of(fresh, found.lookups), 'share')} of them fresh; of those of named treated users "
            f"{show_number(found.fallback_share, 'share')} fell back, {bound} allowed."
        )
    else:
        summary = f"{found.model}: nobody looked anything up {span}, so no tier was tried."
    doc = Document(
        title=f"Lookups served by {found.model}",
        summary=summary,
        numbers=[
            Number("lookups", "lookups", found.lookups),
            Number("users", "users", found.users),
            Number("fresh_users", "users served a fresh list", found.fresh_users),
            Number("fallback_share", "share that fell back", found.fallback_share, "share", bound=bound),
            Number("age_p95_seconds", "age of lists, 95 % below", found.age_p95_seconds, "s"),
            Number("latency_p99_seconds", "latency, 99 % below", found.latency_p99_seconds, "s"),
        ],
        tables=[lookups_table(found)],
        pictures=[bars("Lookups by tier", list(found.tiers.items()), columns=("tier", "lookups"))],
    )
    return stage_report(doc, settings, model=found.model)


def lookups_table(found: Served, *, title: str = "Lookups by tier") -> Table:
    """Tier, arm and reason, the most frequent first."""
    rows: list[list[Cell]] = [
        [
            each.tier,
            each.arm,
            each.reason.replace("_", " "),
            each.lookups,
            each.users,
            Quantity(share_of(each.lookups, found.lookups), "share"),
        ]
        for each in sorted(found.counts, key=lambda c: (-c.lookups, c.tier, c.arm, c.reason))
    ]
    columns = ["tier", "arm", "why", "lookups", "users", "of all lookups"]
    return Table(title, columns, rows, empty=f"nobody looked anything up before {show(found.end)}")
