"""GPUs through NVML (package nvidia-ml-py, the extra ``gpu``), under names that say what is counted.

NVML's "utilisation" is the share of its last sample period (1/6 to 1 s) in which any kernel ran (nvmlUtilization_t):
one spinning thread reads as 100 %. Where every device offers GPM (Hopper and newer), the share of SMs that had work
is taken instead (NVML_GPM_METRIC_SM_UTIL). Devices with MIG report neither, which is unknown.

Written against the documented interface and its Python bindings; it has not been run on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psutil

ANY_KERNEL = "nvml_any_kernel"
SM_ACTIVE = "nvml_sm_active"


class Gpus:
    """How many of some GPUs are busy now, weighed by the share of them that the run holds."""

    cumulative = False
    from_birth = False

    def __init__(
        self, nvml: Any, names: Sequence[str], *, pid: int | None = None, share_milli: int | None = None
    ) -> None:
        """`names` are NVML indices or UUIDs; `share_milli` what the run holds of them all, default the whole.

        Once process `pid` is gone nothing is read any more: what the GPUs do then is somebody else's.
        """
        self._nvml, self._process = nvml, _process(pid)
        self.device = f"gpu {', '.join(names)}"
        self.capacity = len(names) if share_milli is None else share_milli / 1000
        self._handles = [_handle(nvml, name) for name in names]
        self._by_sm = bool(names) and all(_offers_gpm(nvml, handle) for handle in self._handles)
        self.metric = SM_ACTIVE if self._by_sm else ANY_KERNEL
        self._before: dict[int, Any] = {}

    def read(self) -> float | None:
        """Devices busy now, 0 to `capacity`; None if any of them cannot be read: a part would pass for the whole."""
        if self._process is None or not self._process.is_running():
            return None
        levels = [self._level(number, handle) for number, handle in enumerate(self._handles)]
        known = [level for level in levels if level is not None]
        if not levels or len(known) < len(levels):
            return None
        return sum(known) / len(known) * self.capacity

    def close(self) -> None:
        """Give NVML's sample buffers back."""
        for sample in self._before.values():
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(sample)
        self._before = {}

    def _level(self, number: int, handle: Any) -> float | None:
        if handle is None:
            return None
        try:
            if self._by_sm:
                return self._sm_active(number, handle)
            return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        except self._nvml.NVMLError:
            return None

    def _sm_active(self, number: int, handle: Any) -> float | None:
        """The share of SMs with work between the reading before and this one; None at the first."""
        nvml = self._nvml
        sample = nvml.nvmlGpmSampleGet(handle, nvml.nvmlGpmSampleAlloc())
        before, self._before[number] = self._before.get(number), sample
        if before is None:
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, sample
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        try:
            metric = nvml.nvmlGpmMetricsGet(asked).metrics[0]
            return float(metric.value) / 100 if metric.nvmlReturn == nvml.NVML_SUCCESS else None
        finally:
            nvml.nvmlGpmSampleFree(before)


@lru_cache(maxsize=1)
def library() -> Any | None:
    """The NVML bindings, opened; None without the package or without a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def visible_gpus(nvml: Any, pid: int | None = None) -> list[str]:
    """Indices or UUIDs of the GPUs that a process may use, from its CUDA_VISIBLE_DEVICES; without it, all.

    NVML counts in the order of the PCI bus, as CUDA does with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """
    named: str | None = os.environ.get("CUDA_VISIBLE_DEVICES")
    if pid is not None and pid != os.getpid():
        try:
            named = psutil.Process(pid).environ().get("CUDA_VISIBLE_DEVICES")
        except psutil.Error:
            named = None
    if named is None:
        return [str(number) for number in range(nvml.nvmlDeviceGetCount())]
    words = [word.strip() for word in named.split(",")]
    return words[: words.index("-1")] if "-1" in words else [word for word in words if word]


def _process(pid: int | None) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _handle(nvml: Any, name: str) -> Any | None:
    try:
        return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
    except nvml.NVMLError:
        return None


def _offers_gpm(nvml: Any, handle: Any | None) -> bool:
    if handle is None or not hasattr(nvml, "nvmlGpmQueryDeviceSupport"):
        return False
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except nvml.NVMLError:
        return False
