"""How busy what a run holds has been: one sampler over NVML, a cgroup of the run's own, or its process tree."""

from mlcost_pipeline.cost.busy.measured import Busy
from mlcost_pipeline.cost.busy.sampler import Sampler

__all__ = ["Busy", "Sampler"]
