"""What a simulated shop is made from: a few numbers and a seed; everything else follows from them."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np

from mlcost_pipeline.demo.files import write_atomically
from mlcost_pipeline.errors import SourceError

FIRST_DAY = date(2025, 3, 1)
OPENING = timedelta(hours=7, minutes=12)  # the first day does not begin at midnight
MODEL = "recommendations"
SCORER = "fraud"
HOLDOUT_SHARE = 0.1


@dataclass(frozen=True)
class Plan:
    """The sizes of a shop. Day numbers count from ``first_day`` = 0; history is days 0 to ``days - 1``."""

    seed: int = 7
    days: int = 120
    users: int = 900
    items: int = 500
    customers: int = 2000
    terminals: int = 150
    payments_per_day: int = 600
    drift_day: int = 90
    empty_day: int = 40

    def day(self, number: int) -> date:
        return FIRST_DAY + timedelta(days=number)

    def number(self, day: date) -> int:
        return (day - FIRST_DAY).days

    def midnight(self, number: int) -> datetime:
        return datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC) + timedelta(days=number)

    def opening(self, number: int) -> datetime:
        """When the shop opens on a day: at midnight, except on the first."""
        return self.midnight(number) + (OPENING if number == 0 else timedelta())

    def rng(self, word: str, *numbers: int) -> np.random.Generator:
        """Random numbers of their own for every word and day, so that no part disturbs another."""
        return np.random.default_rng([self.seed, zlib.crc32(word.encode()), *numbers])

    def save(self, shop: Path) -> None:
        write_atomically(shop / "shop.json", json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n")

    @classmethod
    def load(cls, shop: Path) -> Plan:
        """The plan of a shop that was made before."""
        try:
            return cls(**json.loads((shop / "shop.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise SourceError(f"{shop}: is no simulated shop ({error}); make one with make_shop") from error
