"""One function a stage: what the library returned, as a document that reads like every other."""

from mlcost_pipeline.reports.stages.bills import bill_report, ledger_report, reconciliation_report
from mlcost_pipeline.reports.stages.decisions import decision_report
from mlcost_pipeline.reports.stages.evidence import evidence_part_report, evidence_report
from mlcost_pipeline.reports.stages.gates import gate_report, promotion_report
from mlcost_pipeline.reports.stages.jobs import job_report
from mlcost_pipeline.reports.stages.levers import lever_plan_report
from mlcost_pipeline.reports.stages.outcomes import outcomes_report
from mlcost_pipeline.reports.stages.predictions import predictions_report
from mlcost_pipeline.reports.stages.serving import publication_report, served_report
from mlcost_pipeline.reports.stages.sources import features_report, ingest_report
from mlcost_pipeline.reports.stages.unit_costs import unit_cost_report

__all__ = [
    "bill_report",
    "decision_report",
    "evidence_part_report",
    "evidence_report",
    "features_report",
    "gate_report",
    "ingest_report",
    "job_report",
    "ledger_report",
    "lever_plan_report",
    "outcomes_report",
    "predictions_report",
    "promotion_report",
    "publication_report",
    "reconciliation_report",
    "served_report",
    "unit_cost_report",
]
