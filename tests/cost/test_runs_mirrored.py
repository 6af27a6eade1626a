"""Records of another orchestrator's runs are what it tells now: corrected when it tells more, never held twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from mlcost_pipeline.cost.runs_copied import StepFacts
from mlcost_pipeline.cost.runs_mirrored import OWN_RECORD, mirror_steps, take_back_doubles
from mlcost_pipeline.cost.steps import Ended, StepLog, facts_of
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import HOUR, NOON

SOURCE = "dagster:main"


def told(planned: str, made: str = "", *, hours: int = 1, status: str = "lost") -> list[StepFacts]:
    """What a training step says that was to make one partition a letter, and has made some of them."""
    log = StepLog([("w", day) for day in planned], {("w", day): {} for day in made})
    cause = None if status == "succeeded" else "gave no sign of life any more"
    return list(
        facts_of(
            log, Ended(NOON, NOON + hours * HOUR, status, cause), source=SOURCE, run_id="r1", step="w",
            owner=lambda _: ("fraud", "training", "retrain"), resource_id="gpu-1", share_milli=1000, job_id="j1",
        )
    )  # fmt: skip


def held(warehouse: Warehouse) -> timedelta:
    """Device time that all runs hold together."""
    holds = warehouse.rows("occupancy")
    return sum(((hold["end"] - hold["start"]) * hold["share_milli"] for hold in holds), timedelta()) / 1000


def as_it_stands(warehouse: Warehouse) -> dict[str | None, tuple[str, Any]]:
    rows = warehouse.rows("run_records", where="ended_at > started_at")
    return {row["partition"]: (row["status"], row["ended_at"] - NOON) for row in rows}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (told("ab", "a"), told("ab", "ab", hours=2, status="succeeded")),  # it was alive and went on
        (told("abc"), told("abc", "abc", hours=2, status="succeeded")),  # thirds of the time lie elsewhere then
        (told("abc"), told("a", "a", hours=2, status="succeeded")),  # optional parts were left out
        (told("a"), told("a", hours=2)),  # one more event, and silent again
        (told("ab", "ab", hours=2, status="succeeded"), told("ab", "ab", hours=2, status="succeeded")),
    ],
)
def test_a_run_told_anew_holds_what_it_held_and_no_more(
    warehouse: Warehouse, first: list[StepFacts], then: list[StepFacts]
) -> None:
    mirror_steps(warehouse, first)
    mirror_steps(warehouse, then)
    assert held(warehouse) == 2 * HOUR
    wanted = {fact.partition: (fact.status, fact.ended_at - NOON) for fact in then}
    assert as_it_stands(warehouse) == wanted
    assert mirror_steps(warehouse, then) == []
    jobs = {row["job_id"] for row in warehouse.rows("run_records", where="purpose = 'retrain'")}
    assert jobs == {"j1"}
    mirror_steps(warehouse, first)
    mirror_steps(warehouse, then)  # also what was true before may be true again
    assert (held(warehouse), as_it_stands(warehouse)) == (2 * HOUR, wanted)


def test_a_kill_between_holds_and_records_is_made_good(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror_steps(warehouse, told("abc"))
    append = Warehouse.append

    def killed(self: Warehouse, table: str, rows: Any, **more: Any) -> Any:
        if table == "run_records":
            raise MemoryError
        return append(self, table, rows, **more)

    monkeypatch.setattr(Warehouse, "append", killed)
    with pytest.raises(MemoryError):
        mirror_steps(warehouse, told("abc", "ab", hours=2, status="succeeded"))
    monkeypatch.undo()
    assert len(mirror_steps(warehouse, told("abc", "ab", hours=2, status="succeeded"))) == 3  # c was left out
    assert held(warehouse) == 2 * HOUR and set(as_it_stands(warehouse)) == {"a", "b"}


def own(warehouse: Warehouse, partitions: Sequence[str | None], run: str = "r1") -> None:
    """Records that the work of a run wrote itself, of the whole asset or of partitions."""
    for day in partitions:
        row = {"run_id": f"own-{day}", "model": "fraud", "stage": "training", "purpose": "retrain", "job_id": "j9",
               "attempt": 1, "asset": "w", "partition": day, "started_at": NOON, "ended_at": NOON + HOUR,
               "status": "succeeded", "orchestrator_run_id": run, "source": "recorded"}  # fmt: skip
        hold = {"run_id": f"own-{day}", "resource_id": "gpu-1", "start": NOON, "end": NOON + HOUR, "share_milli": 500}
        warehouse.append("occupancy", [hold])
        warehouse.append("run_records", [row])


@pytest.mark.parametrize(("recorded", "left"), [([None], timedelta()), (["a"], HOUR / 2), (["a", "b"], timedelta())])
@pytest.mark.parametrize("late", [False, True])
def test_work_that_recorded_itself_is_held_once_whichever_is_read_first(
    warehouse: Warehouse, recorded: list[str | None], left: timedelta, late: bool
) -> None:
    facts = told("ab", "ab", status="succeeded")
    if late:
        mirror_steps(warehouse, facts)
    own(warehouse, recorded)
    own(warehouse, ["z"], run="another")
    if not late:
        mirror_steps(warehouse, facts)
    assert bool(take_back_doubles(warehouse, SOURCE)) == late
    assert take_back_doubles(warehouse, SOURCE) == [] and mirror_steps(warehouse, facts) == []
    assert held(warehouse) == left + HOUR / 2 * (len(recorded) + 1)
    let_go = warehouse.rows("run_records", where="cause = ?", params=[OWN_RECORD])
    assert {(row["purpose"], row["asset"], row["ended_at"] - row["started_at"]) for row in let_go} <= {
        ("measure", None, timedelta())
    }
