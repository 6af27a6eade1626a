"""What was decided for each model, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from mlcost_pipeline.reports.document import Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, dressed, listed
from mlcost_pipeline.reports.pictures import lines_over_days
from mlcost_pipeline.reports.values import show_number
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.warehouse import Warehouse

TITLE = "What was decided for each model, and why"


def decided(warehouse: Warehouse, settings: Settings) -> Document:
    """The newest decision of each model, all decisions below it, and the decay that they looked at."""
    decisions = _decisions(warehouse)
    jobs = {row["job_id"]: row for row in warehouse.rows("jobs")}
    evidence = warehouse.rows("evidence")
    verdicts = Counter(str(row["verdict"]) for row in decisions)
    sentences = [_sentence(model, [d for d in decisions if d["model"] == model]) for model in settings.models]
    pictures = [picture for model in settings.models if (picture := _decay(settings, model, evidence)) is not None]
    doc = Document(
        title=TITLE,
        summary=listed(sentences, "no model is configured") + ".",
        numbers=[
            Number("decisions", "decisions", len(decisions)),
            Number("retrains", "said retrain", verdicts["retrain"]),
            Number("holds", "said hold", verdicts["hold"]),
            Number("asks", "asked a person", verdicts["ask"]),
            Number("jobs", "jobs opened", len(jobs)),
        ],
        tables=[_newest(settings, decisions), _history(decisions, jobs), _acts(warehouse)],
        pictures=pictures,
    )
    return dressed(doc, settings)


def _decisions(warehouse: Warehouse) -> list[dict[str, Any]]:
    """All decisions, newest first; of one day the one that was recorded last comes first."""
    columns = ["decision_id", "evidence_id", "model", "as_of", "verdict", "reason", "sentence", "distances", "mode",
               "policy_version", "review", "act_id", "recorded_at"]  # fmt: skip
    rows = warehouse.rows("decisions", columns=columns)
    return sorted(rows, key=lambda row: (row["as_of"], row["recorded_at"], row["decision_id"]), reverse=True)


def _sentence(model: str, decisions: Sequence[Mapping[str, Any]]) -> str:
    """The newest verdict, and the newest retrain where that is another one."""
    if not decisions:
        return f"{model}: nothing was decided yet, because no day was measured"
    newest = decisions[0]
    said = f"{model}: {newest['verdict']} as of {newest['as_of']} ({_why(newest)})"
    retrain = next((row for row in decisions if row["verdict"] == "retrain"), None)
    if retrain is None or retrain is newest:
        return said
    return f"{said}, after retrain as of {retrain['as_of']} ({_why(retrain)})"


def _why(decision: Mapping[str, Any]) -> str:
    """The first clause of the decision's sentence; the table below has it whole."""
    sentence = " ".join(str(decision["sentence"]).split("; ")[0].split()).rstrip(".")
    return f"{decision['reason']}: {sentence}" if sentence else str(decision["reason"])


def _newest(settings: Settings, decisions: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for model, block in settings.models.items():
        newest = next((row for row in decisions if row["model"] == model), None)
        if newest is not None:
            rows.append(
                [model, newest["as_of"], newest["verdict"], newest["reason"], newest["mode"], newest["sentence"]]
            )
        else:
            rows.append([model, "no day", "none", "nothing measured", block.mode, "no decision was taken yet"])
    return Table("The newest decision", ["model", "as of", "verdict", "reason", "mode", "why"], rows)


def _history(decisions: Sequence[Mapping[str, Any]], jobs: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for row in decisions:
        job = jobs.get(str(row["decision_id"]))
        became = "no job" if job is None else f"job {job['state']}" + (f": {job['reason']}" if job["reason"] else "")
        rows.append(
            [row["as_of"], row["model"], row["verdict"], row["reason"], row["decision_id"], row["sentence"], became]
        )
    columns = ["as of", "model", "verdict", "reason", "decision", "why", "what became of it"]
    return Table("All decisions, newest first", columns, rows, empty="no decision was taken yet")


def _acts(warehouse: Warehouse) -> Table:
    acts = sorted(warehouse.rows("acts"), key=lambda row: (row["at"], row["act_id"]), reverse=True)
    rows = [[act["at"], act["verb"], act["subject"], act["who"], act["reason"]] for act in acts]
    columns = ["at (UTC)", "act", "subject", "who (as stated)", "reason"]
    return Table("Done by hand", columns, rows, empty="nothing was done by hand")


def _decay(settings: Settings, model: str, evidence: Sequence[Mapping[str, Any]]) -> Picture | None:
    """Decay and its lower bound by as-of day; None where it was never known."""
    days: dict[date, tuple[float | None, float | None]] = {}
    for row in sorted((r for r in evidence if r["model"] == model), key=lambda r: (r["as_of"], r["evidence_id"])):
        decay = json.loads(row["values"]).get("decay") or {}
        days[row["as_of"]] = (decay.get("estimate"), decay.get("low"))
    known = [day for day, (estimate, _) in days.items() if estimate is not None]
    if len(known) < 2:
        return None
    confidence = show_number(settings.model(model).policy.decay_confidence, "share")
    ordered = sorted(days)
    series = {
        "decay": [days[day][0] for day in ordered],
        f"lower bound at {confidence}": [days[day][1] for day in ordered],
    }
    title = f"Decay of {model} by day of evidence ({counted(len(known), 'day')} known)"
    return lines_over_days(title, ordered, series, bound=("counts above", 0.0))
