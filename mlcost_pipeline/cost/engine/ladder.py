"""The rungs of one bucket as SQL: who takes each slot, and what of it.

Tables of the connection: ``places`` (the bucket's resources by number, ``rid``), ``slots`` (classified), ``periods``,
``shares``, ``totals`` (time × share), ``held`` (slots with the grid of time that their amounts allow), and the views of
parts that the engine reads out. Resources and runs are joined by number: comparing their names is most of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcost_pipeline import recording
from mlcost_pipeline.cost.engine.dialect import DAY_US, GRIDS, LIMIT, matches, text
from mlcost_pipeline.settings import Rule

FOLLOWS_USE = "category IN ('Usage', 'Credit', 'Adjustment')"
STAGES = f"({', '.join(text(stage) for stage in recording.STAGES)})"
#: A resource whose id says that it exists for one piece of work: all that it costs is that work's.
JOB_ID = r"^arn:[^:]*:sagemaker:[^:]*:[^:]*:(training-job|processing-job|transform-job|hyper-parameter-tuning-job)/"

_AMOUNTS = "billed, effective, list"
#: Tables of one bucket, none of which the next one needs.
TABLES = (
    "slots", "places", "periods", "weights", "shares", "totals", "held", "rest_parts", "commitment_parts", "stretches",
)  # fmt: skip


def classify(source: str, tags: bool) -> list[str]:
    """Every slot with the way that its whole amount goes: direct, held, commitment or rest.

    The text of tags is long and read only if a rule looks at it.
    """
    return [
        f"""CREATE OR REPLACE TEMP TABLE places AS
SELECT row_number() OVER () AS rid, s.resource_id, o.rn, o.run_id, o.model, o.stage,
  k.resource_id IS NOT NULL AS known, g.resource_id IS NOT NULL AS registered
FROM (SELECT DISTINCT resource_id FROM {source} WHERE resource_id IS NOT NULL) s
LEFT JOIN sole_runs o USING (resource_id) LEFT JOIN known_resources k USING (resource_id)
LEFT JOIN registered g USING (resource_id)""",
        f"""CREATE OR REPLACE TEMP TABLE slots AS
SELECT s.slot_id, p.rid, s.resource_id, epoch_us(s.charge_start) AS a, epoch_us(s.charge_end) AS b, s.category,
  s.service, {"s.tags_text" if tags else "NULL::VARCHAR AS tags_text"}, s.tag_run, s.tag_model, s.tag_stage,
  s.invoice_id, s.commitment_status, s.billed, s.effective, s.list,
  CASE WHEN s.commitment_status IN ('Negation', 'Fee', 'Unused') THEN 'commitment'
    WHEN r.run_id IS NOT NULL OR ({FOLLOWS_USE} AND p.run_id IS NOT NULL) THEN 'direct'
    WHEN {FOLLOWS_USE} AND p.known THEN 'held' ELSE 'rest' END AS way, coalesce(r.rn, p.rn) AS rn,
  coalesce(r.run_id, p.run_id) AS run_id, coalesce(r.model, p.model) AS model, coalesce(r.stage, p.stage) AS stage
FROM {source} s
LEFT JOIN known_runs r ON r.run_id = s.tag_run
LEFT JOIN places p ON p.resource_id = s.resource_id""",
    ]


def weigh() -> list[str]:
    """Time × milli-share of each run in each charge period, at each grid of time, and the period's capacity.

    Holds and periods meet day by day, so that many runs on one resource do not meet all of its periods. Instants are
    rounded down to the grid: adjacent stretches stay additive, and days are whole at every grid.
    """
    steps = ", ".join(
        f"sum((e // {grid} - s // {grid})::HUGEINT * share_milli)::HUGEINT AS w{n}" for n, grid in enumerate(GRIDS)
    )
    capacities = ", ".join(
        f"coalesce(sum((least(p.b, c.b) // {grid} - greatest(p.a, c.a) // {grid})::HUGEINT * c.capacity_milli), "
        f"0)::HUGEINT AS c{n}"
        for n, grid in enumerate(GRIDS)
    )
    upto = ", ".join(f"sum(w{n}) OVER one AS u{n}" for n in range(len(GRIDS)))
    sums = ", ".join(f"coalesce(sum(w{n}), 0)::HUGEINT AS t{n}" for n in range(len(GRIDS)))
    whole = ", ".join(
        f"greatest(coalesce(t{n}, 0), CASE WHEN NOT g.registered THEN (p.b // {grid} - p.a // {grid})::HUGEINT "
        f"* 1000 ELSE coalesce(c{n}, 0) END) AS d{n}, coalesce(t{n}, 0) AS t{n}"
        for n, grid in enumerate(GRIDS)
    )
    return [
        """CREATE OR REPLACE TEMP TABLE periods AS SELECT row_number() OVER () AS period, * FROM (
  SELECT DISTINCT rid, a, b FROM slots WHERE way = 'held' OR (category = 'Usage' AND rid IN
    (SELECT rid FROM places WHERE known)))""",
        f"""CREATE OR REPLACE TEMP TABLE weights AS
