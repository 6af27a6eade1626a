"""Reports of what was measured for and against a retrain: faults, volume, drift, decay."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Picture, Table
from mlcost_pipeline.reports.dress import counted, share_of, stage_report
from mlcost_pipeline.reports.pictures import lines_over_days
from mlcost_pipeline.reports.values import Cell, Quantity, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.evidence.values import Decay, Drift, EvidenceRecord, Faults, FeatureDrift, Volume
    from mlcost_pipeline.settings import Policy, Settings


def evidence_report(record: EvidenceRecord, settings: Settings) -> Document:
    """All of one piece of evidence: what is wrong with the data, how much is new, what drifted, what decayed."""
    policy = settings.model(record.model).policy
    volume, drift, decay = record.volume, record.drift, record.decay
    doc = Document(
        title=f"Evidence for {record.model}",
        summary=(
            f"{record.model} as of {record.as_of}: {counted(len(record.faults.found), 'fault')} in the data, "
            f"{counted(volume.new_labelled, 'new labelled row')} (at least {policy.min_new_rows} wanted), "
            f"{_drift_words(drift)}, {_decay_words(decay, policy)}."
        ),
        numbers=[
            Number("faults", "faults in the data", len(record.faults.found), bound="none wanted"),
            *_volume_numbers(volume, policy)[:1],
            *_drift_numbers(drift, policy)[:2],
            *_decay_numbers(decay, policy)[:2],
        ],
        tables=[_overview(record, policy), _faults(record.faults), _features(drift)],
        pictures=_decay_picture(record.model, decay),
        ids={
            "evidence_id": record.evidence_id,
            "incumbent": record.incumbent,
            "data_version": record.data_version,
            "detector_version": record.detector_version,
        },
    )
    return stage_report(doc, settings, model=record.model)


def evidence_part_report(
    part: str,
    measured: Faults | Volume | Drift | Decay,
    settings: Settings,
    *,
    model: str | None = None,
    as_of: date | None = None,
) -> Document:
    """One of the four measurements on its own; ``model`` names whose thresholds it is held against.

    Raises:
        ValueError: no model is named, and the settings have more than one kind of thresholds.
    """
    from mlcost_pipeline.evidence import values

    policy = _policy(settings, model)
    subject = " ".join(word for word in (model or "this model", f"as of {as_of}" if as_of else "") if word)
    match measured:
        case values.Faults():
            doc = _faults_document(subject, measured)
        case values.Volume():
            doc = _volume_document(subject, measured, policy)
        case values.Drift():
            doc = _drift_document(subject, measured, policy)
        case values.Decay():
            doc = _decay_document(subject, model or "the model", measured, policy)
    titled = replace(doc, title=f"{part.capitalize()} of {model}" if model else part.capitalize())
    return stage_report(titled, settings, model=model)


def _policy(settings: Settings, model: str | None) -> Policy:
    if model is not None:
        return settings.model(model).policy
    policies = [block.policy for block in settings.models.values()]
    if any(policy != policies[0] for policy in policies):
        raise ValueError(
            "models have different policies: name the model whose thresholds a measurement is held against"
        )
    return policies[0]


def _faults_document(subject: str, faults: Faults) -> Document:
    found = faults.found
    worst = f", first of all: {found[0].sentence.rstrip('.')}" if found else ""
    return Document(
        title="Faults",
        summary=f"{subject}: {counted(len(found), 'fault')} in {counted(faults.rows, 'row')}, none allowed{worst}.",
        numbers=[
            Number("faults", "faults in the data", len(found), bound="none allowed"),
            Number("rows", "rows looked at", faults.rows),
            Number("quarantined", "rows kept out of training", len(faults.quarantine)),
        ],
        tables=[_faults(faults)],
        notes=faults.noted,
    )


def _volume_document(subject: str, volume: Volume, policy: Policy) -> Document:
    rows: list[list[Cell]] = [
        ["new since the training cut", volume.new_rows],
        ["of these with a matured label", volume.new_labelled],
        ["of these positive", _count_or_reason(volume.new_positives)],
        ["the incumbent was trained on", volume.training_rows],
        ["a training as of this day would see", volume.usable_rows],
        ["of these positive", _count_or_reason(volume.usable_positives)],
    ]
    return Document(
        title="Volume",
        summary=(
            f"{subject}: {counted(volume.new_labelled, 'labelled row')} since the training cut, "
            f"{show_number(_new_share(volume), 'share')} of the training rows; at least {policy.min_new_rows} and "
            f"{show_number(policy.min_new_share, 'share')} are wanted."
        ),
        numbers=_volume_numbers(volume, policy),
        tables=[Table("Rows", ["what", "rows"], rows)],
    )


def _drift_document(subject: str, drift: Drift, policy: Policy) -> Document:
    return Document(
        title="Drift",
        summary=f"{subject}: {_drift_words(drift)}; material is a PSI above {show_number(policy.drift_threshold)} and "
        "above what chance explains.",
        numbers=[
            *_drift_numbers(drift, policy),
            Number("measured_features", "features measured", sum(f.state == "measured" for f in drift.features)),
        ],
        tables=[_features(drift)],
        ids={"reference": drift.reference},
        notes=[f"Drift began on {drift.began}."] if drift.began else [],
    )


def _decay_document(subject: str, model: str, decay: Decay, policy: Policy) -> Document:
    rows: list[list[Cell]] = [
        [day, had, possible, Quantity(had / possible if possible else None, "share")]
        for day, had, possible in decay.per_day
    ]
    columns = ["day", "had", "could have been had", "share"]
    return Document(
        title="Decay",
        summary=f"{subject}: {_decay_words(decay, policy)}.",
        numbers=_decay_numbers(decay, policy),
        tables=[Table("By day", columns, rows, empty=f"nothing was compared: {decay.reason}")],
        pictures=_decay_picture(model, decay),
    )


def _drift_words(drift: Drift) -> str:
    if drift.state != "measured":
        return f"drift unknown ({drift.reason})"
    measured = sum(feature.state == "measured" for feature in drift.features)
    named = f" ({', '.join(drift.material[:3])})" if drift.material else ""
    return f"{len(drift.material)} of {counted(measured, 'feature')} drifted materially{named}"


def _decay_words(decay: Decay, policy: Policy) -> str:
    if not decay.known:
        return f"decay unknown ({decay.reason})"
    return (
        f"{decay.measure} went from {show_number(decay.anchor)} to {show_number(decay.level)}, a decay of "
        f"{show_number(decay.estimate)} whose lower bound at {show_number(policy.decay_confidence, 'share')} is "
        f"{show_number(decay.low)} (above 0 counts)"
    )


def _new_share(volume: Volume) -> float | None:
    return share_of(volume.new_labelled, volume.training_rows)


def _volume_numbers(volume: Volume, policy: Policy) -> list[Number]:
    share = f"at least {show_number(policy.min_new_share, 'share')}"
    numbers = [
        Number("new_labelled", "new labelled rows", volume.new_labelled, bound=f"at least {policy.min_new_rows}"),
        Number("new_share", "share of the training rows", _new_share(volume), "share", bound=share),
        Number("usable_rows", "rows a training would see", volume.usable_rows),
    ]
    if volume.new_positives is not None:
        bound = f"at least {policy.min_new_positives}"
        numbers.append(Number("new_positives", "new positives", volume.new_positives, bound=bound))
    return numbers


def _drift_numbers(drift: Drift, policy: Policy) -> list[Number]:
    known = [psi for psi in map(_psi, drift.features) if psi is not None]
    drifted = len(drift.material) if drift.state == "measured" else None
    bound = f"material above {show_number(policy.drift_threshold)}"
    return [
        Number("drifted_features", "features drifted materially", drifted),
        Number("worst_psi", "largest PSI of a feature", max(known, default=None), bound=bound),
    ]


def _decay_numbers(decay: Decay, policy: Policy) -> list[Number]:
    confidence = show_number(policy.decay_confidence, "share")
    return [
        Number("decay", "decay (anchor minus now)", decay.estimate),
        Number("decay_low", f"its lower bound at {confidence}", decay.low, bound="above 0 is decay"),
        Number("anchor_level", "level at the anchor", decay.anchor),
        Number("level", "level now", decay.level),
        Number("decay_days", "days compared", decay.days),
    ]


def _psi(feature: FeatureDrift) -> float | None:
    """PSI of the newest window, the one that the policy looks at."""
    return feature.windows[0].psi if feature.windows else None


def _overview(record: EvidenceRecord, policy: Policy) -> Table:
    volume, decay, drift = record.volume, record.decay, record.drift
    rows: list[list[Cell]] = [
        ["faults", len(record.faults.found), "none"],
        ["rows kept out of training", len(record.faults.quarantine), "none"],
        ["new labelled rows", volume.new_labelled, f"at least {policy.min_new_rows}"],
        ["share of the training rows", Quantity(_new_share(volume), "share"),
         f"at least {show_number(policy.min_new_share, 'share')}"],
        ["new positives", _count_or_reason(volume.new_positives), f"at least {policy.min_new_positives}"],
        ["features drifted", len(drift.material) if drift.state == "measured" else f"unknown: {drift.reason}",
         f"PSI above {show_number(policy.drift_threshold)}"],
        ["decay", decay.estimate if decay.known else f"unknown: {decay.reason}", "lower bound above 0"],
        ["lower bound of decay", decay.low, f"at {show_number(policy.decay_confidence, 'share')}"],
    ]  # fmt: skip
    return Table("What was measured", ["what", "found", "held against"], rows)


def _faults(faults: Faults) -> Table:
    return Table(
        "Faults in the data",
        ["kind", "column", "rows", "what", "what to do"],
        [[fault.kind, fault.column, fault.rows, fault.sentence, fault.todo] for fault in faults.found],
        empty=f"no fault in {counted(faults.rows, 'row')}",
    )


def _features(drift: Drift) -> Table:
    """Material ones first, then by PSI; of the newest window."""
    rows: list[list[Cell]] = []
    for feature in sorted(drift.features, key=lambda f: (not f.material, -(_psi(f) or 0.0), f.feature)):
        newest = feature.windows[0] if feature.windows else None
        missing = Quantity(newest.missing_share if newest else None, "share")
        rows.append([
            feature.feature, feature.state.replace("_", " "), feature.material, _psi(feature),
            newest.null_bound if newest else None, newest.rows if newest else 0, missing, feature.note,
        ])  # fmt: skip
    columns = ["feature", "state", "material", "PSI", "bound of chance", "rows", "missing", "note"]
    return Table("Features", columns, rows, empty=f"no feature was compared: {drift.reason}")


def _decay_picture(model: str, decay: Decay) -> list[Picture]:
    if not decay.per_day:
        return []
    days = [date.fromisoformat(day) for day, _, _ in decay.per_day]
    shares = [had / possible if possible else None for _, had, possible in decay.per_day]
    bound = ("level at the anchor", decay.anchor) if decay.anchor is not None else None
    return [lines_over_days(f"{decay.measure or 'level'} of {model} by day", days, {"share had": shares}, bound=bound)]


def _count_or_reason(count: int | None) -> Cell:
    return "does not apply" if count is None else count
