"""The shop's request log: one request in 250 of what reaches its endpoints, one at a time, at two daily peaks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from mlcost_pipeline.demo.files import write_parquet
from mlcost_pipeline.demo.past_runs import CPU_REPLICA, GPU_REPLICAS
from mlcost_pipeline.demo.plan import Plan
from mlcost_pipeline.demo.visits import seconds_of_day
from mlcost_pipeline.tables import TABLES

SAMPLED_ONE_IN = 250
_ENDPOINTS = (("recommendations-gpu", GPU_REPLICAS, 420, 0.045), ("fraud-cpu", (CPU_REPLICA,), 240, 0.012))


def write_requests(shop: Path, plan: Plan, day: int) -> Path:
    """The sampled requests of one day as Parquet."""
    rng, midnight = plan.rng("requests", day), plan.midnight(day)
    rows = []
    for endpoint, replicas, count, service in _ENDPOINTS:
        size = max(4, count * plan.users // 900)
        arrived = sorted(seconds_of_day(rng, size, day).tolist())
        took = service * rng.lognormal(0, 0.25, size)
        waited = rng.exponential(service / 4, size) * (rng.random(size) < 0.3)
        for number, second in enumerate(arrived):
            rows.append(
                {
                    "request_id": f"{endpoint}-{plan.day(day)}-{number:05d}", "endpoint": endpoint, "batch_size": 1,
                    "arrived_at": midnight + timedelta(seconds=second), "replica": replicas[number % len(replicas)],
                    "queue_seconds": round(float(waited[number]), 6), "service_seconds": round(float(took[number]), 6),
                }
            )  # fmt: skip
    data = pa.Table.from_pylist(rows, schema=TABLES["requests"].schema)
    return write_parquet(shop / "data" / "requests" / f"{plan.day(day)}.parquet", data)
