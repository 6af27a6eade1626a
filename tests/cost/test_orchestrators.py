"""Run records of another Dagster instance, over its real webserver: nothing is installed there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mlcost_pipeline.cost.by_asset import cost_by_asset
from mlcost_pipeline.cost.deliveries import import_bill
from mlcost_pipeline.cost.ledger import build_ledgers
from mlcost_pipeline.cost.orchestrators.copying import Copied, copy_orchestrator
from mlcost_pipeline.cost.orchestrators.reading import RUNS_A_PAGE
from mlcost_pipeline.errors import SourceError
from mlcost_pipeline.settings import Orchestrator
from mlcost_pipeline.warehouse import Warehouse
from tests.cost.billing import line, two_models, write_bill

LOCATION = """
import os
import sys
import time

import dagster as dg

days = dg.StaticPartitionsDefinition(["mon", "tue"])

@dg.asset(key=["risk", "features"], partitions_def=days, tags={"mlcost/model": "fraud", "mlcost/stage": "features"})
def features(): ...

@dg.asset(key=["risk", "scores"], deps=[features], partitions_def=days)
def scores(context):
    if context.partition_key == "tue":
        raise ValueError("no such column")

@dg.asset(key=["shop", "stopped"])
def stopped(context):
    context.instance.report_run_canceling(context.run)
    context.instance.report_run_canceled(context.run)
    os._exit(0)  # terminated in mid-step

@dg.asset(
    tags={"mlcost/model": "fraud", "mlcost/stage": "training"}, partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def weights() -> None: ...

@dg.multi_asset(specs=[dg.AssetSpec(name, skippable=True) for name in ("one", "two", "three", "four")])
def some(context):
    for name in ("one", "three", "four"):
        yield dg.MaterializeResult(name)

areas = dg.MultiPartitionsDefinition({"day": days, "area": dg.StaticPartitionsDefinition(["eu", "uk", "us"])})

@dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
def half(context):
    context.log_event(dg.AssetMaterialization("half", partition="mon"))
    raise ValueError("in the middle")

@dg.asset(partitions_def=areas, backfill_policy=dg.BackfillPolicy.single_run())
def grid():
    raise ValueError("before any")

@dg.asset(tags={"mlcost/model": "fraud", "mlcost/stage": "features"})
def hung():
    os._exit(9)  # killed: by this instance's account it is under way for ever

@dg.asset(tags={"mlcost/model": "fraud", "mlcost/stage": "features"})
def slow():
    time.sleep(7)

defs = dg.Definitions(assets=[features, scores, stopped, weights, some, half, grid, hung, slow])

if __name__ == "__main__":
    if "hung" in sys.argv:
        dg.materialize([hung], instance=dg.DagsterInstance.get())
    if "slow" in sys.argv:
        dg.materialize([slow], instance=dg.DagsterInstance.get())
    if len(sys.argv) > 1:
        sys.exit()
    instance = dg.DagsterInstance.get()
    for day in ("mon", "tue"):
        dg.materialize([features, scores], instance=instance, partition_key=day, raise_on_error=False)
    first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    dg.materialize([weights], instance=instance, tags={first: "mon", last: "tue"})
    dg.materialize([half], instance=instance, tags={first: "mon", last: "tue"}, raise_on_error=False)
    dg.materialize([grid], instance=instance, tags={first: "eu|tue", last: "uk|tue"}, raise_on_error=False)
    dg.materialize([some], instance=instance)
    dg.materialize([stopped], instance=instance, raise_on_error=False)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("theirs")


@pytest.fixture(scope="module")
def theirs(home: Path) -> Iterator[str]:
    """The GraphQL endpoint of somebody's Dagster, with good, failed and cancelled materialisations."""
    (home / "location.py").write_text(LOCATION)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "location.py"], cwd=home, env=environment, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-f", "location.py"]
    server = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}/server_info", server)
        yield f"http://127.0.0.1:{port}/graphql"
    finally:
        server.terminate()
        server.wait()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("their webserver did not come up")


def their(url: str, **more: Any) -> Orchestrator:
    block = {"name": "main", "url": url, "resource_id": "worker-9", "models": {"risk/": "recs"}, **more}
    return two_models(orchestrators=[block]).orchestrators[0]


