"""Busy time: real processes that burn, sleep, stop and die; and what is unknown is never called full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.cost.busy import Busy, Sampler, cgroups, nvml
from mlcost_pipeline.cost.busy.cgroups import own_cgroup
from mlcost_pipeline.cost.busy.measured import joined
from mlcost_pipeline.cost.busy.process_tree import ProcessTree
from mlcost_pipeline.cost.busy.sampler import meter_of
from mlcost_pipeline.cost.runs import find_run, open_run
from mlcost_pipeline.warehouse import Warehouse

ORIGIN = datetime(2026, 3, 1, 6, tzinfo=UTC)
RATE = 60.0

BURN = """
import sys, time
share, until = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    began = time.process_time()
    while time.process_time() - began < 0.05 * share: pass
    time.sleep(0.05 * (1 - share))
"""
TREE = r"""
import subprocess, sys
burn = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.27: pass"]
first = subprocess.Popen(burn); second = subprocess.Popen(burn); first.wait(); second.wait()
print("waited", flush=True); sys.stdin.read()
"""


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def clock() -> Clock:
    return Clock.fixed_origin(ORIGIN, rate=RATE)


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def kernel_says(process: subprocess.Popen[str]) -> float:
    spent = psutil.Process(process.pid).cpu_times()
    return spent.user + spent.system


def test_a_child_that_burns_half_of_its_time_was_half_busy_in_the_clocks_seconds() -> None:
    with child(BURN, "0.5", "30") as burning:
        began = time.monotonic()
        sampler = Sampler.start(clock(), burning.pid, interval_seconds=0.1)
        until(lambda: kernel_says(burning) > 0.4)
        burning.send_signal(signal.SIGSTOP)
        spent = kernel_says(burning)
        found, took = sampler.stop(), time.monotonic() - began
    assert abs(found.seconds / RATE - spent) < 0.011  # one tick of the kernel
    assert found.seconds <= 0.8 * took * RATE  # half of it, whatever else runs here
    assert (found.metric, found.device) == ("process_cpu", "cpu")
    assert found.coverage > 0.95 and found.samples > 3


def test_a_process_that_sleeps_or_is_stopped_is_covered_and_not_busy() -> None:
    with child("import time; time.sleep(60)") as sleeping, child(BURN, "1", "60") as burning:
        until(lambda: kernel_says(burning) > 0.05)
        burning.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(burning.pid).status() == psutil.STATUS_STOPPED)
        samplers = [Sampler.start(clock(), process.pid, interval_seconds=0.05) for process in (sleeping, burning)]
        before = samplers[1].busy().seconds
        time.sleep(0.3)
        asleep, stopped = (sampler.stop() for sampler in samplers)
    assert asleep.seconds < 0.3 * RATE and asleep.coverage > 0.9  # its start-up
    assert stopped.seconds == before and stopped.coverage > 0.9


def test_after_a_kill_nothing_is_known_any_more() -> None:
    with child(BURN, "1", "60") as burning:
        sampler = Sampler.start(clock(), burning.pid, interval_seconds=0.05)
        until(lambda: sampler.busy().seconds > 0.1 * RATE)
        burning.kill()
        burning.wait()
        known = sampler.busy()
        time.sleep(max(0.3, 2 * known.covered_seconds / RATE))
        found = sampler.stop()
    assert found.seconds <= known.seconds + 0.1 * RATE
    assert found.coverage < 0.6


def test_a_tree_is_counted_once_whether_its_children_run_or_were_waited_for() -> None:
    with child(TREE) as parent:
        assert parent.stdout is not None
        sampler = Sampler.start(clock(), parent.pid, interval_seconds=0.05)
        until(lambda: len(psutil.Process(parent.pid).children()) == 2)
        until(lambda: sampler.busy().seconds > 0.1 * RATE)  # counted while they run
        assert parent.stdout.readline() == "waited\n"
        found = sampler.stop()
        spent = psutil.Process(parent.pid).cpu_times()
        all_of_it = spent.user + spent.system + spent.children_user + spent.children_system
    assert abs(found.seconds / RATE - all_of_it) < 0.05
    assert all_of_it >= 0.5  # both children; the kernel counts in ticks of 10 ms


def test_of_this_process_only_what_it_uses_from_now_on_counts() -> None:
    sampler = Sampler.start(clock())
    spend_until = time.process_time() + 0.1
    while time.process_time() < spend_until:
        pass
    assert 0.1 * RATE <= sampler.stop().seconds < 0.5 * RATE


def test_an_orphan_still_belongs_to_the_tree() -> None:
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}, '1', '60']); sys.stdin.read()"
    with child(leaves) as parent:
        tree = ProcessTree(parent.pid)
        until(lambda: tree.read() and psutil.Process(parent.pid).children())
        tree.read()
        [orphan] = psutil.Process(parent.pid).children()
        try:
            parent.kill()
            parent.wait()
            before = tree.read()
            assert before is not None
            until(lambda: (tree.read() or 0.0) > before + 0.05)
        finally:
            orphan.kill()
        until(lambda: tree.read() is None)


# ── a cgroup of the run's own ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["unified", "cpuacct"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[Path]:
    root = cgroups.ROOT / request.param
    if request.param == "unified" and not root.exists():
        root = cgroups.ROOT
    folder = root / f"mlcost-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {root}: {error.strerror}")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text())
    with suppress(OSError):
        folder.rmdir()


def test_a_cgroup_of_its_own_is_what_the_kernel_bills(cgroup: Path) -> None:
    with child(BURN, "1", "60") as burning:
        assert own_cgroup(burning.pid) is None  # it shares ours
        (cgroup / "cgroup.procs").write_text(str(burning.pid))
        sampler = Sampler.start(clock(), burning.pid, interval_seconds=0.05)
        before = kernel_says(burning)
        until(lambda: kernel_says(burning) > before + 0.2)
        found, spent = sampler.stop(), kernel_says(burning) - before
        assert (found.metric, found.device) == ("cgroup_cpu", f"cgroup /{cgroup.name}")
        assert abs(found.seconds / RATE - spent) < 0.06
        assert found.coverage > 0.9 and found.capacity == len(os.sched_getaffinity(0))
        assert found.share is not None and 0 < found.share <= 1
        with child("import time; time.sleep(60)") as stranger:
            (cgroup / "cgroup.procs").write_text(str(stranger.pid))
            assert own_cgroup(burning.pid) is None  # no longer its own


def test_a_quota_bounds_what_a_cgroup_could_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "job" / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (tmp_path / "job" / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(cgroups, "_memberships", lambda pid: [("", "/job")])
    found = own_cgroup()
    assert found is not None
    assert (found.read(), found.capacity) == (1.5, 0.5)
    (tmp_path / "job" / "cgroup.procs").write_text("")
    assert found.read() is None


# ── gauges: the arithmetic of NVML readings, on an object that offers the documented calls ───────────────────────────


class Nvml:
    """Answers as NVML's documentation says; the test for real bindings below holds its names against theirs."""

    NVMLError, NVML_SUCCESS, NVML_GPM_METRIC_SM_UTIL = pynvml.NVMLError, pynvml.NVML_SUCCESS, 2
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t

    def __init__(self, *levels: int | None, sm: float | None = None) -> None:
        self.levels, self.sm, self.samples_open = list(levels), sm, 0

    def nvmlDeviceGetCount(self) -> int:
        return len(self.levels)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= len(self.levels):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if self.levels[handle] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.c_nvmlUtilization_t(self.levels[handle], 0)

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:
        return pynvml.c_nvmlGpmSupport_t(1, int(self.sm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.samples_open += 1
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleGet(self, handle: int, sample: Any) -> Any:
        return sample

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples_open -= 1

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        assert asked.numMetrics == 1 and asked.metrics[0].metricId == self.NVML_GPM_METRIC_SM_UTIL
        asked.metrics[0].value = self.sm
        return asked


class HandClock:
    """A clock that is moved by hand, in wall seconds."""

    rate = RATE

    def __init__(self) -> None:
        self.wall = 0.0

    def now(self) -> datetime:
        return ORIGIN + timedelta(seconds=self.wall * RATE)


def sampled(gpus: Any, *moments: float) -> Busy:
    by_hand = HandClock()
    sampler = Sampler(by_hand, gpus, interval_seconds=1.0)  # type: ignore[arg-type]
    for moment in moments:
        by_hand.wall = moment
        sampler.sample()
    return sampler.busy()


def test_devices_are_added_up_and_a_share_of_them_weighs_that_share() -> None:
    both = sampled(nvml.Gpus(Nvml(100, 50), ["0", "1"]), 0, 1, 2)
    assert (both.metric, both.device, both.capacity) == ("nvml_any_kernel", "gpu 0, 1", 2.0)
    assert (both.seconds, both.covered_seconds, both.coverage, both.share) == (1.5 * 120, 120, 1.0, 0.75)
    quarter = sampled(nvml.Gpus(Nvml(80), ["0"], share_milli=250), 0, 1, 2)
    assert quarter.seconds == pytest.approx(0.2 * 120) and quarter.share == pytest.approx(0.8)


def test_a_gap_counts_for_two_intervals_and_is_unknown_beyond() -> None:
    found = sampled(nvml.Gpus(Nvml(100), ["0"]), 0, 1, 9, 10)  # nobody looked from 1 to 9
    assert found.seconds == (1 + 2 + 1) * RATE
    assert found.coverage == 0.4 and found.share == 1.0


def test_a_device_that_cannot_be_read_is_unknown_and_not_full() -> None:
    for gpus in (nvml.Gpus(Nvml(100, None), ["0", "1"]), nvml.Gpus(Nvml(100), ["0", "7"])):
        found = sampled(gpus, 0, 1, 2)
        assert (found.seconds, found.coverage, found.samples, found.share) == (0.0, 0.0, 0, None)
        assert joined([found], 120) is None


def test_share_of_sms_is_taken_where_every_device_offers_it() -> None:
    library = Nvml(100, 100, sm=37.5)
    gpus = nvml.Gpus(library, ["0", "1"])
    found = sampled(gpus, 0, 1, 2, 3)  # the first reading only begins an interval
    assert (found.metric, found.seconds, found.coverage) == ("nvml_sm_active", 2 * 0.375 * 120, 2 / 3)
    gpus.close()
    assert library.samples_open == 0


def test_gpus_of_a_process_are_those_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Nvml(1, 2, 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.visible_gpus(library) == ["0", "1", "2"]
    for given, seen in (("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,-1,2", ["1"]), ("GPU-ab", ["GPU-ab"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert nvml.visible_gpus(library) == seen
        assert nvml.visible_gpus(library, os.getppid()) != ["GPU-ab"]  # another process's are its own
    monkeypatch.setattr(nvml, "library", lambda: library)
    assert meter_of(gpus=True).device == "gpu GPU-ab"
    assert meter_of(gpus=False).metric in ("process_cpu", "cgroup_cpu")


def test_nothing_is_read_of_gpus_once_their_process_is_gone() -> None:
    with child("import sys; sys.stdin.read()") as working:
        gpus = nvml.Gpus(Nvml(100), ["0"], pid=working.pid)
        assert gpus.read() == 1.0
    assert gpus.read() is None


def test_the_bindings_offer_what_is_called_and_without_a_driver_cpu_time_is_measured() -> None:
    offered = [name for name in vars(Nvml) if not name.startswith("_")]
    assert [name for name in offered if not hasattr(pynvml, name)] == []
    assert Nvml.NVML_GPM_METRIC_SM_UTIL == pynvml.NVML_GPM_METRIC_SM_UTIL
    if nvml.library() is not None:
        pytest.skip("this machine has a GPU: the fallback cannot be shown")
    assert meter_of(gpus=True).metric in ("process_cpu", "cgroup_cpu")


def test_stretches_of_one_run_add_up_under_both_names() -> None:
    before = Busy(30.0, "process_cpu", 0.5, "cpu", 5, 50.0, 2.0)
    after = Busy(10.0, "nvml_any_kernel", 1.0, "gpu 0", 2, 20.0, 1.0)
    both = joined([before, after], 100.0)
    assert both is not None
    assert (both.seconds, both.metric, both.coverage) == (40.0, "nvml_any_kernel+process_cpu", 0.7)
    assert joined([], 100.0) is None


def test_a_run_that_was_lost_and_comes_back_keeps_what_was_measured_before(tmp_path: Path) -> None:
    warehouse, work = Warehouse(tmp_path / "warehouse"), {"run_id": "r1", "model": "fraud", "resource_id": "worker"}
    before = Busy(30.0, "process_cpu", 0.5, "cpu", 5, 50.0, 2.0).as_json()
    warehouse.state.create("runs/r1", {"resource_id": "worker", "share_milli": 1000, "busy": {"elsewhere/7/1": before}})
    for _ in range(2):  # the second time this process is the one that begins again
        run = open_run(warehouse, clock(), **work, stage="features", purpose="build", started_at=ORIGIN)
        run.heartbeat.stop()
    end = ORIGIN + timedelta(seconds=500)
    run.close(status="succeeded", ended_at=end)
    record = find_run(warehouse, "r1")
    assert record is not None and record["busy_metric"] == "process_cpu"
    assert 30.0 < record["busy_seconds"] < 30.0 + 60 * 5  # rate 60: seconds of CPU, not minutes
    assert 0.1 < record["busy_coverage"] < 0.9


def test_what_a_launcher_used_is_not_its_trainers(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "warehouse")
    run = open_run(warehouse, clock(), model="fraud", stage="training", purpose="trial", resource_id="spot-1")
    until_spent = time.process_time() + 0.3
    while time.process_time() < until_spent:
        pass
    run.heartbeat.beat()
    with child("import sys; sys.stdin.read()") as trainer:
        run.watch(trainer.pid)
        run.close(status="succeeded")
        spent = kernel_says(trainer)
    [record] = warehouse.rows("run_records")
    assert record["busy_seconds"] <= (spent + 0.011) * RATE < 0.3 * RATE
    assert record["busy_coverage"] == 1.0


def test_sampling_costs_less_than_a_hundredth_of_a_cpu() -> None:
    with child(BURN, "0.1", "60") as working:
        sampler = Sampler(clock(), ProcessTree(working.pid))
        sampler.sample()
        began = time.process_time()
        for _ in range(50):
            sampler.sample()
        each = (time.process_time() - began) / 50
    assert each < 0.01  # CPU seconds a reading, at one reading a second
