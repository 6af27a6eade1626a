"""What was trained on which capacity, what that cost, and what on-demand alone would have cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from textwrap import shorten
from typing import Any

from mlcost_pipeline.clock import model_clock
from mlcost_pipeline.cost.books import books
from mlcost_pipeline.cost.prices import billed_runs
from mlcost_pipeline.cost.run_months import unsettled_runs
from mlcost_pipeline.reports.document import ESTIMATE, PROVISIONAL, Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import dressed, listed, summed
from mlcost_pipeline.reports.stages.jobs import attempts_picture, attempts_sentence, attempts_table, saved_share
from mlcost_pipeline.reports.values import Cell, Quantity
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.accounts import AttemptSummary, on_demand_cost, summarise
from mlcost_pipeline.spot.attempts import attempts_of
from mlcost_pipeline.spot.jobs import require_job
from mlcost_pipeline.warehouse import Warehouse

TITLE = "What was trained, on which capacity, for how much"


@dataclass(frozen=True)
class Trained:
    """A job with its attempts.

    `on_demand` is None where no candidate came of it; `billed` is what bills say, None before they say all of it, and
    `may_change` while one of them is open or to come.
    """

    job: Mapping[str, Any]
    opened: datetime
    attempts: list[AttemptSummary]
    cost: Decimal
    on_demand: Decimal | None
    billed: Decimal | None
    may_change: bool

    @property
    def model(self) -> str:
        return str(self.job["model"])

    def pictures(self) -> list[Picture]:
        """The attempts over time; nothing before the first."""
        return attempts_picture(self.model, self.attempts, self.job["deadline"], self.opened)


def trained(warehouse: Warehouse, settings: Settings) -> Document:
    """The newest job of each model in a sentence and a picture; all attempts in one table."""
    jobs = _jobs(warehouse, settings)
    newest = {job.model: job for job in jobs}
    sentences = [_sentence(model, newest.get(model), settings.currency) for model in settings.models]
    pairs = [(job.cost, job.on_demand) for job in jobs if job.on_demand is not None]
    cost, on_demand = summed([job.cost for job in jobs]), summed([alone for _, alone in pairs])
    finished = summed([own for own, _ in pairs])
    attempts = [(str(job.job["job_id"]), a) for job in jobs for a in job.attempts]
    doc = Document(
        title=TITLE,
        summary=listed(sentences, "no model is configured") + ".",
        numbers=[
            Number("jobs", "jobs", len(jobs)),
            Number("attempts", "attempts", len(attempts)),
            Number("cost", "cost by pool prices", cost if jobs else None, settings.currency),
            Number("on_demand_cost", "on-demand alone", on_demand if pairs else None, settings.currency),
            Number("saved_share", "saved", saved_share(finished, on_demand if pairs else None), "share"),
            Number("steps_redone", "steps done twice", sum(a.steps_redone for _, a in attempts)),
        ],
        tables=[
            _jobs_table(jobs, settings.currency),
            attempts_table(attempts, settings.currency),
            _by_month(warehouse),
            _versions(warehouse),
        ],
        pictures=[picture for job in newest.values() for picture in job.pictures()],
        notes=[
            "On-demand alone is the same useful work, each step once, with one start, on the cheapest on-demand pool."
        ],
    )
    unbilled = any(job.billed is None for job in jobs)
    open_ = any(job.billed is not None and job.may_change for job in jobs)
    marks = [*([ESTIMATE] if unbilled else []), *([PROVISIONAL] if open_ else [])]
    return dressed(doc.marked(*marks), settings)


def _jobs(warehouse: Warehouse, settings: Settings) -> list[Trained]:
    """Jobs in the order of their opening."""
    billed, unsettled = billed_runs(warehouse), unsettled_runs(warehouse, books(warehouse, None))
    found = []
    for row in warehouse.rows("jobs"):
        if row["model"] not in settings.models:
            continue
        clock = model_clock(warehouse, settings, row["model"])
        attempts = attempts_of(warehouse, row["job_id"])
        summaries = [summarise(attempt, clock.now()) for attempt in attempts]
        bills = [billed[attempt.run_id] for attempt in attempts if attempt.run_id in billed]
        state = require_job(warehouse, row["job_id"])
        candidate = state.get("candidate") is not None
        found.append(
            Trained(
                job=row,
                opened=datetime.fromisoformat(state["opened_at"]),
                attempts=summaries,
                cost=summed([summary.cost_usd for summary in summaries]),
                on_demand=on_demand_cost(warehouse, settings, clock, row["model"], attempts) if candidate else None,
                billed=summed(bills) if bills and len(bills) == len(attempts) else None,
                may_change=any(attempt.run_id in unsettled for attempt in attempts),
            )
        )
    return sorted(found, key=lambda job: (job.opened, str(job.job["job_id"])))


def _sentence(model: str, job: Trained | None, currency: str) -> str:
    if job is None:
        return f"{model}: nothing was trained, because no job was opened"
    state = str(job.job["state"])
    return f"{model}: {state} {attempts_sentence(job.attempts, job.cost, job.on_demand, currency)}"


def _jobs_table(jobs: list[Trained], currency: str) -> Table:
    rows: list[list[Cell]] = []
    for job in reversed(jobs):
        ended = max((a.ended_at for a in job.attempts if a.ended_at is not None), default=None)
        alone: Cell = "no candidate" if job.on_demand is None else Quantity(job.on_demand, currency)
        saved: Cell = (
            "no candidate" if job.on_demand is None else Quantity(saved_share(job.cost, job.on_demand), "share")
        )
        reason = shorten(job.job["reason"] or "", 90, placeholder=" …")
        billed: Cell = "not billed yet" if job.billed is None else Quantity(job.billed, currency)
        rows.append([
            job.model, job.job["state"], len(job.attempts), Quantity(job.cost, currency), alone, saved, billed,
            job.opened, ended or "not ended", job.job["deadline"], job.job["job_id"], reason,
        ])  # fmt: skip
    columns = ["model", "state", "attempts", "by pool prices", "on-demand alone", "saved", "billed", "opened (UTC)",
               "trained until (UTC)", "deadline (UTC)", "job", "because"]  # fmt: skip
    return Table("Jobs, newest first", columns, rows, empty="no decision has opened a job yet")


def _by_month(warehouse: Warehouse) -> Table:
    """All training runs on record, also those of before this pipeline."""
    found = warehouse.query(
        "SELECT strftime(started_at, '%Y-%m') AS month, model, coalesce(market, 'unknown') AS market, "
        "count(*) AS runs, "
        "sum(epoch(ended_at) - epoch(started_at)) AS seconds, count(*) FILTER (status <> 'succeeded') AS broken, "
        "sum(steps_redone) AS redone FROM run_records WHERE purpose = 'retrain' GROUP BY ALL ORDER BY ALL DESC",
        tables=["run_records"],
    ).to_pylist()
    rows: list[list[Cell]] = [
        [
            row["month"],
            row["model"],
            str(row["market"]).replace("_", "-"),
            row["runs"],
            Quantity(row["seconds"], "s"),
            row["broken"],
            None if row["redone"] is None else int(row["redone"]),
        ]
        for row in found
    ]
    columns = ["month", "model", "market", "runs", "time", "did not succeed", "steps done twice"]
    return Table("All training runs on record", columns, rows, empty="no training run is on record")


def _versions(warehouse: Warehouse) -> Table:
    found = sorted(
        warehouse.rows("model_versions"), key=lambda row: (row["training_cut"], row["version"]), reverse=True
    )
    rows: list[list[Cell]] = [
        [
            row["model"],
            row["version"],
            row["family"],
            row["training_cut"],
            "not judged" if row["gate_passed"] is None else "passed" if row["gate_passed"] else "failed",
            row["promoted_at"] or "never",
            row["retired_at"] or ("in force" if row["promoted_at"] else "never in force"),
        ]
        for row in found
    ]
    columns = ["model", "version", "family", "training cut (UTC)", "gate", "promoted (UTC)", "retired (UTC)"]
    return Table("Versions, newest first", columns, rows, empty="no version was trained yet")