def test_every_materialisation_is_a_run_record_once(warehouse: Warehouse, theirs: str, tmp_path: Path) -> None:
    main = their(theirs)
    assert copy_orchestrator(warehouse, main) == Copied("main", 7, 14)
    assert copy_orchestrator(warehouse, main).records == 0
    warehouse.state.update("orchestrators/main", lambda _: {})  # a lost cursor doubles nothing
    assert copy_orchestrator(warehouse, main) == Copied("main", 7, 0)
    rows = warehouse.rows("run_records")
    found = {(row["asset"], row["partition"]): (row["status"], row["model"], row["stage"]) for row in rows}
    assert found == {
        ("risk/features", "mon"): ("succeeded", "fraud", "features"),  # by its tags
        ("risk/features", "tue"): ("succeeded", "fraud", "features"),
        ("risk/scores", "mon"): ("succeeded", "recs", "evaluation"),  # by the prefix
        ("risk/scores", "tue"): ("failed", "recs", "evaluation"),
        ("shop/stopped", None): ("cancelled", "unassigned", "evaluation"),
        ("weights", "mon"): ("succeeded", "fraud", "training"),  # one run made both
        ("weights", "tue"): ("succeeded", "fraud", "training"),
        ("one", None): ("succeeded", "unassigned", "evaluation"),  # two was planned and left out
        ("three", None): ("succeeded", "unassigned", "evaluation"),
        ("four", None): ("succeeded", "unassigned", "evaluation"),
        ("half", "mon"): ("succeeded", "unassigned", "evaluation"),  # the step broke when it had made this one
        ("half", "tue"): ("failed", "unassigned", "evaluation"),
        ("grid", "eu|tue"): ("failed", "unassigned", "evaluation"),
        ("grid", "uk|tue"): ("failed", "unassigned", "evaluation"),
    }
    retrains = {(row["purpose"], row["job_id"], row["attempt"]) for row in rows if row["asset"] == "weights"}
    assert len(retrains) == 1 and retrains.pop()[::2] == ("retrain", 1)
    holds = {row["run_id"]: row for row in warehouse.rows("occupancy")}
    step = sorted(row["run_id"] for row in rows if row["asset"] in ("one", "three", "four"))
    tiles = sorted((holds[name]["start"], holds[name]["end"]) for name in step)
    assert {holds[name]["share_milli"] for name in step} == {1000}  # 1000 has no third: a third of the time each
    assert tiles[0][1] == tiles[1][0] and tiles[1][1] == tiles[2][0]
    assert {holds[row["run_id"]]["share_milli"] for row in rows if row["asset"] == "weights"} == {500}
    assert {row["source"] for row in rows} == {"dagster:main"}
    made_from = {row["asset"]: row["inputs_version"] for row in rows if row["partition"] == "mon"}
    assert made_from["risk/scores"] is not None and made_from["risk/features"] is None  # what has no inputs has none
    assert "no such column" in next(row["cause"] for row in rows if row["asset"] == "risk/scores" and row["cause"])
    start = min(row["started_at"] for row in rows).replace(minute=0, second=0, microsecond=0)
    month = start.strftime("%Y-%m-01T00:00:00Z")
    bill = line("3.6", resource="worker-9", start=start, hours=2, BillingPeriodStart=month)
    import_bill(warehouse, write_bill(tmp_path / "bill.csv", [bill]))
    settings = two_models()
    build_ledgers(warehouse, settings)
    costs = {(each.asset, each.partition): each for each in cost_by_asset(warehouse, settings)}
    assert set(costs) == set(found)
    failed = costs["risk/scores", "tue"]
    assert failed.outcome == "failed" and failed.effective > 0


def test_a_run_that_says_nothing_is_lost_and_told_again_if_it_ends_after_all(
    warehouse: Warehouse, theirs: str, home: Path
) -> None:
    main = their(theirs, lost_after_hours=3 / 3600)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    quiet: Any = {"cwd": home, "env": environment, "stderr": subprocess.DEVNULL}
    runs = [subprocess.Popen([sys.executable, "location.py", what], **quiet) for what in ("hung", "slow")]
    runs[0].wait()
    found = dict[str, Any]()
    until = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < until:
        copy_orchestrator(warehouse, main)
        rows = warehouse.rows("run_records", where="status = 'lost'")
        found |= {row["asset"]: (row["run_id"], row["cause"], row["ended_at"]) for row in rows}
    assert {cause for _, cause, _ in found.values()} == {"gave no sign of life any more"}
    assert copy_orchestrator(warehouse, main).records == 0
    assert runs[1].wait() == 0
    assert copy_orchestrator(warehouse, main).records == 1  # it had only been slow
    last = {row["asset"]: row for row in warehouse.rows("run_records") if row["asset"] in found}
    assert {name: row["status"] for name, row in last.items()} == {"hung": "lost", "slow": "succeeded"}
    held = warehouse.rows("occupancy", where="run_id = ?", params=[found["slow"][0]])
    assert [hold["end"] for hold in held] == [last["slow"]["ended_at"]] and last["slow"]["ended_at"] > found["slow"][2]
    assert copy_orchestrator(warehouse, main).records == 0
    late = their(theirs, lost_after_hours=3 / 3600, since=datetime.now(UTC).isoformat())
    assert copy_orchestrator(Warehouse(home / "new"), late).records == 0  # it fell silent before all that is to be read
    _stop(home, last["hung"]["orchestrator_run_id"])  # somebody clears it away, long after it died
    stopped = copy_orchestrator(warehouse, main)
    assert stopped.runs > 0 and stopped.records == 0
    fresh = Warehouse(home / "fresh")
    copy_orchestrator(fresh, main)  # whoever looks only now is told the same
    for each in (warehouse, fresh):
        [hung] = each.rows("run_records", where="asset = 'hung'")
        assert (hung["status"], hung["ended_at"]) == ("lost", last["hung"]["ended_at"])


