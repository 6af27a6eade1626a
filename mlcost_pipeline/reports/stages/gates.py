"""Reports of the gate and of what came into force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import stage_report
from mlcost_pipeline.reports.values import Cell, Quantity, show_number

if TYPE_CHECKING:
    from mlcost_pipeline.evaluation.candidates import Settled
    from mlcost_pipeline.evaluation.gate import GateResult
    from mlcost_pipeline.settings import Settings


def gate_report(gate: GateResult, settings: Settings) -> Document:
    """The verdict on a candidate, the difference with its bounds, and each slice."""
    budget = settings.model(gate.model).budget
    allowed = f"harm if surely below {show_number(-gate.margin, 'share')}" if gate.margin is not None else None
    doc = Document(
        title=f"Gate of {gate.model}",
        summary=" ".join(gate.sentence.split()),
        numbers=[
            Number("difference", "difference", gate.difference, "share"),
            Number("difference_high", "its upper bound (one-sided, 80 %)", gate.high, "share", bound=allowed),
            Number("difference_low", "its lower bound (one-sided, 80 %)", gate.low, "share"),
            Number("candidate_level", "candidate", gate.candidate_level, "share"),
            Number("reference_level", "compared with", gate.reference_level, "share"),
            Number("slices_harmed", "slices shown harmed", len(gate.harmed), bound="none allowed"),
        ],
        tables=[slices_table(gate), _metrics(gate)],
        ids={"version": gate.version, "compared_with": gate.compared_with, "data_version": gate.data_version},
        notes=[
            f"The budget is {show_number(budget.overall, 'share')} of the level compared with, and "
            f"{show_number(budget.slice, 'share')} on each slice; a slice too small to tell is listed, not passed over."
        ],
    )
    return stage_report(doc, settings, model=gate.model)


def promotion_report(settled: Settled, settings: Settings) -> Document:
    """What is in force now: the candidate where its gate let it through, otherwise the one before."""
    gate = settled.gate
    before = gate.incumbent or "nothing"
    now = settled.version if settled.promoted else before
    verb = "came into force" if settled.promoted else "was turned down"
    rows: list[list[Cell]] = [
        ["in force now", now],
        ["in force before", before],
        ["gate's reason", gate.reason.replace("_", " ")],
        ["slices shown harmed", ", ".join(gate.harmed) or "none"],
        ["slices too small to tell", ", ".join(gate.not_shown) or "none"],
    ]
    doc = Document(
        title=f"Production of {settled.model}",
        summary=f"{settled.model}: {settled.version} {verb}, {now} is in force; {' '.join(gate.sentence.split())}",
        numbers=[
            Number("promoted", "promoted", int(settled.promoted), bound="1: yes, 0: no"),
            Number("difference", "difference", gate.difference, "share"),
            Number("slices_harmed", "slices shown harmed", len(gate.harmed), bound="none allowed"),
        ],
        tables=[Table("In force", ["what", "value"], rows), slices_table(gate)],
        ids={"version": settled.version, "job_id": settled.job_id, "data_version": gate.data_version},
    )
    return stage_report(doc, settings, model=settled.model)


def slices_table(gate: GateResult) -> Table:
    """Every slice, harmed ones first, then those too small to tell."""
    order = {"harmed": 0, "not_shown": 1}
    found = sorted(gate.slices, key=lambda s: (order.get(str(s["status"]), 2), str(s["dimension"]), str(s["value"])))
    rows: list[list[Cell]] = [
        [
            f"{each['dimension']} = {each['value']}",
            str(each["status"]).replace("_", " "),
            bool(each["important"]),
            *(each[name] for name in ("units", "candidate_count", "reference_count")),
            *(Quantity(each[name], "share") for name in ("difference", "low", "high")),
            Quantity(-each["margin"], "share"),
        ]
        for each in found
    ]
    columns = ["slice", "state", "important", gate.unit or "units", "candidate had", "compared with had", "difference",
               "low (95 %)", "high (95 %)", "allowed"]  # fmt: skip
    return Table("Slices", columns, rows, empty="no slice was compared")


def _metrics(gate: GateResult) -> Table:
    """Every metric that was measured, as it was named."""
    rows: list[list[Cell]] = [[name.replace("_", " "), value] for name, value in gate.metrics.items()]
    return Table("Metrics", ["metric", "value"], rows, empty=gate.sentence)
