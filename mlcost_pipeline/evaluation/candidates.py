"""From a trained candidate to its end: judged on the features its job was opened with, then promoted or turned down.

Both steps find their work in the state, so they can be asked at any time, by anybody, any number of times.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.evaluation.gate import GateResult, judge
from mlcost_pipeline.evaluation.promotion import promote, record_gate, reject
from mlcost_pipeline.evaluation.versions import get_version
from mlcost_pipeline.models.features import load_features
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.training.acting import why_not_act
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Candidate:
    """What an open job trained and nobody has settled yet."""

    job_id: str
    version: str
    attempt: int
    data_version: str


@dataclass(frozen=True)
class Settled:
    """How a candidate ended: in force, or turned down for its gate's reason."""

    model: str
    version: str
    job_id: str
    promoted: bool
    gate: GateResult


def waiting_candidate(warehouse: Warehouse, model: str) -> Candidate | None:
    """The candidate of the model's open job, None if there is none."""
    stored = warehouse.state.get(f"models/{model}")
    job_id = None if stored is None else stored.value.get("open_job")
    job = None if job_id is None else warehouse.state.get(f"jobs/{job_id}/job")
    candidate = None if job is None else job.value.get("candidate")
    if job is None or candidate is None:
        return None
    return Candidate(
        job_id=str(job_id),
        version=str(candidate["version"]),
        attempt=int(candidate["attempt"]),
        data_version=str(job.value["data_version"]),
    )


def judge_candidate(warehouse: Warehouse, settings: Settings, model: str) -> GateResult | None:
    """Judge the waiting candidate and put the verdict on record; None if none waits."""
    found = waiting_candidate(warehouse, model)
    if found is None:
        return None
    features = load_features(warehouse, model, found.data_version)
    verdict = judge(warehouse, settings, model, found.version, features)
    record_gate(warehouse, model=model, version=found.version, gate=verdict)
    return verdict


def settle(warehouse: Warehouse, settings: Settings, clock: Clock, model: str) -> Settled | None:
    """Promote or reject the waiting candidate by its recorded verdict.

    None where none waits or none is judged, and where the model may not act: then the candidate goes on waiting.
    """
    found = waiting_candidate(warehouse, model)
    if found is None or why_not_act(warehouse, settings, model) is not None:
        return None
    recorded = get_version(warehouse, model, found.version).gate
    if recorded is None:
        return None
    gate = GateResult.from_dict(recorded)
    end = promote if gate.passed else reject
    done = end(
        warehouse, clock, model=model, version=found.version, attempt=found.attempt, job_id=found.job_id, gate=gate
    )
    return Settled(model, found.version, found.job_id, gate.passed, gate) if done else None
