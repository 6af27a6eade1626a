"""One piece of evidence, one decision, one job: whoever decides, however often, and wherever it is killed."""

from __future__ import annotations

import multiprocessing
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.errors import JobError, MlcostError
from mlcost_pipeline.evidence import decision as deciding
from mlcost_pipeline.evidence.acts import cancel, freeze, rearm, request_retrain, unfreeze
from mlcost_pipeline.evidence.decision import Decision, take
from mlcost_pipeline.evidence.record import collect, find_faults, measure_decay, measure_drift, measure_volume
from mlcost_pipeline.evidence.review import review
from mlcost_pipeline.evidence.why import explain
from mlcost_pipeline.settings import Settings
from mlcost_pipeline.spot.jobs import cancel_job, end_job, job_state, open_job_of
from mlcost_pipeline.training.jobs import announce_end
from mlcost_pipeline.warehouse import Warehouse
from tests.evidence.worlds import AS_OF, Row, clock_at, fraud_world, put_incumbent, settings_of, take_alone


@pytest.fixture
def worse(tmp_path: Path) -> Warehouse:
    """A world in which the incumbent lost more than half of its level."""
    return fraud_world(tmp_path / "warehouse", caught=2)


def now(warehouse: Warehouse, settings: Settings) -> Decision:
    return take(warehouse, settings, clock_at(), "fraud", AS_OF)


def test_the_same_evidence_ten_times_is_one_decision_and_one_job(worse: Warehouse, settings: Settings) -> None:
    found = [now(worse, settings) for _ in range(10)]
    assert len({each.decision_id for each in found}) == 1
    assert found[0].verdict == "retrain" and found[0].reason == "decay" and found[-1] == found[0]
    assert [len(worse.rows(table)) for table in ("evidence", "decisions", "jobs")] == [1, 1, 1]
    assert open_job_of(worse, "fraud") == found[0].decision_id


def test_the_parts_measured_one_by_one_are_the_record(worse: Warehouse, settings: Settings) -> None:
    parts = [
        measure(worse, settings, "fraud", AS_OF)
        for measure in (find_faults, measure_volume, measure_drift, measure_decay)
    ]
    record = collect(worse, settings, clock_at(), "fraud", AS_OF)
    assert [record.faults, record.volume, record.drift, record.decay] == parts


def test_observing_decides_and_starts_nothing(worse: Warehouse, tmp_path: Path) -> None:
    observing = settings_of(tmp_path / "warehouse", mode="observe")
    found = now(worse, observing)
    assert (found.verdict, found.mode, found.job_open) == ("retrain", "observe", False)
    assert found.not_acted is not None and "mode is observe" in found.not_acted
    assert worse.rows("jobs") == []
    acted = now(worse, settings_of(tmp_path / "warehouse"))  # the team lets it act: the same decision, now with a job
    assert (acted.decision_id, acted.mode, acted.job_open) == (found.decision_id, "act", True)


def test_a_freeze_stops_acting_until_it_is_lifted(worse: Warehouse, settings: Settings) -> None:
    freeze(worse, clock_at(), who="Ada", reason="migration")
    found = now(worse, settings)
    assert (found.verdict, found.job_open) == ("retrain", False)
    assert found.not_acted is not None and "frozen by Ada: migration" in found.not_acted
    unfreeze(worse, clock_at(), model="shop", who="Ada", reason="another model")
    assert not now(worse, settings).job_open
    unfreeze(worse, clock_at(), who="Ada", reason="done")
    assert now(worse, settings).job_open
    assert [act["verb"] for act in worse.rows("acts")].count("unfreeze") == 2


def test_killed_between_decision_and_job(worse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deciding, "open_job", killed)
        with pytest.raises(KeyboardInterrupt):
            now(worse, settings)
    assert len(worse.rows("decisions")) == 1 and worse.rows("jobs") == []
    found = now(worse, settings)
    assert found.job_open and len(worse.rows("decisions")) == len(worse.rows("jobs")) == 1


