"""On what ground a part of a charge is whose it is, in words with the numbers that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from mlcost_pipeline.cost.bills.resource_ids import canonical

#: What each reason of an unattributed part means, with what the charge says in braces.
_NOBODYS = {
    "charge_type": "a charge of type {category} follows no use, and no tag or rule takes it",
    "orphan_run_tag": "its tag names run {tag_run}, which is not on record",
    "no_resource_id": "it names no resource, and no tag or rule takes it",
    "tag_not_active": "no tag on this charge, though other charges of {resource_id} are tagged",
    "unknown_resource": "no run on record ever held {resource_id}, nor does a tag or rule take it",
    "no_run_at_that_time": "runs held {resource_id} at other times, none at this one",
    "commitment": "billed for a commitment; its effective cost is with what used it",
    "commitment_unused": "the part of a commitment that nothing used",
}


def ground(
    slot: Mapping[str, Any],
    part: Mapping[str, Any],
    holds: Sequence[Mapping[str, Any]],
    resources: Sequence[Mapping[str, Any]],
) -> str:
    """Why this part of the slot is whose it is; `holds` and `resources` are those on record, of any resource."""
    method, reason = part["method"], part["reason"]
    if method == "direct":
        tagged = slot["tag_run"] == part["run_id"]
        return f"tag names run {slot['tag_run']}" if tagged else "the resource is this run's own"
    if method == "occupancy":
        return _held(slot, [hold for hold in holds if hold["run_id"] == part["run_id"]], resources)
    if method == "idle":
        return "nobody held this part of the resource"
    if method == "tag":
        return f"tag names model {slot['tag_model']}" + (f", stage {slot['tag_stage']}" if slot["tag_stage"] else "")
    if method == "rule":
        return f"rule {reason} of mlcost.yaml"
    if method == "derived":
        base = str(part["base"]).replace(":", ", ").replace("_", " ")
        return f"{reason} in proportion to what was charged as {base}"
    return _NOBODYS[reason].format_map(slot) if reason in _NOBODYS else str(reason).replace("_", " ")


def _held(slot: Mapping[str, Any], holds: Sequence[Mapping[str, Any]], resources: Sequence[Mapping[str, Any]]) -> str:
    start, end = slot["charge_start"], slot["charge_end"]
    stretches = [
        (_overlap(hold, start, end), hold["share_milli"])
        for hold in holds
        if canonical(hold["resource_id"]) == slot["resource_id"]
    ]
    of = _capacity(slot, resources)
    held = ", ".join(f"{share}{of} for {seconds:,.0f} s" for seconds, share in stretches if seconds > 0)
    whole = f"{(end - start) / timedelta(seconds=1):,.0f} s"
    return f"held {held} of {whole}" if held else f"held it within these {whole} by what was on record then"


def _capacity(slot: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> str:
    """What can be held of the resource, as it was put on record for that time; nothing where it never was."""
    fitting = [
        each
        for each in resources
        if canonical(each["resource_id"]) == slot["resource_id"]
        and each["valid_from"] < slot["charge_end"]
        and (each["valid_to"] is None or each["valid_to"] > slot["charge_start"])
    ]
    if not fitting:
        return " milli"
    newest = max(fitting, key=lambda each: each["valid_from"])
    return f" of {newest['capacity_milli']} {newest['capacity_unit']}"


def _overlap(hold: Mapping[str, Any], start: datetime, end: datetime) -> float:
    until = end if hold["end"] is None else min(end, hold["end"])
    seconds: float = (until - max(start, hold["start"])) / timedelta(seconds=1)
    return max(0.0, seconds)
