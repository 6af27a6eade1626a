"""Why a model was retrained, or not: a decision and its evidence as plain sentences and rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from mlcost_pipeline.errors import MlcostError
from mlcost_pipeline.evidence.record import stored_record
from mlcost_pipeline.evidence.values import EvidenceRecord
from mlcost_pipeline.spot.jobs import job_state
from mlcost_pipeline.training.acting import frozen
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Explanation:
    """A headline, sentences below it, and tables as (title, rows); every row of a table has the same keys."""

    headline: str
    sentences: tuple[str, ...]
    tables: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]
    ids: dict[str, str | None]

    def text(self) -> str:
        """Everything as plain text."""
        lines = [self.headline, *(f"  {sentence}" for sentence in self.sentences)]
        for title, rows in self.tables:
            lines += ["", title, *_columns(rows)]
        lines += ["", *(f"{name}: {value}" for name, value in self.ids.items() if value)]
        return "\n".join(lines)


def explain(warehouse: Warehouse, model: str, day: date | None = None) -> Explanation:
    """The newest decision of a day (of the newest day by default), and all it rests on.

    Raises:
        MlcostError: there is no decision of that day; the text names the days there are.
    """
    row = _row(warehouse, model, day)
    record = stored_record(warehouse, row["evidence_id"])
    headline = f"{model}, {row['as_of']}: {row['verdict']} ({row['reason']}), mode {row['mode']}"
    sentences = [row["sentence"], _job(warehouse, row)]
    stopped = frozen(warehouse, model)
    if stopped is not None:
        sentences.append(f"Frozen by {stopped['who']}: {stopped['reason']}.")
    tables: list[tuple[str, tuple[dict[str, Any], ...]]] = [
        ("Distances", tuple({"what": name, **entry} for name, entry in sorted(json.loads(row["distances"]).items()))),
        ("Money", (dict(sorted(json.loads(row["money"]).items())),)),
    ]
    if record is not None:
        sentences += list(record.faults.noted)
        tables += _evidence(record)
    ids = {
        "decision": row["decision_id"],
        "evidence": row["evidence_id"],
        "policy": row["policy_version"],
        "review": row["review"],
        "act": row["act_id"],
        "data": None if record is None else record.data_version,
    }
    return Explanation(headline, tuple(sentence for sentence in sentences if sentence), tuple(tables), ids)


def _row(warehouse: Warehouse, model: str, day: date | None) -> dict[str, Any]:
    found = warehouse.query(
        "SELECT * FROM decisions WHERE model = ? AND (as_of = ? OR ? IS NULL) "
        "ORDER BY as_of DESC, (act_id IS NOT NULL) DESC, (review IS NOT NULL) DESC, decision_id",
        [model, day, day],
        tables=["decisions"],
    ).to_pylist()
    if not found:
        known = [
            entry["as_of"]
            for entry in warehouse.rows("decisions", columns=["as_of"], where="model = ?", params=[model])
        ]
        span = f"{min(known)} to {max(known)}" if known else "none"
        which = f" of {day}" if day else ""
        raise MlcostError(f"{model}: no decision{which}; days with one: {span} (mlcost tick decides)")
    stored = warehouse.state.get(f"summaries/{model}")
    newest = None if stored is None else stored.value.get("decision_id")
    chosen: dict[str, Any] = next((row for row in found if row["decision_id"] == newest), found[0])
    return chosen


def _job(warehouse: Warehouse, row: dict[str, Any]) -> str:
    if row["verdict"] != "retrain":
        return ""
    job = job_state(warehouse, row["decision_id"])
    if job is None:
        return "No job was opened for it."
    reason = f": {job['reason']}" if job.get("reason") else ""
    return f"Its job is {job['state']}{reason}."


def _evidence(record: EvidenceRecord) -> list[tuple[str, tuple[dict[str, Any], ...]]]:
    volume, decay = record.volume, record.decay
    tables: list[tuple[str, tuple[dict[str, Any], ...]]] = []
    if record.faults.found:
        tables.append(
            (
                "Faults",
                tuple(
                    {"kind": f.kind, "column": f.column, "rows": f.rows, "what": f.sentence, "do": f.todo}
                    for f in record.faults.found
                ),
            )
        )
    tables.append(
        (
            "Volume",
            (
                {
                    "new rows": volume.new_rows,
                    "labelled": volume.new_labelled,
                    "rare class": volume.new_positives,
                    "trained on": volume.training_rows,
                },
            ),
        )
    )
    tables.append(
        (
            "Decay",
            (
                {
                    "state": decay.state,
                    "why": decay.reason or decay.measure,
                    "verified": decay.anchor,
                    "now": decay.level,
                    "decay": decay.estimate,
                    "low": decay.low,
                    "high": decay.high,
                    "days": decay.days,
                    "units": decay.units,
                },
            ),
        )
    )
    drift = tuple(
        {
            "feature": f.feature,
            "state": f.state,
            "psi": f.windows[0].psi if f.windows else None,
            "null": f.windows[0].null_bound if f.windows else None,
            "rows": f.windows[0].rows if f.windows else 0,
            "material": f.material,
        }
        for f in sorted(record.drift.features, key=lambda f: -(f.windows[0].psi or 0.0) if f.windows else 0.0)
    )
    tables.append((f"Drift against {record.drift.reference} ({record.drift.reason or 'measured'})", drift))
    return tables


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as aligned columns, numbers to the right; a single row as a line a field, for its texts may be long."""
    if not rows:
        return []
    if len(rows) == 1:
        width = max(len(key) for key in rows[0])
        return [f"  {key:<{width}}  {_shown(value)}" for key, value in rows[0].items()]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [keys, *([_shown(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(keys))]
    right = [any(isinstance(row.get(key), int | float) and not isinstance(row.get(key), bool) for row in rows)
             for key in keys]  # fmt: skip
    return [
        "  " + "  ".join(
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]  # fmt: skip


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