WITH near AS (SELECT p.rid, h.rn, h.share_milli, h.a, h.b FROM known_holds h JOIN places p USING (resource_id)
  WHERE rid IN (SELECT rid FROM periods)),
reach AS (SELECT p.rid, greatest(min(p.a), min(h.a)) AS a, least(max(p.b), max(h.b)) AS b
  FROM (SELECT rid, min(a) AS a, max(b) AS b FROM periods GROUP BY rid) p
  JOIN (SELECT rid, min(a) AS a, max(b) AS b FROM near GROUP BY rid) h USING (rid) GROUP BY 1),
spans AS (SELECT period, rid, greatest(p.a, r.a) AS a, least(p.b, r.b) AS b
  FROM periods p JOIN reach r USING (rid) WHERE least(p.b, r.b) > greatest(p.a, r.a)),
stretches AS (SELECT rn, rid, share_milli, greatest(h.a, r.a) AS a, least(h.b, r.b) AS b
  FROM near h JOIN reach r USING (rid) WHERE least(h.b, r.b) > greatest(h.a, r.a)),
span_days AS (SELECT *, unnest(range(floor_div(a, {DAY_US}), floor_div(b - 1, {DAY_US}) + 1)) AS day FROM spans),
stretch_days AS (SELECT *, unnest(range(floor_div(a, {DAY_US}), floor_div(b - 1, {DAY_US}) + 1)) AS day
  FROM stretches),
met AS (SELECT p.period, h.rn, h.share_milli, greatest(p.a, h.a, h.day * {DAY_US}) AS s,
    least(p.b, h.b, (h.day + 1) * {DAY_US}) AS e
  FROM span_days p JOIN stretch_days h ON p.rid = h.rid AND p.day = h.day
    AND h.a < p.b AND h.b > p.a)
SELECT period, rn, {steps} FROM met WHERE e > s GROUP BY period, rn""",
        f"""CREATE OR REPLACE TEMP TABLE shares AS
SELECT *, row_number() OVER one - 1 AS number, {upto} FROM weights
WINDOW one AS (PARTITION BY period ORDER BY rn ROWS UNBOUNDED PRECEDING)""",
        f"""CREATE OR REPLACE TEMP TABLE totals AS
WITH used AS (SELECT period, count(*) AS runs, {sums} FROM weights GROUP BY period),
near AS (SELECT rid, a, b, capacity_milli FROM known_capacities JOIN places USING (resource_id)),
room AS (SELECT p.period, {capacities} FROM periods p JOIN near c
  ON c.rid = p.rid AND c.a < p.b AND c.b > p.a GROUP BY p.period)
SELECT p.*, g.registered, coalesce(runs, 0) AS runs, coalesce(c0, 0) AS room, {whole}
FROM periods p LEFT JOIN used USING (period) LEFT JOIN room USING (period) JOIN places g USING (rid)""",
    ]


#: Amounts of the slots that are shared by time, to be read as integers of 1e-18 and given back as ``held_amounts``.
AMOUNTS = """
SELECT slot_id, invoice_id, commitment_status, billed, period, list IS NULL AS unlisted,
  CASE WHEN commitment_status = 'Used' THEN 0::DECIMAL(38, 18) ELSE billed END AS ub, effective AS ue,
  coalesce(list, 0::DECIMAL(38, 18)) AS ul
FROM slots JOIN totals t USING (rid, a, b) WHERE way = 'held' AND (t.registered OR t.runs > 0)"""
HELD = f"""
CREATE OR REPLACE TEMP TABLE held AS
WITH largest AS (SELECT *, greatest(abs(ub), abs(ue), abs(ul)) AS top FROM held_amounts JOIN totals USING (period))
SELECT row_number() OVER () AS held, * EXCLUDE (top), CASE WHEN top <= {LIMIT}::HUGEINT // greatest(d0, 1) THEN 0
  WHEN top <= {LIMIT}::HUGEINT // greatest(d1, 1) THEN 1
  WHEN top <= {LIMIT}::HUGEINT // greatest(d2, 1) THEN 2 ELSE 3 END AS grid FROM largest"""

