"""The tables of the warehouse as Arrow schemas, checked on write and on read.

Later work adds columns and never renames them. Money is decimal(38, 18) in a named currency, times are
UTC with zone in microseconds, intervals are half open. Every stored row also carries ``recorded_at``,
the only wall time in the warehouse, which is left out of every hash and comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 2
RECORDED_AT = "recorded_at"

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
DAY = pa.date32()
MONEY = pa.decimal128(38, 18)
INTEGER = pa.int64()
REAL = pa.float64()
FLAG = pa.bool_()
TAGS = pa.map_(TEXT, TEXT)
TEXTS = pa.list_(TEXT)
JSON = pa.string()  # canonical JSON text: sorted keys, no spaces


@dataclass(frozen=True)
class TableSchema:
    """One table: its key, its columns, and the prefix of the columns a team may add to it."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    about: str
    open_prefix: str | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def stored(self) -> pa.Schema:
        """The schema on disk: the declared columns and ``recorded_at``."""
        return self.schema.append(pa.field(RECORDED_AT, TIME, nullable=False))


def _table(name: str, about: str, key: str, columns: str, *, open_prefix: str | None = None) -> TableSchema:
    """Build a schema from ``name:type`` words; a trailing ``?`` on the type allows null."""
    fields = []
    for word in columns.split():
        column, kind = word.split(":")
        nullable = kind.endswith("?")
        fields.append(pa.field(column, _TYPES[kind.rstrip("?")], nullable=nullable))
    return TableSchema(name, tuple(key.split()), pa.schema(fields), about, open_prefix)


_TYPES: dict[str, pa.DataType] = {
    "text": TEXT,
    "time": TIME,
    "day": DAY,
    "money": MONEY,
    "int": INTEGER,
    "real": REAL,
    "flag": FLAG,
    "tags": TAGS,
    "texts": TEXTS,
    "json": JSON,
}