def test_killed_between_the_claim_and_the_row(
    worse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Warehouse.append

    def killed(self: Warehouse, table: str, rows: Any) -> Any:
        if table == "decisions":
            raise KeyboardInterrupt
        return append(self, table, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            now(worse, settings)
    assert now(worse, settings).job_open
    assert len(worse.rows("decisions")) == 1


def test_two_processes_take_one_decision(worse: Warehouse) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(take_alone, [str(worse.root)] * 2, chunksize=1)
    assert len(set(found)) == 1 and found[0][1]
    assert [len(worse.rows(table)) for table in ("evidence", "decisions", "jobs")] == [1, 1, 1]


def test_a_backfilled_day_is_recorded_and_starts_nothing(worse: Warehouse, settings: Settings) -> None:
    old = take(worse, settings, clock_at(), "fraud", AS_OF - timedelta(days=1))
    assert (old.verdict, old.job_open) == ("retrain", False)
    assert old.not_acted is not None and "not the newest day" in old.not_acted
    assert now(worse, settings).job_open
    again = take(worse, settings, clock_at(), "fraud", AS_OF - timedelta(days=2))
    assert not again.job_open
    summary = worse.state.get("summaries/fraud")
    assert summary is not None and summary.value["as_of"] == AS_OF.isoformat()


def test_a_day_that_is_not_over_starts_nothing(worse: Warehouse, settings: Settings) -> None:
    found = take(worse, settings, clock_at(AS_OF - timedelta(days=1)), "fraud", AS_OF)
    assert not found.job_open and found.not_acted is not None and "not over" in found.not_acted


def test_the_decision_of_an_ended_job_opens_no_second_one(worse: Warehouse, settings: Settings) -> None:
    first = now(worse, settings)
    end_job(worse, clock_at(), first.decision_id, "rejected", "worse")
    again = now(worse, settings)
    assert again.decision_id == first.decision_id and not again.job_open
    assert again.not_acted == "its job has ended: rejected"
    assert len(worse.rows("jobs")) == 1


def test_a_promotion_makes_new_evidence_and_a_cooldown(worse: Warehouse, settings: Settings) -> None:
    first = now(worse, settings)
    end_job(worse, clock_at(), first.decision_id, "promoted", "better")
    put_incumbent(worse, "fraud", job="job1")
    later = now(worse, settings)
    assert later.evidence_id != first.evidence_id
    assert later.verdict == "hold"


def test_new_constants_are_a_new_decision(worse: Warehouse, settings: Settings, tmp_path: Path) -> None:
    first = now(worse, settings)
    other = now(worse, settings_of(tmp_path / "warehouse", policy={"value_per_outcome": Decimal(100)}))
    assert other.decision_id != first.decision_id
    assert other.money["decay_cost_per_day"] is not None


def test_by_hand_once(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    assert now(warehouse, settings).verdict == "hold"
    act = request_retrain(warehouse, clock_at(), model="fraud", who="Ada", reason="new terminals")
    found = now(warehouse, settings)
    assert (found.verdict, found.reason, found.act_id, found.job_open) == ("retrain", "by_hand", act, True)
    assert now(warehouse, settings).decision_id == found.decision_id
    end_job(warehouse, clock_at(), found.decision_id, "rejected", "no better")
    tomorrow = AS_OF + timedelta(days=1)
    warehouse.append("transactions", [{**row, "transaction_id": f"n{n}", "happened_at": row["happened_at"]
                                       + timedelta(days=1)} for n, row in enumerate(_last_day(warehouse))])  # fmt: skip
    assert take(warehouse, settings, clock_at(tomorrow), "fraud", tomorrow).act_id is None


def _next_day(warehouse: Warehouse, day: int) -> date:
    """One more day of payments, like the last of the world."""
    later = timedelta(days=day)
    warehouse.append("transactions", [
        {**row, "transaction_id": f"n{day}-{n}", "happened_at": row["happened_at"] + later}
        for n, row in enumerate(_last_day(warehouse))
    ])  # fmt: skip
    return AS_OF + later


def test_a_retrain_by_hand_waits_out_a_freeze_and_is_carried_out_once(tmp_path: Path, settings: Settings) -> None:
    """Asked for twice while frozen: every day says so, and one job answers both."""
    warehouse = fraud_world(tmp_path / "warehouse")
    freeze(warehouse, clock_at(), model="fraud", who="Eve", reason="audit")
    request_retrain(warehouse, clock_at(), model="fraud", who="Ada", reason="new terminals")
    for day in (0, 1):
        as_of = _next_day(warehouse, day) if day else AS_OF
        waiting = take(warehouse, settings, clock_at(as_of), "fraud", as_of)
        assert (waiting.verdict, waiting.reason, waiting.job_open) == ("retrain", "by_hand", False)
        assert waiting.not_acted is not None and "frozen by Eve: audit" in waiting.not_acted
    request_retrain(warehouse, clock_at(as_of), model="fraud", who="Bob", reason="still waiting")
    unfreeze(warehouse, clock_at(as_of), model="fraud", who="Eve", reason="done")
    acted = take(warehouse, settings, clock_at(as_of), "fraud", as_of)
    assert acted.job_open and "Bob asks for a retrain" in acted.sentence
    end_job(warehouse, clock_at(as_of), acted.decision_id, "rejected", "no better")
    after = _next_day(warehouse, 2)
    assert take(warehouse, settings, clock_at(after), "fraud", after).act_id is None
    assert [row["job_id"] for row in warehouse.rows("jobs")] == [acted.decision_id]


def test_a_retrain_by_hand_waits_for_the_job_under_way(worse: Warehouse, settings: Settings) -> None:
    first = now(worse, settings)
    act = request_retrain(worse, clock_at(), model="fraud", who="Ada", reason="new terminals")
    busy = now(worse, settings)
    assert (busy.reason, busy.act_id) == ("in_progress", act)
    assert busy.sentence.endswith("The retrain that Ada asked for (new terminals) goes on waiting.")
    end_job(worse, clock_at(), first.decision_id, "rejected", "no better")
    tomorrow = _next_day(worse, 1)
    found = take(worse, settings, clock_at(tomorrow), "fraud", tomorrow)
    assert (found.reason, found.act_id, found.job_open) == ("by_hand", act, True)


def test_a_cancel_is_on_record_with_who_and_why(worse: Warehouse, settings: Settings) -> None:
    job = now(worse, settings).decision_id
    with pytest.raises(MlcostError, match="say who"):
        cancel(worse, clock_at(), model="fraud", who=" ", reason="wrong data")
    assert open_job_of(worse, "fraud") == job and worse.rows("acts") == []
    assert cancel(worse, clock_at(), model="fraud", who="Ada", reason="wrong data") == job
    (act,) = worse.rows("acts")
    assert (act["verb"], act["subject"], act["who"], act["reason"]) == ("cancel", "fraud", "Ada", "wrong data")
    ended = job_state(worse, job)
    assert ended is not None and (ended["state"], ended["reason"]) == ("cancelled", "wrong data (Ada)")
    with pytest.raises(MlcostError, match="no job of fraud is open"):
        cancel(worse, clock_at(), model="fraud", who="Ada", reason="again")


def test_a_cancel_that_comes_too_late_says_so(worse: Warehouse, settings: Settings) -> None:
    job = now(worse, settings).decision_id
    assert announce_end(worse, job, "promoted")
    with pytest.raises(JobError, match="being promoted already"):
        cancel(worse, clock_at(), model="fraud", who="Ada", reason="wrong data")
    assert open_job_of(worse, "fraud") == job


def _last_day(warehouse: Warehouse) -> list[Row]:
    return warehouse.rows("transactions", where="CAST(happened_at AS DATE) = ?", params=[AS_OF])


def test_a_cancelled_job_blocks_until_it_is_rearmed(worse: Warehouse, settings: Settings) -> None:
    first, clock = now(worse, settings), clock_at()
    cancel_job(worse, clock, first.decision_id, "by Ada")
    request_retrain(worse, clock, model="fraud", who="Ada", reason="again")
    asked = now(worse, settings)
    assert (asked.verdict, asked.reason) == ("ask", "exhausted")
    now(worse, settings)
    assert (worse.root / "notices.jsonl").read_text().count("ask (exhausted)") == 1
    rearm(worse, clock, model="fraud", who="Ada", reason="the pool is back")
    again = now(worse, settings)
    assert (again.verdict, again.job_open) == ("retrain", True)
    assert again.decision_id != first.decision_id


def test_a_review_is_heeded_once_and_expires(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    assert now(warehouse, settings).verdict == "hold"
    clock = clock_at()
    with pytest.raises(MlcostError, match="real, expected, data_fault"):
        review(warehouse, settings, clock, "fraud", verdict="yes", reviewer="Ada")
    given = review(warehouse, settings, clock, "fraud", verdict="real", reviewer="Ada", note="new fraud ring")
    found = now(warehouse, settings)
    assert (found.verdict, found.reason, found.review) == ("retrain", "reviewed_drift", given)
    assert "new fraud ring" in found.sentence and found.job_open
    row = warehouse.rows("reviews")[0]
    assert row["until"] - row["reviewed_at"] == timedelta(days=14)


def test_an_expired_review_is_silent(tmp_path: Path, settings: Settings) -> None:
    warehouse = fraud_world(tmp_path / "warehouse")
    now(warehouse, settings)
    clock = Clock.fixed_origin(clock_at().now() - timedelta(days=20))
    review(warehouse, settings, clock, "fraud", verdict="real", reviewer="Ada")
    assert now(warehouse, settings).verdict == "hold"


def test_an_act_needs_a_name_and_a_reason(tmp_path: Path) -> None:
    with pytest.raises(MlcostError, match="say who"):
        request_retrain(Warehouse(tmp_path), clock_at(), model="fraud", who=" ", reason="x")


def test_why_tells_the_numbers(worse: Warehouse, settings: Settings) -> None:
    found = now(worse, settings)
    text = explain(worse, "fraud").text()
    told = ("retrain (decay)", "0.3333 against 0.8000 verified", "Its job is open", found.decision_id, "largest_psi")
    for part in told:
        assert part in text
    distances = text.partition("Distances\n")[2].partition("\n\n")[0].splitlines()
    assert distances[0].split() == ["what", "distance", "threshold", "value"]
    assert len({len(line) for line in distances}) == 1  # numbers end in one column
    with pytest.raises(MlcostError, match="days with one: 2025-05-04 to 2025-05-04"):
        explain(worse, "fraud", AS_OF - timedelta(days=9))
