"""What a person should look at in a bill that was taken over: kinds of charges nobody knows, charges there twice."""

from __future__ import annotations

from collections.abc import Iterator

from mlcost_pipeline.cost.exact import plain
from mlcost_pipeline.cost.split_charges import Doubled
from mlcost_pipeline.cost.staging import Found

_CATEGORIES = frozenset({"Usage", "Purchase", "Tax", "Credit", "Adjustment"})


def warnings(found: Found, doubled: Doubled) -> Iterator[str]:
    """Warnings about one account and period, and what of it is there twice."""
    where = f"account {found.account}, {found.period}"
    currency = min(found.currencies)
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