OVERFLOW = "SELECT slot_id, d2 FROM held WHERE grid = 3 ORDER BY slot_id LIMIT 1"


def shared_parts() -> str:
    """Parts of held slots by time and share, then the idle rest of the pool."""
    weight, upto, whole, used = (
        "CASE h.grid " + " ".join(f"WHEN {n} THEN {name}{n}" for n in range(len(GRIDS))) + " END"
        for name in ("w", "u", "d", "t")
    )

    def share(unit: str) -> str:
        return f"share_of({unit}, {upto}, {weight}, {whole})"

    def rest(unit: str) -> str:
        return f"CASE WHEN {whole} = 0 THEN {unit} ELSE {unit} - floor_div({unit} * {used}, {whole}) END"

    return f"""
CREATE OR REPLACE TEMP TABLE shared_units AS
WITH runs AS (SELECT h.held, h.slot_id, h.invoice_id, s.number::BIGINT AS part, 'occupancy' AS method, s.rn, h.unlisted,
    {share("ub")} AS ub, {share("ue")} AS ue, {share("ul")} AS ul
  FROM held h JOIN shares s USING (period) WHERE {weight} > 0),
idle AS (SELECT h.held, h.slot_id, h.invoice_id, h.runs::BIGINT AS part, 'idle' AS method, NULL AS rn, h.unlisted,
    {rest("ub")} AS ub, {rest("ue")} AS ue, {rest("ul")} AS ul FROM held h)
FROM runs UNION ALL (FROM idle WHERE ub <> 0 OR ue <> 0 OR ul <> 0 OR part = 0)"""


#: The same with names instead of numbers; amounts are integers of 1e-18, given back as money as ``shared_parts``.
SHARED = """
SELECT slot_id, invoice_id, part, method, NULL::VARCHAR AS reason, run_id, model, stage, ub AS billed, ue AS effective,
  CASE WHEN unlisted THEN NULL ELSE ul END AS list
FROM shared_units LEFT JOIN known_runs USING (rn)"""


#: Held slots whose parts do not add up to them; there must be none.
OFF = """
SELECT h.slot_id FROM held h LEFT JOIN (SELECT held, sum(ub) AS b, sum(ue) AS e, sum(ul) AS l FROM shared_units
  GROUP BY held) p USING (held)
WHERE p.b IS DISTINCT FROM ub OR p.e IS DISTINCT FROM ue OR p.l IS DISTINCT FROM ul ORDER BY h.slot_id LIMIT 1"""


def rest_parts(models: Sequence[str], rules: Sequence[Rule]) -> str:
    """Slots that no run takes: by model tag, by rule, as a derived charge to come, or unattributed with the reason."""
    known = ", ".join(text(model) for model in models) or "NULL"
    rule = " ".join(f"WHEN {matches(each.when)} THEN {number}" for number, each in enumerate(rules))
    names = " ".join(
        f"WHEN {number} THEN struct_pack(name := {text(each.name)}, model := {text(each.model)}, "
        f"stage := {text(each.stage)})"
        for number, each in enumerate(rules)
    )
    fits = f"CASE {rule} END" if rules else "NULL::INTEGER"
    named = f"CASE rule {names} END" if rules else "NULL::STRUCT(name VARCHAR, model VARCHAR, stage VARCHAR)"
    return f"""
CREATE OR REPLACE TEMP TABLE rest_parts AS
WITH marked AS (SELECT DISTINCT resource_id FROM slots WHERE resource_id IS NOT NULL
    AND (tag_model IN ({known}) OR tag_run IN (SELECT run_id FROM known_runs))),
occupied AS (SELECT DISTINCT resource_id FROM known_holds),
open AS (SELECT s.*, {fits} AS rule FROM slots s WHERE way = 'rest'
  UNION ALL SELECT s.*, {fits} AS rule FROM slots s JOIN totals t USING (rid, a, b)
    WHERE way = 'held' AND NOT (t.registered OR t.runs > 0)),
judged AS (SELECT o.*, {named} AS ours,
    CASE WHEN tag_model IN ({known}) THEN 'tag' WHEN rule IS NOT NULL THEN 'rule'
      WHEN {_derived()} THEN 'derived' ELSE 'unattributed' END AS method,
    CASE WHEN category = 'Purchase' AND commitment_status IS NOT NULL THEN 'commitment'
      WHEN NOT {FOLLOWS_USE} THEN 'charge_type' WHEN tag_run IS NOT NULL THEN 'orphan_run_tag'
      WHEN resource_id IS NULL THEN 'no_resource_id' WHEN m.resource_id IS NOT NULL THEN 'tag_not_active'
      WHEN c.resource_id IS NOT NULL THEN 'no_run_at_that_time' ELSE 'unknown_resource' END AS why
  FROM open o LEFT JOIN marked m USING (resource_id) LEFT JOIN occupied c USING (resource_id))
SELECT slot_id, invoice_id, commitment_status, 0::BIGINT AS part, method,
  CASE method WHEN 'tag' THEN NULL WHEN 'rule' THEN ours.name WHEN 'derived' THEN {_kind()} ELSE why END AS reason,
  NULL::VARCHAR AS run_id, CASE method WHEN 'tag' THEN tag_model WHEN 'rule' THEN ours.model END AS model,
  CASE method WHEN 'tag' THEN CASE WHEN tag_stage IN {STAGES} THEN tag_stage END WHEN 'rule' THEN ours.stage END
    AS stage, rid, a, b, category,
  CASE WHEN commitment_status = 'Used' THEN 0 ELSE billed END AS billed, effective, list
FROM judged"""


