"""The ladder of attribution: each slot is taken by the first rung that knows whose it is.

direct (a run tag, or a job's own resource) → occupancy (time × share) with the idle rest of that pool → model and
stage tags → rules → derived charges in proportion to their base → unattributed, with its reason. The parts of a slot
add up to it exactly, in every measure. The rungs are SQL, in :mod:`mlcost_pipeline.cost.engine`.
"""

from __future__ import annotations

from mlcost_pipeline.cost.engine.running import Attribution, attributing

__all__ = ["ATTRIBUTED", "METHODS", "REASONS", "RULES_VERSION", "Attribution", "attributing"]

#: Part of the ledger version's identity: change it with every change of the rungs.
RULES_VERSION = "2"

DIRECT, OCCUPANCY, IDLE, TAG, RULE, DERIVED, UNATTRIBUTED = METHODS = (
    "direct", "occupancy", "idle", "tag", "rule", "derived", "unattributed",
)  # fmt: skip
#: Methods whose parts may name a model; a part is attributed if it does.
ATTRIBUTED = (DIRECT, OCCUPANCY, TAG, RULE, DERIVED)
#: Why a part is nobody's.
REASONS = (
    "charge_type", "orphan_run_tag", "no_resource_id", "tag_not_active", "unknown_resource", "no_run_at_that_time",
    "commitment", "commitment_unused",
)  # fmt: skip
