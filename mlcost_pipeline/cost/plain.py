"""Cost per outcome from plain rows: no warehouse, no settings; for a notebook, or another team's pipeline.

The very rules and queries of the ledger on whatever rows are at hand, so that the answer is the one it would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mlcost_pipeline.cost.attribution import attributing
from mlcost_pipeline.cost.books import Ask
from mlcost_pipeline.cost.device_ladder import Ladder, ladders_of
from mlcost_pipeline.cost.month_spend import NOTHING_SPENT, Estimates, retrains_by_month, spend_by_month
from mlcost_pipeline.cost.plain_rows import ACCOUNT, PERIOD, Rows, charges_of, rows_of, run_tables, runs_by_id
from mlcost_pipeline.cost.ratio import Ratio, divided, per_count
from mlcost_pipeline.cost.slots import money_sum
from mlcost_pipeline.cost.snapshot import Snapshot, build
from mlcost_pipeline.cost.utilisation import Utilisation, utilisation
from mlcost_pipeline.database import connect
from mlcost_pipeline.errors import BillError
from mlcost_pipeline.rows import conform
from mlcost_pipeline.settings import Rule
from mlcost_pipeline.tables import TABLES

_NOTHING_ESTIMATED = Estimates((), {}, {})


@dataclass(frozen=True)
class PlainCost(Mapping[str, Any]):
    """What `model` cost and earned in the rows that were given. Money is in `currency`.

    Also a mapping of plain values, those of :meth:`as_dict`: ``cost["per_outcome"]`` is a Decimal, or None where it is
    ∞ or unknown, with the reason under ``per_outcome_reason``.
    """

    model: str
    currency: str
    total: Decimal
    by_stage: Mapping[str, Decimal]
    by_method: Mapping[str, Decimal]
    by_run_outcome: Mapping[str, Decimal]
    outcomes: float | None
    per_outcome: Ratio
    training: Utilisation
    serving: Utilisation
    ladders: tuple[Ladder, ...]
    per_thousand_predictions: Decimal | None
    retrains: int
    per_retrain: Decimal | None
    provisional: bool
    notes: tuple[str, ...] = ()

    @property
    def training_utilisation(self) -> float | None:
        """Busy ÷ billed hours of training where it was measured; None (unknown) if nothing was."""
        return self.training.share

    @property
    def serving_utilisation(self) -> float | None:
        """As :attr:`training_utilisation`, of serving."""
        return self.serving.share

    @property
    def method_shares(self) -> dict[str, float]:
        """The share of `total` by the rung of attribution that gave it."""
        return {name: float(amount / self.total) for name, amount in self.by_method.items()} if self.total else {}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON would have them but for the Decimals."""
        ratio = self.per_outcome
        return {
            "model": self.model, "currency": self.currency, "total": self.total, "by_stage": dict(self.by_stage),
            "by_method": dict(self.by_method), "method_shares": self.method_shares,
            "by_run_outcome": dict(self.by_run_outcome), "outcomes": self.outcomes, "per_outcome": ratio.value,
            "per_outcome_low": ratio.low, "per_outcome_high": ratio.high, "per_outcome_reason": ratio.reason,
            "training_utilisation": self.training_utilisation, "serving_utilisation": self.serving_utilisation,
            "training_coverage": self.training.coverage, "serving_coverage": self.serving.coverage,
            "per_thousand_predictions": self.per_thousand_predictions, "retrains": self.retrains,
            "per_retrain": self.per_retrain, "provisional": self.provisional, "notes": self.notes,
        }  # fmt: skip

    def __getitem__(self, key: str) -> Any:
        return self.as_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())


def cost_per_outcome(
    billing: Rows,
    runs: Rows | Mapping[str, Mapping[str, Any]],
    outcomes: Rows | Mapping[str, float],
    model: str,
    *,
    resources: Rows = (),
    predictions: int | None = None,
    rules: Sequence[Rule] = (),
) -> PlainCost:
    """Spend of `model` by stage, by what became of its runs, and for one of its outcomes.

    Rows are mappings, or an Arrow table.

    Args:
        billing: charges of one currency. An amount: ``effective`` (Decimal, int or text), or ``hours`` and ``rate``. A
            time: ``charge_start`` and ``charge_end``, or the ``run_id`` of a run and ``hours``. Whose it is:
            ``run_id``, ``resource_id``, ``tags``. Optionally ``billed``, ``category`` (Usage), ``service``,
            ``invoice_id`` (where any charge names one or a null, one without is open, and the result provisional; where
            none says anything of it, ``notes`` say that this is not known),
            ``commitment_status``, ``currency`` (USD). Without ``effective`` or a rate, what was billed is taken for it,
            and ``notes`` say so.
        runs: ``run_id``, ``model``, ``stage``, ``started_at``, ``ended_at``; optionally ``resource_id`` with
            ``share_milli`` (1000), ``status`` (succeeded), ``shipped``, and every column of the table ``run_records``:
            ``busy_seconds``, ``busy_metric``, ``busy_coverage``, ``job_id``, ``steps_done``, ``steps_redone``. Or a
            mapping of run ids to such rows.
        outcomes: ``model``, ``count``; optionally ``low``, ``high``, ``state``, ``unit`` and ``definition_version``.
            Counts are added up, and so are bounds; a count without either bound is exact, one without one of them has
            an unknown end. Or a mapping of models to exact counts.
        resources: rows of the table ``resources``; a resource that is not among them is one device.
        predictions: how many predictions the model made.
        rules: whose charges are that name nobody, as ``rules`` of mlcost.yaml.

    Raises:
        NothingCompared: there is no charge at all.
        BillError: a row that cannot be right, by its number and field; or outcomes of several units or definitions.
    """
    by_id = runs_by_id(runs)
    charges = charges_of(billing, by_id)
    tables = run_tables(by_id)
    owners = {model, *(str(run["model"]) for run in by_id.values())}
    capacities = [{"kind": "unknown", **row} for row in rows_of(resources)]
    known = build(tables["run_records"].to_pylist(), tables["occupancy"].to_pylist(), capacities, owners, rules)
    ask = _asking({**tables, **_attributed(charges.slots, known, charges.currency)})
    found = _made(ask, model, charges.currency, _counts(outcomes, model), predictions)
    return replace(found, provisional=found.provisional or charges.provisional, notes=charges.notes)


