"""What a sampler measured: busy time, how it was measured, and for how much of the run anybody looked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol


class Meter(Protocol):
    """Something that can be read once a second.

    A cumulative meter gives device-seconds used so far (wall seconds; it misses nothing between two readings), any
    other gives how many devices are busy now. None where it cannot be read, which is unknown and neither 0 nor full.
    """

    metric: str
    device: str
    capacity: float
    """Devices that could be busy at once."""
    cumulative: bool
    from_birth: bool
    """Whether the first reading already belongs to the run, because the meter began with its process."""

    def read(self) -> float | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Busy:
    """Busy time of a run, in device-seconds of its clock.

    `metric` says what is counted: ``nvml_any_kernel`` (any kernel ran on the GPU), ``nvml_sm_active`` (share of SMs
    with work), ``cgroup_cpu``, ``process_cpu``. `coverage` is covered ÷ run time: what is not covered is unknown.
    """

    seconds: float
    metric: str
    coverage: float
    device: str
    samples: int
    covered_seconds: float
    capacity: float

    @property
    def share(self) -> float | None:
        """Busy ÷ (capacity × covered time), or None if nobody looked."""
        held = self.capacity * self.covered_seconds
        return self.seconds / held if held > 0 else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Busy:
        return cls(
            float(value["seconds"]), str(value["metric"]), float(value["coverage"]), str(value["device"]),
            int(value["samples"]), float(value["covered_seconds"]), float(value["capacity"]),
        )  # fmt: skip


def joined(parts: Iterable[Busy], run_seconds: float) -> Busy | None:
    """Stretches of one run (before and after a restart, say) as one; None if there are none or none was covered."""
    found = [part for part in parts if part.samples and part.covered_seconds > 0]
    if not found:
        return None
    covered = sum(part.covered_seconds for part in found)
    coverage = 1.0 if run_seconds <= 0 else min(1.0, covered / run_seconds)
    return Busy(
        sum(part.seconds for part in found),
        "+".join(sorted({part.metric for part in found})),
        coverage,
        ", ".join(sorted({part.device for part in found})),
        sum(part.samples for part in found),
        covered,
        max(part.capacity for part in found),
    )
