"""The spot market as a trace: when a pool could be had, played against the model's clock.

A trace is a recorded file, or a synthetic one whose spells of availability flip the less likely the older they are,
as recorded ones do. A trace shorter than time repeats.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.settings import Pool, Settings
from mlcost_pipeline.warehouse import Warehouse

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
GAP_SECONDS = 600.0
SYNTHETIC_TICKS = 4096  # 28 days of ten minutes

#: Share of spells that flip in their next tick of ten minutes, by the age of the spell: up to 1, 2, 4, 8, 16 ticks,
#: and older. Counted over five zones of the public 2022-10-26 campaign (skypilot-org/spot-traces).
AGE_BINS = (1, 2, 4, 8, 16)
HAZARD_UP = (0.299, 0.208, 0.152, 0.110, 0.063, 0.030)
HAZARD_DOWN = (0.485, 0.183, 0.165, 0.166, 0.069, 0.037)


@dataclass(frozen=True)
class Trace:
    """Availability per tick of `gap_seconds` since :data:`EPOCH`, repeated for ever."""

    gap_seconds: float
    available: NDArray[np.bool_]

    def tick(self, at: datetime) -> int:
        """The number of the tick that holds `at`."""
        return int((at - EPOCH).total_seconds() // self.gap_seconds)

    def start_of(self, tick: int) -> datetime:
        return EPOCH + timedelta(seconds=tick * self.gap_seconds)

    def at(self, moment: datetime) -> bool:
        """Whether capacity can be had at `moment`."""
        return bool(self.available[self.tick(moment) % len(self.available)])

    def lost_at(self, since: datetime) -> datetime | None:
        """When capacity taken at `since` is taken away: the first tick without; None if it never is."""
        first = self.tick(since) + 1
        for tick in range(first, first + len(self.available)):
            if not self.available[tick % len(self.available)]:
                return self.start_of(tick)
        return None

    def spell_began(self, moment: datetime) -> datetime:
        """When the present spell (of availability or of its absence) began, at most one length of the trace ago."""
        tick, now = self.tick(moment), self.at(moment)
        for before in range(tick - 1, tick - len(self.available), -1):
            if bool(self.available[before % len(self.available)]) != now:
                return self.start_of(before + 1)
        return self.start_of(tick - len(self.available))


def trace_of(settings: Settings, pool: Pool) -> Trace | None:
    """The trace that a pool plays; None for a pool that can always be had."""
    if pool.trace is not None:
        return read_trace(settings.path(pool.trace))
    return None if pool.trace_seed is None else synthetic(pool.trace_seed)


@lru_cache(maxsize=16)
def read_trace(file: Path) -> Trace:
    """Read ``{"metadata": {"gap_seconds": g}, "data": [instances obtainable per tick]}``.

    Raises:
        JobError: the file is absent or of another form.
    """
    try:
        value = json.loads(file.read_bytes())
        gap, data = float(value["metadata"]["gap_seconds"]), [int(entry) > 0 for entry in value["data"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JobError(
            f"{file}: not a trace ({error!r}); expected {{metadata: {{gap_seconds}}, data: [...]}}"
        ) from error
    if not data or gap <= 0:
        raise JobError(f"{file}: a trace needs data and a positive gap_seconds, found {len(data)} ticks of {gap} s")
    return Trace(gap, np.array(data, dtype=np.bool_))


@lru_cache(maxsize=16)
def synthetic(seed: int) -> Trace:
    """A semi-Markov trace of ten-minute ticks from a seed alone."""
    words = np.random.PCG64(np.random.SeedSequence([seed])).random_raw(SYNTHETIC_TICKS)
    draws = (words >> np.uint64(11)).astype(np.float64) / 2.0**53
    up, age, ticks = True, 1, []
    for draw in draws:
        ticks.append(up)
        hazard = (HAZARD_UP if up else HAZARD_DOWN)[int(np.searchsorted(AGE_BINS, age))]
        up, age = (not up, 1) if draw < hazard else (up, age + 1)
    return Trace(GAP_SECONDS, np.array(ticks, dtype=np.bool_))


def record_look(warehouse: Warehouse, pool: Pool, *, at: datetime, available: bool) -> None:
    """Keep what a look at a pool saw; hazards are fitted on these rows."""
    row = {"pool": pool.name, "at": at, "available": available, "price": pool.price_per_hour}
    warehouse.append("market_observations", [row])
