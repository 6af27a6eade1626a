"""What became of the runs that money was spent on: kept, redone, failed, interrupted, superseded, repeated, unshipped.

A run's outcome is derived from what is on record at the time of asking, so that it changes when the world does: a
version is promoted, a partition is made anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

from mlcost_pipeline.cost.slots import from_units, to_units
from mlcost_pipeline.warehouse import Warehouse

SUCCEEDED, INTERRUPTED, NEVER_SHIPPED, SUPERSEDED, REPEATED, REDONE, NO_RUN = (
    "succeeded", "interrupted", "never_shipped", "superseded", "repeated", "redone", "no_run",
)  # fmt: skip

#: The tables that :data:`RUN_OUTCOMES` reads.
TABLES = ("run_records", "model_versions", "jobs", "publications")

# Whether anybody can have used a result between two moments: runs of the model's other assets that were under way then,
# as those begun before the later moment less those over by the earlier one (cumulative counts, looked up by time).
_COUNTS = """
{name} AS (SELECT model, asset, moment, sum(count(*)) OVER (PARTITION BY model, asset ORDER BY moment) AS n FROM (
    SELECT model, NULL AS asset, {column} AS moment FROM run_records WHERE {column} IS NOT NULL
    UNION ALL SELECT model, asset, {column} FROM run_records WHERE {column} IS NOT NULL AND asset IS NOT NULL)
  GROUP BY model, asset, moment)"""

#: CTEs ending in ``run_outcomes``: run_id, model, stage, purpose, job_id, outcome, replaced_by, kept, redone_share.
RUN_OUTCOMES = f"""
shipped AS (SELECT DISTINCT job_id FROM model_versions WHERE promoted_at IS NOT NULL),
closed AS (SELECT job_id FROM jobs WHERE state <> 'open'),
unpublished AS (
  SELECT run_id FROM publications WHERE run_id IS NOT NULL GROUP BY run_id HAVING count(published_at) = 0),
again AS (
  SELECT run_id FROM run_records WHERE status = 'succeeded' AND asset IS NOT NULL AND code_version IS NOT NULL
    AND inputs_version IS NOT NULL
  QUALIFY row_number() OVER (
    PARTITION BY model, asset, partition, code_version, inputs_version ORDER BY started_at, run_id) > 1),
remade AS (
  SELECT * FROM (
    SELECT run_id, model, asset, ended_at, lead(run_id) OVER w AS later, lead(ended_at) OVER w AS until
    FROM run_records WHERE status = 'succeeded' AND stage <> 'serving' AND asset IS NOT NULL
      AND partition IS NOT NULL AND run_id NOT IN (SELECT run_id FROM again)
    WINDOW w AS (PARTITION BY model, asset, partition ORDER BY started_at, run_id))
  WHERE later IS NOT NULL AND until >= ended_at),
{_COUNTS.format(name="begun", column="started_at").strip()},
{_COUNTS.format(name="finished", column="ended_at").strip()},
unused AS (
  SELECT r.run_id, r.later FROM remade r
  ASOF LEFT JOIN (SELECT * FROM begun WHERE asset IS NULL) ba ON ba.model = r.model AND ba.moment < r.until
  ASOF LEFT JOIN (SELECT * FROM begun WHERE asset IS NOT NULL) bo
    ON bo.model = r.model AND bo.asset = r.asset AND bo.moment < r.until
  ASOF LEFT JOIN (SELECT * FROM finished WHERE asset IS NULL) oa ON oa.model = r.model AND oa.moment <= r.ended_at
  ASOF LEFT JOIN (SELECT * FROM finished WHERE asset IS NOT NULL) oo
    ON oo.model = r.model AND oo.asset = r.asset AND oo.moment <= r.ended_at
  WHERE coalesce(ba.n, 0) - coalesce(bo.n, 0) <= coalesce(oa.n, 0) - coalesce(oo.n, 0)),
named AS (
  SELECT r.run_id, r.model, r.stage, r.purpose, r.job_id, coalesce(r.superseded_by, u.later) AS replaced_by,
    CASE WHEN r.steps_done > 0 AND r.steps_redone > 0 THEN least(r.steps_redone, r.steps_done) END AS steps_again,
    r.steps_done,
    CASE WHEN r.superseded_by IS NOT NULL THEN 'superseded'
      WHEN r.status <> 'succeeded' THEN r.status
      WHEN r.purpose = 'retrain' AND r.job_id IN (FROM closed) AND r.job_id NOT IN (FROM shipped) THEN 'never_shipped'
      WHEN r.run_id IN (FROM unpublished) THEN 'never_shipped'
      WHEN r.run_id IN (FROM again) THEN 'repeated'
      WHEN u.run_id IS NOT NULL THEN 'superseded'
      ELSE 'succeeded' END AS outcome
  FROM run_records r LEFT JOIN unused u USING (run_id)),
good_jobs AS (SELECT DISTINCT job_id FROM named WHERE outcome = 'succeeded' AND job_id IS NOT NULL),
run_outcomes AS (
  SELECT run_id, model, stage, purpose, job_id, outcome, CASE WHEN outcome = 'superseded' THEN replaced_by END
      AS replaced_by, steps_done, CASE WHEN outcome IN ('succeeded', 'interrupted') THEN steps_again END AS steps_again,
    outcome = 'succeeded' OR (outcome = 'interrupted' AND coalesce(job_id IN (FROM good_jobs), false)) AS kept
  FROM named)
"""


def run_outcomes(warehouse: Warehouse, model: str | None = None) -> pa.Table:
    """run_id, model, stage, purpose, job_id, outcome, replaced_by, kept; of one model's runs or of all, by run id.

    Of a run that ended well the outcome says whether its work was of use:

    - ``never_shipped``: a retrain whose job ended without a promotion, or lists that were never published;
    - ``repeated``: the same asset, partition, code and inputs as an earlier run that had succeeded (dagster#20465);
    - ``superseded``: a later run made the same partition anew before any other run of the model could have used it,
      or the record names its successor. Where something may have used it in between, it counts as ``succeeded``.

    Every other run has its status: ``failed``, ``interrupted``, ``cancelled``, ``lost``, ``running``. `kept` also holds
    for an interrupted attempt of a job that another attempt finished: what was done twice is counted there.
    """
    where, params = ("", []) if model is None else ("WHERE model = ?", [model])
    sql = (
        f"WITH {RUN_OUTCOMES} SELECT run_id, model, stage, purpose, job_id, outcome, replaced_by, kept "
        f"FROM run_outcomes {where} ORDER BY run_id"
    )
    return warehouse.query(sql, params, tables=TABLES)


def split_redone(amount: Decimal, steps_again: int | None, steps_done: int | None) -> tuple[Decimal, Decimal]:
    """(kept, redone) of what a run cost: the share of its steps that an earlier run had done already. Adds up to it.

    >>> split_redone(Decimal(10), 4, 10)
    (Decimal('6.000000000000000000'), Decimal('4.000000000000000000'))
    """
    if not steps_again or not steps_done:
        return amount, Decimal(0)
    units = to_units(amount)
    redone = units * min(steps_again, steps_done) // steps_done
    return from_units(units - redone), from_units(redone)


def grouped(pairs: Iterable[tuple[str, Decimal]]) -> dict[str, Decimal]:
    """Exact sums by name, in the order of the names."""
    sums: dict[str, int] = {}
    for name, amount in pairs:
        sums[name] = sums.get(name, 0) + to_units(amount)
    return {name: from_units(units) for name, units in sorted(sums.items())}
