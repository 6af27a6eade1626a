"""Billed time of devices by whose it is: each period of a resource once, however many charges it has.

Of a resource that is billed by the hour and by the day (its storage, say) the hours count. A resource that nobody
registered is one device.
"""

from __future__ import annotations

START = (
    "CREATE OR REPLACE TEMP TABLE device_time (resource_id VARCHAR, method VARCHAR, run_id VARCHAR, model VARCHAR, "
    "stage VARCHAR, unit VARCHAR, billed_seconds DOUBLE)"
)
_STRETCHES = """
CREATE OR REPLACE TEMP TABLE stretches AS
WITH used AS (SELECT rid, a, b, min(rn) FILTER (way = 'direct') AS rn FROM slots
  WHERE category = 'Usage' AND rid IS NOT NULL AND b > a GROUP BY rid, a, b),
mixed AS (SELECT rid FROM used GROUP BY rid HAVING min(b - a) < max(b - a)),
covering AS (SELECT DISTINCT long.rid, long.a, long.b FROM used long SEMI JOIN mixed USING (rid)
  JOIN used short ON short.rid = long.rid AND short.a >= long.a AND short.b <= long.b
    AND short.b - short.a < long.b - long.a)
SELECT u.*, t.period, t.runs, t.registered, t.t0, t.d0,
  CASE WHEN t.registered AND t.d0 > 0 THEN greatest(t.d0 - greatest(t.t0 - t.room, 0), 0) / 1e9
    ELSE (u.b - u.a) / 1e6 END AS seconds
FROM used u ANTI JOIN covering USING (rid, a, b) LEFT JOIN totals t USING (rid, a, b)"""
_COLLECT = """
INSERT INTO device_time
WITH whose AS (SELECT rid, a, b, any_value(method) AS method, any_value(model) AS model,
  any_value(stage) AS stage FROM rest_parts WHERE category = 'Usage' AND rid IS NOT NULL GROUP BY rid, a, b),
parts AS (
  SELECT s.rid, 'direct' AS method, s.rn, NULL AS model, NULL AS stage, seconds FROM stretches s
    WHERE s.rn IS NOT NULL
  UNION ALL SELECT s.rid, 'occupancy', h.rn, NULL, NULL, seconds * (h.w0 / s.d0)
    FROM stretches s JOIN shares h USING (period) WHERE s.rn IS NULL AND s.d0 > 0
  UNION ALL SELECT s.rid, 'idle', NULL, NULL, NULL, seconds * (1 - s.t0 / s.d0) FROM stretches s
    WHERE s.rn IS NULL AND (s.runs > 0 OR s.registered) AND s.d0 > s.t0
  UNION ALL SELECT s.rid, coalesce(w.method, 'unattributed'), NULL, w.model, w.stage, seconds
    FROM stretches s LEFT JOIN whose w USING (rid, a, b)
    WHERE s.rn IS NULL AND coalesce(s.runs, 0) = 0 AND NOT coalesce(s.registered, false)),
added AS (SELECT rid, method, rn, model, stage, sum(seconds) AS seconds FROM parts GROUP BY ALL)
SELECT l.resource_id, method, r.run_id, coalesce(r.model, p.model), coalesce(r.stage, p.stage), g.capacity_unit, seconds
FROM added p JOIN places l USING (rid) LEFT JOIN known_runs r ON r.rn = p.rn
LEFT JOIN registered g ON g.resource_id = l.resource_id"""
#: Run once a bucket, after the ladder: a resource's charges are all in one bucket.
COLLECT = (_STRETCHES, _COLLECT)
RESULT = (
    "SELECT resource_id, row_number() OVER (PARTITION BY resource_id ORDER BY method, run_id, model, stage) - 1 "
    "AS part, method, run_id, model, stage, unit, billed_seconds FROM device_time ORDER BY resource_id, part"
)
