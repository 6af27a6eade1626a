"""What must hold, in sight: each check reads the warehouse and shows; the library guards by itself."""

from datetime import timedelta

import dagster as dg

from assets.names import key
from mlcost_pipeline.evaluation.versions import incumbent
from mlcost_pipeline.evidence.summary import summary_of
from mlcost_pipeline.inference.pointer import live
from mlcost_pipeline.resources import Project
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.triggers import last_complete_day


def build(settings: Settings) -> list[dg.AssetChecksDefinition]:
    """Checks on the decision and the model of each model, and on the lists of those that have any."""
    made = []
    for model, block in settings.models.items():
        made += [_decided_on_sound_data(model), _passed_its_gate(model)]
        if block.task == "recommendation":
            made.append(_lists_are_of_the_newest_day(model))
    return made


def _decided_on_sound_data(model: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key(model, "decision"), description="No fault of the data blocked the newest decision.")
    def sound_data(project: Project) -> dg.AssetCheckResult:
        summary = summary_of(project.warehouse, model)
        reason, said = summary.get("reason"), summary.get("sentence", "nothing was decided yet")
        return _result(reason not in (None, "blocked_fault"), str(said))

    return sound_data


def _passed_its_gate(model: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key(model, "production"), description="The model in force was let through by its gate.")
    def passed_its_gate(project: Project) -> dg.AssetCheckResult:
        version = incumbent(project.warehouse, model)
        if version is None or version.gate is None:
            return _result(False, "no version is in force, or it was never judged")
        return _result(bool(version.gate_passed), str(version.gate["sentence"]))

    return passed_its_gate


def _lists_are_of_the_newest_day(model: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key(model, "lists"), description="The lists know the world up to the end of yesterday.")
    def newest_data_cut(project: Project) -> dg.AssetCheckResult:
        entry = live(project.warehouse, model)
        expected = last_complete_day(project.clock(model)) + timedelta(days=1)
        if entry is None:
            return _result(False, "no version of the lists is live")
        fits = entry.data_cut.date() >= expected
        return _result(fits, f"{entry.version} has data cut {entry.data_cut:%Y-%m-%d %H:%M}, expected {expected} 00:00")

    return newest_data_cut


def _result(passed: bool, sentence: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata={"summary": sentence})
