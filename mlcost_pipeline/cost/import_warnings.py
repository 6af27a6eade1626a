"""What a person should look at in a bill that was taken over: kinds of charges nobody knows, charges there twice."""

from __future__ import annotations

from collections.abc import Iterator

from mlcost_pipeline.cost.bills.exports import Export
from mlcost_pipeline.cost.bills.files import has_open_end
from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.cost.split_charges import Doubled
from mlcost_pipeline.cost.staging import Found

_CATEGORIES = frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"})


def warnings(found: Found, doubled: Doubled) -> Iterator[str]:
    """Warnings about one account and period, and what of it is there twice."""
    where = f"account {found.account}, {found.period}"
    currency = min(found.currencies)
    yield from found.repeated
    if unknown := sorted(found.categories - _CATEGORIES):
        yield f"{where}: charges of unknown kind {', '.join(unknown)} are kept and stay unattributed"
    if doubled.unsure:
        yield (
            f"{where}: {doubled.unsure} charges look like those that the provider split into allocated parts, "
            "which do not add up to them; both count, so look whether they are there twice"
        )
    if doubled.n:
        yield (
            f"{where}: {doubled.n} charges of {plain(doubled.sums['billed'])} {currency} are there as a "
            "whole and as parts that the provider allocated; the parts count"
        )


def warnings_of_files(export: Export) -> Iterator[str]:
    """Warnings about the files of an export: those that may be cut off, and those beside it that were not read."""
    for file in export.files:
        if file not in export.sized and has_open_end(file):
            yield (
                f"{file}: its last line has no end; every field is there, but if the file was cut off within the last "
                "one that does not show, so compare the total with that of your console"
            )
    if export.unlisted:
        names = ", ".join(str(file) for file in export.unlisted[:5])
        more = f" and {len(export.unlisted) - 5} more" if len(export.unlisted) > 5 else ""
        yield f"not read, because no manifest names them: {names}{more}; import them by name if they are bills too"