def _stop(home: Path, run_id: str) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[BaseHTTPRequestHandler], None]], str]]:
    """Real HTTP servers that answer each POST as they are told."""
    servers: list[HTTPServer] = []

    def serve(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer(self)

            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: Any) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/graphql"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def _say(handler: BaseHTTPRequestHandler, status: int, body: bytes, length: int | None = None) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize(
    ("status", "body", "length", "said"),
    [
        (401, b"no", None, "answered 401 .*is the token right"),
        (404, b"no", None, "is it the URL of its GraphQL endpoint"),
        (503, b"no", None, "answered 503 .*asked again later"),
        (200, b"<html>", None, "answered with no JSON"),
        (200, b'{"data": {}}', None, "another form than Dagster's .KeyError: 'runsOrError'"),
        (200, b'{"data": {"runsOrError": null}}', None, "another form than Dagster's"),
        (200, b'{"errors": [{"message": "Unknown field"}]}', None, "Unknown field"),
        (200, b'{"data"', 4000, "cannot be read"),  # it dies in the middle
    ],
)
def test_what_goes_wrong_names_the_orchestrator_and_stores_nothing(
    warehouse: Warehouse, serving: Any, status: int, body: bytes, length: int | None, said: str
) -> None:
    main = their(serving(lambda handler: _say(handler, status, body, length)))
    with pytest.raises(SourceError, match=rf"orchestrators\.main \(http://127.*{said}"):
        copy_orchestrator(warehouse, main)
    assert warehouse.rows("run_records") == []
    assert warehouse.state.get("orchestrators/main") is None


def test_a_redirect_does_not_take_the_token_along(
    warehouse: Warehouse, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str | None] = []
    elsewhere = serving(lambda handler: reached.append(handler.headers["Dagster-Cloud-Api-Token"]))

    def away(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", elsewhere)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    monkeypatch.setenv("THEIR_TOKEN", "s3cret")
    with pytest.raises(SourceError, match=r"answered 302 .*a redirect is not followed"):
        copy_orchestrator(warehouse, their(serving(away), token_env="THEIR_TOKEN"))
    assert reached == []


def test_a_password_in_the_url_is_refused_and_not_repeated(warehouse: Warehouse) -> None:
    with pytest.raises(SourceError, match=r"main \(http://host/graphql\): .*token_env instead") as refused:
        copy_orchestrator(warehouse, their("http://me:s3cret@host/graphql?key=s3cret"))
    assert "s3cret" not in str(refused.value)


def test_a_run_that_ends_while_later_pages_are_read_is_not_passed_over(warehouse: Warehouse, serving: Any) -> None:
    """Where the next look begins is told by the first page: what it lists had ended before all that ends later."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = handler.asked["variables"]  # type: ignore[attr-defined]
        log = {"__typename": "EventConnection", "cursor": "", "hasMore": False, "events": []}
        newer = [(f"r{n}", 100.0) for n in range(RUNS_A_PAGE)]
        told = newer if asked.get("cursor") is None else [("old", 900.0)]
        runs = [{"runId": name, "status": "SUCCESS", "updateTime": at, "endTime": at, "tags": [], "stepStats": []}
                for name, at in told]  # fmt: skip
        data = {"logsForRun": log} if "run" in asked else {"runsOrError": {"__typename": "Runs", "results": runs}}
        _say(handler, 200, json.dumps({"data": data}).encode())

    assert copy_orchestrator(warehouse, their(serving(answer))).runs == RUNS_A_PAGE + 1
    assert warehouse.state.get("orchestrators/main").value["updated"] <= 100.0  # type: ignore[union-attr]


def test_a_server_that_dies_between_two_questions_is_read_again(
    warehouse: Warehouse, theirs: str, serving: Any
) -> None:
    asked: list[int] = []

    def half(handler: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        run = {"runId": "r1", "status": "SUCCESS", "startTime": 1.0, "endTime": 2.0, "updateTime": 2.0, "tags": []}
        runs = {"__typename": "Runs", "results": [{**run, "stepStats": []}]}
        body = json.dumps({"data": {"runsOrError": runs}}).encode()
        if len(asked) == 1:  # the runs are told; of their steps only a promise
            _say(handler, 200, body)
        else:
            _say(handler, 200, b"", 900)

    main = their(serving(half))
    with pytest.raises(SourceError, match="cannot be read"):
        copy_orchestrator(warehouse, main)
    assert warehouse.rows("run_records") == []
    assert copy_orchestrator(warehouse, their(theirs)).records >= 10


def test_a_token_is_sent_and_a_missing_one_named(
    warehouse: Warehouse, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Dagster-Cloud-Api-Token"])
        _say(handler, 200, json.dumps({"data": {"runsOrError": {"__typename": "Runs", "results": []}}}).encode())

    main = their(serving(answer), token_env="THEIR_TOKEN")
    with pytest.raises(SourceError, match="needs the environment variable THEIR_TOKEN"):
        copy_orchestrator(warehouse, main)
    monkeypatch.setenv("THEIR_TOKEN", "s3cret")
    assert copy_orchestrator(warehouse, main).runs == 0
    assert set(seen) == {"s3cret"}
