"""Fully loaded views: money that is nobody's spread over the models. Views over the ledger, never stored in it.

What a model carries is shown beside its own cost, under the policy that was asked for; the sum is the bill's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from mlcost_pipeline.cost.slots import from_units, to_units

Policy = Literal["proportional", "even", "none"]


@dataclass(frozen=True)
class Loaded:
    """A model's own effective cost and what it carries; of the policy `none` it carries nothing."""

    model: str
    own: Decimal
    carried: Decimal

    @property
    def total(self) -> Decimal:
        return from_units(to_units(self.own) + to_units(self.carried))


def fully_loaded(own: Mapping[str, Decimal], nobodys: Decimal, policy: Policy) -> tuple[list[Loaded], Decimal]:
    """Every model's cost with its part of what is `nobodys`, and what stays nobody's (all of it under `none`).

    Parts are whole units of 1e-18 by cumulative rounding over the models by name, so that the sum never changes.
    """
    ordered = dict(sorted(own.items()))
    rest, weights = to_units(nobodys), _weights(ordered, policy)
    if not any(weights):
        return [Loaded(model, amount, Decimal(0)) for model, amount in ordered.items()], nobodys
    found, before, upto, whole = [], 0, 0, sum(weights)
    for (model, amount), weight in zip(ordered.items(), weights, strict=True):
        upto += weight
        share = rest * upto // whole
        found.append(Loaded(model, amount, from_units(share - before)))
        before = share
    return found, Decimal(0)


def _weights(own: Mapping[str, Decimal], policy: Policy) -> Sequence[int]:
    if policy == "even":
        return [1] * len(own)
    if policy == "proportional":
        return [max(0, to_units(amount)) for amount in own.values()]
    return [0] * len(own)
