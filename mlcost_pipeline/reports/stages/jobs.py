"""Reports of training jobs: every attempt, what it cost, and what on-demand alone would have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, share_of, stage_report
from mlcost_pipeline.reports.pictures import Span, timeline
from mlcost_pipeline.reports.values import Cell, Quantity, show_number
from mlcost_pipeline.spot.jobs import job_state
from mlcost_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from mlcost_pipeline.settings import Settings
    from mlcost_pipeline.spot.accounts import AttemptSummary
    from mlcost_pipeline.spot.supervisor import JobResult

_MARKET = {"spot": "spot", "on_demand": "on-demand"}


def job_report(result: JobResult, settings: Settings, warehouse: Warehouse | None = None) -> Document:
    """How a job stands. Its deadline is read from the warehouse, by default the one that the settings name."""
    store = warehouse or Warehouse(settings.path(settings.warehouse))
    state = job_state(store, result.job_id) or {}
    deadline = datetime.fromisoformat(state["deadline"]) if state.get("deadline") else None
    ended = [a.ended_at for a in result.attempts if a.ended_at is not None]
    in_time = f", {'within' if not deadline or max(ended) <= deadline else 'beyond'} the deploy window" if ended else ""
    currency = settings.currency
    on_demand = None if result.version is None else result.on_demand_usd
    doc = Document(
        title=f"Training of {result.model}",
        summary=f"{result.model}: job {result.job_id} {result.state.replace('_', ' ')} "
        f"{attempts_sentence(result.attempts, result.cost_usd, on_demand, currency)}{in_time}.",
        numbers=[
            Number("attempts", "attempts", len(result.attempts)),
            Number("cost", "cost by pool prices", result.cost_usd, currency),
            Number("on_demand_cost", "on-demand alone", on_demand, currency),
            Number("saved_share", "saved", saved_share(result.cost_usd, on_demand), "share"),
            Number("steps_redone", "steps done twice", sum(a.steps_redone for a in result.attempts)),
            Number("billed_seconds", "time billed", sum(a.billed_seconds for a in result.attempts), "s"),
        ],
        tables=[attempts_table([(result.job_id, a) for a in result.attempts], currency)],
        pictures=attempts_picture(result.model, result.attempts, deadline),
        ids={"job_id": result.job_id, "model_version": result.version, "data_version": state.get("data_version")},
    )
    return stage_report(doc, settings, model=result.model)


def saved_share(cost: Decimal, on_demand: Decimal | None) -> float | None:
    """What was saved against on-demand alone, as a share of it; negative if it cost more, None without a model."""
    return None if on_demand is None else share_of(on_demand - cost, on_demand)


def attempts_sentence(
    attempts: Sequence[AttemptSummary], cost: Decimal, on_demand: Decimal | None, currency: str
) -> str:
    """Which capacity, how much, against how much; ``on_demand`` None where nothing came of it."""
    if not attempts:
        return "has made no attempt yet"
    markets = dict.fromkeys(_MARKET.get(a.market, a.market) for a in attempts)
    where = f"in {counted(len(attempts), 'attempt')} on {' and '.join(markets)} for {show_number(cost, currency)}"
    share = saved_share(cost, on_demand)
    if on_demand is None or share is None:
        return f"{where}, without a candidate so far"
    less = f"{show_number(abs(share), 'share')} {'less' if share >= 0 else 'more'}"
    return f"{where}, against {show_number(on_demand, currency)} on-demand alone ({less})"


def attempts_table(attempts: Sequence[tuple[str, AttemptSummary]], currency: str, *, title: str = "Attempts") -> Table:
    """Every attempt with where it ran, why there, how it ended and what it cost."""
    rows: list[list[Cell]] = [
        [job, a.number, _MARKET.get(a.market, a.market), a.pool, Quantity(a.cost_usd, currency),
         Quantity(a.billed_seconds, "s"), a.started_at, a.ended_at or "still running",
         (a.outcome or "running").replace("_", " "), a.resumed_from, a.reached_step, a.steps_redone,
         a.reason, a.cause or "nothing to tell"]
        for job, a in attempts
    ]  # fmt: skip
    columns = ["job", "attempt", "market", "pool", "cost", "billed", "from (UTC)", "to (UTC)", "ended as", "from step",
               "to step", "done twice", "why this capacity", "why it ended"]  # fmt: skip
    return Table(title, columns, rows, empty="no attempt was made")


def attempts_picture(
    model: str, attempts: Sequence[AttemptSummary], deadline: datetime | None, opened: datetime | None = None
) -> list[Picture]:
    """The attempts over time with the waiting between them; nothing if there were none."""
    if not attempts:
        return []
    spans: list[Span] = []
    at = opened
    for a in attempts:
        lane = f"attempt {a.number}"
        if at is not None and a.started_at > at:
            spans.append(Span(lane, at, a.started_at, "waiting"))
        market = _MARKET.get(a.market, a.market)
        hint = f"{a.pool}, {(a.outcome or 'running').replace('_', ' ')}"
        spans.append(Span(lane, a.started_at, a.ended_at, market, f"{hint}: {a.cause}" if a.cause else hint))
        at = a.ended_at
    until = max(a.ended_at or a.started_at for a in attempts)
    return [timeline(f"Attempts to train {model}", spans, until=until, deadline=deadline)]
