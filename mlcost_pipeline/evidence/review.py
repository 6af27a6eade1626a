"""A person's word on drift: real, expected, or a fault of the data. It belongs to its evidence and expires.

Who says so is taken as stated: nothing here authenticates anybody.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.evidence.state import Review
from mlcost_pipeline.evidence.summary import ask_again
from mlcost_pipeline.evidence.values import EvidenceRecord
from mlcost_pipeline.models.base import cuts
from mlcost_pipeline.settings import ModelSettings, Settings, digest
from mlcost_pipeline.warehouse import Warehouse

VERDICTS = ("real", "expected", "data_fault")


def review(
    warehouse: Warehouse,
    settings: Settings,
    clock: Clock,
    model: str,
    *,
    verdict: str,
    reviewer: str,
    note: str = "",
    evidence_id: str | None = None,
    until: datetime | None = None,
) -> str:
    """Record a verdict on a piece of evidence (the newest of the model by default); returns the review's id.

    It holds until `until`, by default for ``policy.review_days``. The next decision of the newest day heeds it.

    Raises:
        MlcostError: an unknown verdict, no reviewer, or evidence that is not this model's.
    """
    if verdict not in VERDICTS:
        raise MlcostError(f"review of {model}: verdict {verdict!r}; allowed: {', '.join(VERDICTS)}")
    if not reviewer.strip():
        raise MlcostError(f"review of {model}: say who reviews (--who NAME)")
    subject = evidence_id or _newest(warehouse, model)
    known = warehouse.rows("evidence", columns=["model"], where="evidence_id = ?", params=[subject])
    if not known or known[0]["model"] != model:
        raise MlcostError(f"review of {model}: no evidence {subject!r} of this model; see: mlcost why {model}")
    now = clock.now()
    holds = until or now + timedelta(days=settings.model(model).policy.review_days)
    row = {
        "evidence_id": subject,
        "reviewed_at": now,
        "reviewer": reviewer,
        "verdict": verdict,
        "note": note,
        "until": holds,
    }
    warehouse.append("reviews", [row])
    identity = review_id(subject, now)
    ask_again(warehouse, model, identity)
    return identity


def review_id(evidence_id: str, reviewed_at: datetime) -> str:
    """The identity of a review: its evidence and its moment."""
    return digest("review", evidence_id, reviewed_at.isoformat())


def standing_review(warehouse: Warehouse, settings: ModelSettings, record: EvidenceRecord) -> Review | None:
    """The newest review that holds for the incumbent of `record` on its day.

    A verdict ``real`` that has opened its job is used up.
    """
    cut = cuts(settings, date.fromisoformat(record.as_of)).data_cut
    rows = warehouse.query(
        'SELECT reviews.evidence_id, reviewed_at, reviewer, verdict, note, until, evidence."values" AS measured '
        "FROM reviews JOIN evidence ON evidence.evidence_id = reviews.evidence_id WHERE evidence.model = ? "
        "AND evidence.incumbent IS NOT DISTINCT FROM ? AND evidence.as_of <= ? AND (until IS NULL OR until > ?) "
        "ORDER BY reviewed_at DESC, reviews.evidence_id LIMIT 1",
        [record.model, record.incumbent, date.fromisoformat(record.as_of), cut],
        tables=["reviews", "evidence"],
    ).to_pylist()
    if not rows:
        return None
    row = rows[0]
    identity = review_id(row["evidence_id"], row["reviewed_at"])
    if row["verdict"] == "real" and _used(warehouse, identity, record.evidence_id):
        return None
    return Review(
        identity,
        row["evidence_id"],
        row["verdict"],
        row["reviewer"],
        row["note"],
        _shown(row["until"]),
        tuple(json.loads(row["measured"])["drift"]["material"]),
    )


def _used(warehouse: Warehouse, identity: str, evidence_id: str) -> bool:
    rows = warehouse.query(
        "SELECT 1 FROM decisions JOIN jobs ON job_id = decision_id WHERE review = ? AND evidence_id <> ?",
        [identity, evidence_id],
        tables=["decisions", "jobs"],
    )
    return bool(rows.num_rows)


def _newest(warehouse: Warehouse, model: str) -> str:
    stored = warehouse.state.get(f"summaries/{model}")
    found = None if stored is None else stored.value.get("evidence_id")
    if found is None:
        raise MlcostError(f"review of {model}: there is no evidence yet; run: mlcost tick")
    return str(found)


def _shown(until: Any) -> str:
    return "further notice" if until is None else str(until.date().isoformat())
