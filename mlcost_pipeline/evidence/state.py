"""What a decision depends on besides the evidence: the model's state, its price, a reviewer's word, an act by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.models.base import cuts
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

BUDGET_DAYS = 30


@dataclass(frozen=True)
class Review:
    """A person's word that holds on this day."""

    review_id: str
    evidence_id: str
    verdict: str
    reviewer: str
    note: str
    until: str
    columns: tuple[str, ...]
    """Features that had drifted materially in the evidence it was given on."""


@dataclass(frozen=True)
class Act:
    """What somebody asked for by hand."""

    act_id: str
    verb: str
    who: str
    reason: str


#: What decay is measured in: caught frauds, and hits on held-out days. Clicks added are neither.
DECAY_UNITS = ("fraud_caught", "hits")


@dataclass(frozen=True)
class PolicyState:
    """Everything the rules look at that is not in the record."""

    open_job: str | None = None
    blocked: bool = False
    days_since_change: int | None = None
    """Whole days from the last promotion, or the last turned-down candidate, to the data cut."""
    cooldown_factor: int = 1
    retrains_recent: int = 0
    model_age_days: int | None = None
    retrain_cost: Decimal = Decimal(0)
    cost_source: str = ""
    currency: str = "USD"
    decay_is_outcome: bool = True
    """Whether decay is measured in the outcome that has a price; a proxy has none."""
    review: Review | None = None
    act: Act | None = None


def policy_state(
    warehouse: Warehouse, settings: Settings, model: str, as_of: date, *, review: Review | None, act: Act | None
) -> PolicyState:
    """Read the state of a model as a decision of this day sees it."""
    from mlcost_pipeline.cost.pricing import retrain_price

    stored = warehouse.state.get(f"models/{model}")
    value = {} if stored is None else stored.value
    cut = cuts(settings.model(model), as_of).data_cut
    version = incumbent(warehouse, model)
    price = retrain_price(warehouse, settings, model)
    return PolicyState(
        open_job=value.get("open_job"),
        blocked=value.get("incumbent") in value.get("blocked", []),
        days_since_change=_days_since_change(warehouse, model, value.get("promoted_at"), cut),
        cooldown_factor=int(value.get("cooldown_factor", 1)),
        retrains_recent=_retrains(warehouse, model, as_of),
        model_age_days=None if version is None else (cut - version.training_cut).days,
        retrain_cost=price.amount,
        cost_source=price.source,
        currency=settings.currency,
        decay_is_outcome=settings.model(model).outcome.unit in DECAY_UNITS,
        review=review,
        act=act,
    )


def _days_since_change(warehouse: Warehouse, model: str, promoted_at: str | None, cut: datetime) -> int | None:
    """Counted in dates, so that how long a training took within its day changes no decision."""
    moments = [] if promoted_at is None else [datetime.fromisoformat(promoted_at)]
    ended = warehouse.rows("jobs", columns=["ended_at"], where="model = ? AND state = 'rejected'", params=[model])
    moments += [row["ended_at"] for row in ended if row["ended_at"] is not None]
    return max(0, (cut.date() - max(moments).date()).days) if moments else None


def _retrains(warehouse: Warehouse, model: str, as_of: date) -> int:
    """Jobs that decisions of the 30 days before this one opened."""
    rows = warehouse.query(
        "SELECT count(DISTINCT decision_id) AS n FROM decisions JOIN jobs ON job_id = decision_id "
        "WHERE decisions.model = ? AND as_of < ? AND as_of > ?",
        [model, as_of, as_of - timedelta(days=BUDGET_DAYS)],
        tables=["decisions", "jobs"],
    )
    return int(rows.column("n")[0].as_py())