def _derived() -> str:
    """Charges on other charges: taxes, support, and credits or discounts that name no resource, run or model."""
    return (
        "(category = 'Tax' OR contains(lower(coalesce(service, '')), 'support') "
        "OR (category IN ('Credit', 'Adjustment') AND resource_id IS NULL AND tag_run IS NULL AND tag_model IS NULL)) "
        "AND commitment_status IS NULL"
    )


def _kind() -> str:
    return (
        "CASE WHEN category = 'Tax' THEN 'tax' WHEN contains(lower(coalesce(service, '')), 'support') THEN 'support' "
        "WHEN category = 'Credit' THEN 'credit' ELSE 'discount' END"
    )


def commitment_parts() -> str:
    """What commitments were billed stays on the commitment, so that it nets there; what they covered is its user's."""
    zero = "0::DECIMAL(38, 18)"
    none = "NULL::VARCHAR AS run_id, NULL::VARCHAR AS model, NULL::VARCHAR AS stage"
    nought = f"CASE WHEN list IS NULL THEN NULL ELSE {zero} END AS list"
    return f"""
CREATE OR REPLACE TEMP TABLE commitment_parts AS
SELECT slot_id, invoice_id, 0::BIGINT AS part, 'unattributed' AS method,
  CASE commitment_status WHEN 'Unused' THEN 'commitment_unused' ELSE 'commitment' END AS reason, {none},
  billed, CASE commitment_status WHEN 'Fee' THEN {zero} ELSE effective END AS effective, list
FROM slots WHERE way = 'commitment'
UNION ALL SELECT slot_id, invoice_id, 1, 'unattributed', 'commitment_unused', {none}, {zero}, effective, {nought}
FROM slots WHERE way = 'commitment' AND commitment_status = 'Fee' AND effective <> 0
UNION ALL SELECT slot_id, invoice_id, 1, 'unattributed', 'commitment', {none}, billed, {zero}, {nought}
FROM slots ANTI JOIN held USING (slot_id) WHERE way <> 'commitment' AND commitment_status = 'Used' AND billed <> 0
UNION ALL SELECT slot_id, invoice_id, runs + 1, 'unattributed', 'commitment', {none}, billed, {zero},
  CASE WHEN unlisted THEN NULL ELSE {zero} END
FROM held WHERE commitment_status = 'Used' AND billed <> 0"""


#: All parts of the bucket but derived ones, under the columns of the ledger and the invoice.
PARTS = f"""
CREATE OR REPLACE TEMP VIEW parts AS
SELECT slot_id, invoice_id, 0::BIGINT AS part, 'direct' AS method, NULL::VARCHAR AS reason, run_id, model, stage,
  CASE WHEN commitment_status = 'Used' THEN 0 ELSE billed END AS billed, effective, list
FROM slots WHERE way = 'direct'
UNION ALL SELECT slot_id, invoice_id, part, method, reason, run_id, model, stage, {_AMOUNTS} FROM shared_parts
UNION ALL SELECT slot_id, invoice_id, part, method, reason, run_id, model, stage, {_AMOUNTS} FROM rest_parts
  WHERE method <> 'derived'
UNION ALL SELECT slot_id, invoice_id, part, method, reason, run_id, model, stage, {_AMOUNTS} FROM commitment_parts"""
