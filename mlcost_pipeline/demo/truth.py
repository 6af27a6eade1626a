"""The right answers: what was planted, counted and priced where it was made, for tests to hold the pipeline against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from mlcost_pipeline.demo.catalogue import Catalogue
from mlcost_pipeline.demo.cloud import Charge, Cloud, charges
from mlcost_pipeline.demo.past_runs import DayRuns, owners
from mlcost_pipeline.demo.payments import CATEGORIES, SMALL_CATEGORY, payments_of
from mlcost_pipeline.demo.people import SEGMENTS, SEQUENCE_SHARE
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.planted import months, planted_of
from mlcost_pipeline.demo.shown import Shown
from mlcost_pipeline.demo.visits import ANONYMOUS, DayVisits

_DIGITS = 15


@dataclass
class Tally:
    """Counts gathered while the days are made."""

    clicks: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    expected: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_segment: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    events: Counter[str] = field(default_factory=Counter)

    def add(self, plan: Plan, visits: DayVisits, shown: Shown, segment: Mapping[int, str]) -> None:
        """Count one day. Added: what known users of the treated arm are expected to click beyond the popular list."""
        month = f"{plan.day(visits.day):%Y-%m}"
        added = (shown.chance - shown.chance_popular).sum(axis=1)
        clicks = shown.clicked.sum(axis=1)
        for number, user in enumerate(visits.user.tolist()):
            if user == ANONYMOUS:
                continue
            arm = shown.arm[number]
            self.clicks[month].update({f"{arm}_lookups": 1, f"{arm}_clicks": int(clicks[number])})
            if arm == "treated":
                self.expected[month] += float(added[number])
                self.by_segment[segment[user]] += float(added[number])
        self.events.update(kind for *_, kind in visits.events)
        self.events["click"] += int(shown.clicked.sum())
        self.events["anonymous"] += sum(int(visits.user[session]) == ANONYMOUS for session, *_ in visits.events)


def truth_of(plan: Plan, catalogue: Catalogue, cloud: Cloud, runs: Sequence[DayRuns], tally: Tally) -> dict[str, Any]:
    """The truth file of a shop."""
    return {
        "simulated": True,
        "seed": plan.seed,
        "first_event_not_before": plan.opening(0).isoformat(),
        "first_day": str(plan.day(0)),
        "last_day": str(plan.day(plan.days - 1)),
        "drift": {"model": "fraud", "day": plan.drift_day, "date": str(plan.day(plan.drift_day))},
        "empty_day": {"table": "transactions", "date": str(plan.day(plan.empty_day))},
        "sequence_share": dict(zip(SEGMENTS, SEQUENCE_SHARE, strict=True)),
        "withdrawn_items": int((catalogue.withdrawn < plan.days).sum()),
        "events": dict(sorted(tally.events.items())),
        "added_clicks": {
            month: {**dict(sorted(counts.items())), "expected_added": round(tally.expected[month], 6)}
            for month, counts in sorted(tally.clicks.items())
        },
        "added_clicks_by_segment": {name: round(value, 6) for name, value in sorted(tally.by_segment.items())},
        "fraud": _frauds(plan),
        "runs": _runs(runs),
        "bill": {period: _month(plan, cloud, runs, period) for period in months(plan)},
    }


def _frauds(plan: Plan) -> dict[str, Any]:
    payments, frauds = Counter[str](), Counter[str]()
    small = Counter[str]()
    for day in range(plan.days):
        now = payments_of(plan, day)
        side = "after" if day >= plan.drift_day else "before"
        payments[side] += len(now.ids)
        frauds[side] += int(now.fraud.sum())
        in_small = now.category == CATEGORIES.index(SMALL_CATEGORY)
        small.update(payments=int(in_small.sum()), frauds=int(now.fraud[in_small].sum()))
    total = sum(payments.values())
    return {
        "payments": total,
        "frauds": sum(frauds.values()),
        "rate": round(sum(frauds.values()) / max(1, total), 6),
        "rate_before_drift": round(frauds["before"] / max(1, payments["before"]), 6),
        "rate_after_drift": round(frauds["after"] / max(1, payments["after"]), 6),
        "small_category": {"name": SMALL_CATEGORY, **small},
    }


def _runs(runs: Sequence[DayRuns]) -> dict[str, int]:
    records = [row for day in runs for row in day.run_records]
    return dict(sorted(Counter(f"{row['model']}/{row['stage']}/{row['status']}" for row in records).items()))


def _month(plan: Plan, cloud: Cloud, runs: Sequence[DayRuns], period: str) -> dict[str, Any]:
    """One month up to the end of history, as restated: who caused what, what stood idle, what nobody explains."""
    planted = planted_of(plan, period)
    end = min(planted.end, plan.midnight(plan.days))
    holds = [row for day in runs for row in day.occupancy]
    resources = [row for day in runs for row in day.resources]
    usage = charges(cloud, holds, resources, planted.start, end)
    total = sum((charge.amount for charge in usage), Decimal(0))
    spend, idle = _split(usage, holds, resources, owners(runs))
    extras: dict[str, Decimal] = defaultdict(Decimal)
    for extra in planted.extras(total, end):
        extras[extra.name] += extra.amount
    wrong = sum((planted.misprice(charge).amount for charge in usage), Decimal(0)) - total
    return {
        "until": end.isoformat(),
        "whole": end == planted.end,
        "total": f"{total + sum(extras.values(), Decimal(0)):f}",
        "spend": {
            model: {stage: _text(part) for stage, part in sorted(parts.items())}
            for model, parts in sorted(spend.items())
        },
        "idle": {resource_id: _text(part) for resource_id, part in sorted(idle.items())},
        "unattributed": {name: f"{amount:f}" for name, amount in sorted(extras.items())},
        "unattributed_by_reason": {"unknown_resource": f"{extras['unknown_resource']:f}"},
        # Charges on charges: they follow what everything else cost, in proportion.
        "derived": {name: f"{extras[name]:f}" for name in ("credit", "support", "tax")},
        "overcharged_in_first_delivery": f"{wrong:f}",
    }  # fmt: skip


def _split(
    usage: Sequence[Charge], holds: Sequence[Mapping[str, Any]], resources: Sequence[Mapping[str, Any]],
    owner: Mapping[str, tuple[str, str]],
) -> tuple[dict[str, dict[str, Fraction]], dict[str, Fraction]]:  # fmt: skip
    """Each charge by seconds held times share, over the larger of the sum and the capacity; the rest is idle."""
    capacity = {row["resource_id"]: row["capacity_milli"] for row in resources}
    held: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in holds:
        held[row["resource_id"], row["run_id"]].append(row)
    spend: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    idle: dict[str, Fraction] = defaultdict(Fraction)
    for charge in usage:
        weights = {run_id: _weight(charge, held[charge.resource_id, run_id]) for run_id in charge.runs}
        whole = max(sum(weights.values(), Fraction(0)), Fraction(capacity[charge.resource_id] * charge.seconds))
        rest = amount = Fraction(charge.amount)
        for run_id, weight in weights.items():
            model, stage = owner[run_id]
            spend[model][stage] += amount * weight / whole
            rest -= amount * weight / whole
        if rest:
            idle[charge.resource_id] += rest
    return spend, idle


def _weight(charge: Charge, rows: Sequence[Mapping[str, Any]]) -> Fraction:
    total = Fraction(0)
    for row in rows:
        overlap = min(charge.end, row["end"]) - max(charge.start, row["start"])
        total += Fraction(int(overlap.total_seconds()) * row["share_milli"]) if overlap.total_seconds() > 0 else 0
    return total


def _text(amount: Fraction) -> str:
    return f"{round(Decimal(amount.numerator) / Decimal(amount.denominator), _DIGITS):f}"