_ALL = (
    # ── the bill ────────────────────────────────────────────────────────────────────────────────
    _table(
        "bill_deliveries",
        "one export of one account and period",
        "delivery_id",
        "delivery_id:text provider:text format:text account:text period:text currency:text received_at:time "
        "manifest_hash:text rows:int billed_total:money effective_total:money list_total:money? "
        "billed_residue:money effective_residue:money list_residue:money? state:text source:text manifest:text? "
        "slots:int? absent:json? warnings:json? control:json?",
    ),
    _table(
        "billing_lines",
        "a charge",
        "delivery_id line",
        "delivery_id:text line:int slot_id:text account:text period:text charge_start:time charge_end:time "
        "category:text charge_class:text? service:text? sku:text? description:text? resource_id_raw:text? "
        "resource_id:text? tags:tags? currency:text billed:money effective:money list:money? "
        "quantity:money? quantity_unit:text? invoice_id:text? allocation:text tags_text:json? provider:text? "
        "sub_account:text? region:text? pricing_category:text? commitment_id:text? commitment_status:text?",
    ),
    _table(
        "billing_slots",
        "the lines of a delivery that attribution cannot tell apart, summed; `bucket` groups whole resources",
        "delivery_id slot_id",
        "delivery_id:text slot_id:text bucket:int account:text period:text resource_id:text? charge_start:time "
        "charge_end:time category:text charge_class:text? service:text? tags_text:json? tag_run:text? "
        "tag_model:text? tag_stage:text? invoice_id:text? commitment_status:text? allocation:text currency:text "
        "lines:int billed:money effective:money list:money?",
    ),
    _table(
        "resources",
        "a thing that is billed",
        "resource_id valid_from",
        "resource_id:text valid_from:time valid_to:time? kind:text capacity_milli:int capacity_unit:text parent:text?",
    ),
    # ── runs ────────────────────────────────────────────────────────────────────────────────────
    _table(
        "run_records",
        "one stretch of billed work for one model and stage",
        "run_id",
        "run_id:text job_id:text? attempt:int? model:text model_version:text? stage:text purpose:text "
        "asset:text? partition:text? market:text? pool:text? price:money? started_at:time ended_at:time? "
        "status:text cause:text? steps_done:int? steps_redone:int? superseded_by:text? busy_seconds:real? "
        "busy_metric:text? busy_coverage:real? orchestrator_run_id:text? code_version:text? "
        "data_wait_seconds:real? source:text? inputs_version:text?",
    ),
    _table(
        "occupancy",
        "a run's hold on a resource",
        "run_id resource_id start",
        "run_id:text resource_id:text start:time end:time? share_milli:int",
    ),
    _table(
        "cost_ledger",
        "a part of a slot",
        "ledger_version slot_id part",
        "ledger_version:text slot_id:text part:int delivery_id:text account:text period:text currency:text "
        "method:text reason:text? run_id:text? model:text? stage:text? billed:money effective:money list:money? "
        "base:text?",
    ),
    _table(
        "device_time",
        "billed time of a resource by whose it is, each hour of a device once however many charges it has",
        "ledger_version resource_id part",
        "ledger_version:text resource_id:text part:int account:text period:text method:text run_id:text? "
        "model:text? stage:text? unit:text? billed_seconds:real",
    ),
    _table(
        "restatements",
        "what a newer ledger version changed",
        "old_ledger_version new_ledger_version entry",
        "old_ledger_version:text new_ledger_version:text entry:text account:text period:text cause:text "
        "run_id:text? model:text? stage:text? billed_delta:money effective_delta:money",
    ),
    _table(
        "outcomes",
        "a count of what a model earned",
        "model model_version start end slice unit definition_version",
        "model:text model_version:text start:time end:time slice:text unit:text definition_version:text "
        "count:real low:real? high:real? state:text source:text",
    ),
    # ── training ────────────────────────────────────────────────────────────────────────────────
    _table(
        "jobs",
        "one decision to train, until it ends",
        "job_id",
        "job_id:text model:text deadline:time work_estimate_seconds:real? state:text reason:text? ended_at:time?",
    ),
    _table(
        "model_versions",
        "a trained model",
        "model version",
        "model:text version:text family:text job_id:text attempt:int artefact:text training_cut:time "
        "gate:json? gate_passed:flag? promoted_at:time? retired_at:time? restored_from:text?",
    ),
    _table(
        "drills",
        "an exercise of resume",
        "model release run_at",
        "model:text release:text run_at:time passed:flag differed:json?",
    ),
    _table(
        "market_observations",
        "a look at a pool",
        "pool at",
        "pool:text at:time available:flag price:money",
    ),
    # ── what users did ──────────────────────────────────────────────────────────────────────────
    _table(
        "interactions",
        "something a user did",
        "event_id",
        "event_id:text user_id:text? item_id:text kind:text happened_at:time request_id:text?",
    ),
    _table(
        "items",
        "a thing that can be recommended",
        "item_id valid_from",
        "item_id:text valid_from:time valid_to:time? attributes:json?",
    ),
    _table(
        "users",
        "a known user",
        "user_id valid_from",
        "user_id:text valid_from:time segment:text? forgotten_at:time?",
    ),
    _table(
        "transactions",
        "a payment to score",
        "transaction_id",
        "transaction_id:text happened_at:time merchant_category:text amount:money currency:text "
        "customer_id:text? terminal_id:text?",
        open_prefix="feature_",
    ),
    _table(
        "labels",
        "a truth that came late",
        "transaction_id known_at",
        "transaction_id:text known_at:time is_fraud:flag",
    ),
    # ── what was said and served ────────────────────────────────────────────────────────────────
    _table(
        "predictions",
        "what was said",
        "model model_version entity_id predicted_at",
        "model:text model_version:text entity_id:text predicted_at:time score:real threshold:real alerted:flag "
        "run_id:text?",
    ),
    _table(
        "recommendations",
        "a place in a list",
        "version user_id rank",
        "version:text user_id:text rank:int item_id:text score:real",
    ),
    _table(
        "publications",
        "a version of the lists",
        "version",
        "version:text model:text model_version:text data_cut:time validation:json published_at:time? "
        "rolled_back_at:time? users:int run_id:text?",
    ),
    _table(
        "lookups",
        "what was served",
        "request_id",
        "request_id:text looked_up_at:time user_id:text? arm:text tier:text reason:text version:text? "
        "items:texts age_seconds:real? latency_seconds:real model:text?",
    ),
    _table(
        "requests",
        "what reached an endpoint",
        "request_id",
        "request_id:text arrived_at:time endpoint:text replica:text? batch_size:int queue_seconds:real "
        "service_seconds:real",
    ),
    # ── deciding ────────────────────────────────────────────────────────────────────────────────
    _table(
        "evidence",
        "a measurement",
        "evidence_id",
        "evidence_id:text model:text incumbent:text? as_of:day data_version:text detector_version:text "
        "values:json faults:json",
    ),
    _table(
        "decisions",
        "a verdict",
        "decision_id",
        "decision_id:text evidence_id:text model:text as_of:day verdict:text reason:text sentence:text "
        "distances:json money:json policy_version:text mode:text review:text? act_id:text?",
    ),
    _table(
        "reviews",
        "a person's word on drift",
        "evidence_id reviewed_at",
        "evidence_id:text reviewed_at:time reviewer:text verdict:text note:text until:time?",
    ),
    _table(
        "quarantine",
        "a row kept out of training",
        "table_name row_key evidence_id",
        "table_name:text row_key:text evidence_id:text reason:text from:time until:time?",
    ),
    _table(
        "acts",
        "what was done by hand",
        "act_id",
        "act_id:text verb:text subject:text who:text reason:text at:time",
    ),
    # ── levers ──────────────────────────────────────────────────────────────────────────────────
    _table(
        "lever_trials",
        "an experiment",
        "lever model trial_id",
        "lever:text model:text trial_id:text cost_before:money? cost_after:money? cost_per_outcome_before:money? "
        "cost_per_outcome_after:money? outcome_before:real? outcome_after:real? difference_low:real? "
        "difference_high:real? slices:json verdict:text reason:text",
    ),
    _table(
        "lever_ledger",
        "a lever's life",
        "lever model applied_at",
        "lever:text model:text applied_at:time budget:json promised:money? realised:money? reverted_at:time? "
        "reason:text?",
    ),
)

TABLES: dict[str, TableSchema] = {table.name: table for table in _ALL}

#: Written as a whole version behind one pointer, never merged by key.
WHOLE_TABLES = frozenset({"billing_lines", "billing_slots", "cost_ledger", "device_time", "recommendations"})