def _made(
    ask: Ask, model: str, currency: str, counts: Sequence[Mapping[str, Any]], predictions: int | None
) -> PlainCost:  # fmt: skip
    spent = spend_by_month(ask, model, _NOTHING_ESTIMATED).get(PERIOD, NOTHING_SPENT)
    jobs = retrains_by_month(ask, model, _NOTHING_ESTIMATED).values()
    retrains, retrain_cost = sum(month.jobs for month in jobs), money_sum(month.cost for month in jobs)
    ladders = tuple(replace(ladder, rests_on=()) for ladder in ladders_of(ask) if ladder.model == model)
    bounds = _bounds(counts)
    return PlainCost(
        model=model,
        currency=currency,
        total=spent.total,
        by_stage=spent.by_stage,
        by_method=spent.by_method,
        by_run_outcome=spent.by_run_outcome,
        outcomes=bounds[0],
        per_outcome=per_count(spent.total, *bounds),
        training=utilisation(ladder for ladder in ladders if ladder.stage == "training"),
        serving=utilisation(ladder for ladder in ladders if ladder.stage == "serving"),
        ladders=ladders,
        per_thousand_predictions=None if predictions is None else divided(spent.total * 1000, predictions),
        retrains=retrains,
        per_retrain=divided(retrain_cost, retrains),
        provisional=any(row.get("state") == "provisional" for row in counts),
    )


def _attributed(slots: pa.Table, known: Snapshot, currency: str) -> dict[str, pa.Table]:
    """The charges' ledger and device time."""
    with attributing(slots, known) as attribution:
        parts = [pa.Table.from_batches([batch]) for batch in attribution.parts()]
        found = {"cost_ledger": pa.concat_tables(parts), "device_time": attribution.device_time()}
    common = {"ledger_version": ACCOUNT, "delivery_id": ACCOUNT, "account": ACCOUNT, "period": PERIOD,
              "currency": currency}  # fmt: skip
    return {name: conform(TABLES[name], _with(table, TABLES[name].columns, common)) for name, table in found.items()}


def _with(table: pa.Table, columns: Sequence[str], values: Mapping[str, str]) -> pa.Table:
    for name in columns:
        if name in values:
            table = table.append_column(name, pa.array([values[name]] * table.num_rows, pa.string()))
    return table


def _asking(tables: Mapping[str, pa.Table]) -> Ask:
    """Queries over tables at hand."""

    def ask(sql: str, params: Sequence[Any], names: Iterable[str]) -> pa.Table:
        connection = connect()
        try:
            for name in names:
                connection.register(name, tables[name])
            found: pa.Table = connection.sql(sql, params=list(params)).to_arrow_table()
            return found
        finally:
            connection.close()

    return ask


def _counts(outcomes: Rows | Mapping[str, float], model: str) -> list[Mapping[str, Any]]:
    if isinstance(outcomes, Mapping):
        return [{"count": outcomes[model]}] if outcomes.get(model) is not None else []
    rows: list[Mapping[str, Any]] = [row for row in rows_of(outcomes) if row["model"] == model]
    meant = sorted({f"{row.get('unit')} v{row.get('definition_version')}" for row in rows})
    if len(meant) > 1:
        raise BillError(
            f"outcomes of {model}: counted as {' and '.join(meant)}; give those of one definition at a time"
        )
    return rows


def _bounds(counts: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None, float | None]:
    if not counts:
        return None, None, None
    exact = [row.get("low") is None and row.get("high") is None for row in counts]
    lows, highs = (
        [row["count"] if whole else row.get(name) for row, whole in zip(counts, exact, strict=True)]
        for name in ("low", "high")
    )
    return (
        float(sum(row["count"] for row in counts)),
        None if None in lows else float(sum(low for low in lows if low is not None)),
        None if None in highs else float(sum(high for high in highs if high is not None)),
    )
