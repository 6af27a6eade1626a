"""The HTTP service is a run like any other: on record while it serves, closed when it is told to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from mlcost_pipeline.settings import load_settings
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import two_models

SERVE = """
import sys
from pathlib import Path
from mlcost_pipeline.inference.service import serve
from mlcost_pipeline.settings import load_settings
from mlcost_pipeline.warehouse import Warehouse
settings = load_settings(Path(sys.argv[1]))
serve(settings, Warehouse(settings.path(settings.warehouse)), port=int(sys.argv[2]))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200)
    except OSError:
        return False


def test_a_service_is_on_record_and_closed_when_it_is_told_to_stop(tmp_path: Path) -> None:
    data = two_models().model_dump(mode="json", exclude={"base"}, exclude_defaults=True)
    data["models"]["fraud"] |= {"trainer": {"family": "mlp"}, "baseline": {"family": "forest"}}
    (tmp_path / "mlcost.yaml").write_text(yaml.safe_dump(data))
    settings = load_settings(tmp_path / "mlcost.yaml")
    warehouse, port = Warehouse(settings.path(settings.warehouse)), free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    serving = subprocess.Popen([sys.executable, "-c", SERVE, str(tmp_path / "mlcost.yaml"), str(port)], env=environment,
                               stderr=subprocess.PIPE)  # fmt: skip
    until = time.monotonic() + 60
    try:
        while not answers(port):
            assert time.monotonic() < until and serving.poll() is None
            time.sleep(0.05)
        [run] = warehouse.rows("run_records")
        assert (run["model"], run["stage"], run["purpose"], run["status"]) == (
            "platform", "serving", "online", "running",
        )  # fmt: skip
        serving.send_signal(signal.SIGTERM)
        said = serving.communicate(timeout=30)[1].decode()
    finally:
        serving.kill()
    assert serving.returncode == 0, said
    [run] = warehouse.rows("run_records")
    assert (run["status"], run["busy_metric"] in ("process_cpu", "cgroup_cpu")) == ("succeeded", True)
    assert run["busy_coverage"] == pytest.approx(1.0, abs=0.05)
    [hold] = warehouse.rows("occupancy")
    assert (hold["resource_id"], hold["end"]) == ("local-worker", run["ended_at"])
