"""A small world for spot tests: one model, a spot pool with a trace of our own, an on-demand pool, a fast clock."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.spot import jobs
from mlcost_pipeline.spot.predecessors import note_job
from mlcost_pipeline.warehouse import Warehouse

ORIGIN = datetime(2025, 6, 1, tzinfo=UTC)
JOB, MODEL, DATA = "job1", "shop", "v1"
PLAIN = Path(__file__).with_name("plain_trainer.py")
SUM_OF_40 = sum(step**2 for step in range(40))


class World:
    """Times: the clock runs at 600, so a tick of ten minutes takes one second."""

    def __init__(
        self,
        root: Path,
        *,
        up: list[int],
        rate: float = 600.0,
        window_hours: float = 6.0,
        trainer: dict[str, Any] | None = None,
        spot: dict[str, Any] | None = None,
        **params: Any,
    ) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        # The trace is one tick per entry from the clock's origin on; then, and before, there is no spot.
        ticks_before = int((ORIGIN - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds() // 600)
        data = [0] * 2000
        for place, value in enumerate(up):
            data[(ticks_before + place) % 2000] = value
        (root / "trace.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": data}))
        params = {"command": [sys.executable, str(PLAIN)], "steps": 40, "sleep": 0.02, **params}
        pools = [
            {"name": "spot-a", "market": "spot", "price_per_hour": "0.9731", "trace": "trace.json",
             "startup_seconds": 60, "notice_seconds": 240, **(spot or {})},
            {"name": "od-a", "market": "on_demand", "price_per_hour": "3.06", "startup_seconds": 60},
        ]  # fmt: skip
        model = {
            "task": "recommendation", "mode": "act", "first_day": "2025-01-01", "deploy_window_hours": window_hours,
            "clock": {"origin": ORIGIN.isoformat(), "rate": rate}, "outcome": {"unit": "hits"},
            "trainer": {"family": "tests.training.toys:Tiny", "params": params, "checkpoint_seconds": 0.2, "seed": 7,
                        **(trainer or {})},
            "baseline": {"family": "als"},
        }  # fmt: skip
        value = {"version": 1, "name": "world", "models": {MODEL: model}, "capacity": {"pools": pools}}
        (root / "mlcost.yaml").write_text(yaml.safe_dump(value))
        self.settings: Settings = load_settings(root / "mlcost.yaml")
        self.warehouse = Warehouse(root / "warehouse")
        self.features()
        # An earlier job tells what to expect: half an hour of work, five minutes until the first step.
        note_job(self.warehouse, MODEL, "earlier", work_seconds=1800, load_seconds=300)
        self.clock: Clock = model_clock(self.warehouse, self.settings, MODEL)
        assert jobs.open_job(self.warehouse, self.settings, self.clock, job_id=JOB, model=MODEL, data_version=DATA)

    def features(self) -> None:
        cut = ORIGIN.isoformat()
        manifest = {
            "as_of": date(2025, 5, 31).isoformat(), "data_cut": cut, "holdout_end": cut, "training_cut": cut,
            "rows": 1, "training_rows": 1, "positives": None, "dropped": {},
        }  # fmt: skip
        folder = self.warehouse.folder(MODEL, "features", DATA)
        (folder / "features.json").write_text(json.dumps(manifest))

    @property
    def folder(self) -> Path:
        return self.warehouse.folder(MODEL, "jobs", JOB)

    def runs(self) -> list[dict[str, Any]]:
        found = self.warehouse.rows("run_records")
        return sorted(found, key=lambda row: row["attempt"])
