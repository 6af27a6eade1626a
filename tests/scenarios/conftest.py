"""What the scenarios share: one small shop that the whole demo was run on, and a Dagster process that really runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlcost_pipeline.home import PROJECT, dagster_environment, dagster_home
from mlcost_pipeline.settings import Settings, load_settings
from mlcost_pipeline.warehouse import Warehouse


@dataclass(frozen=True)
class Shop:
    """A demo that has ended: its folder, what it printed, and its warehouse."""

    home: Path
    printed: str

    @property
    def config(self) -> Path:
        return self.home / "shop" / "mlcost.yaml"

    @property
    def settings(self) -> Settings:
        return load_settings(self.config)

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.home / "shop" / "warehouse")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would name another project, and with a terminal's width."""
    ours = {name: value for name, value in os.environ.items() if name not in ("MLCOST_CONFIG", "DAGSTER_HOME")}
    return {**ours, "COLUMNS": "100", **more}


def mlcost(*words: str, home: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line as a person would."""
    place = [] if home is None else ["--home", str(home)]
    return subprocess.run(
        [sys.executable, "-m", "mlcost_pipeline.cli", *place, *words],
        capture_output=True, text=True, check=check, cwd=PROJECT, env=environment(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The whole loop on a small shop, run once, also where several processes share the tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    home, printed = shared / "demo-home", shared / "demo-printed.txt"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            done = subprocess.run(
                [sys.executable, "-m", "mlcost_pipeline.cli", "demo", "--small", "--home", str(home)],
                capture_output=True, text=True, cwd=PROJECT, timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            printed.write_text(done.stdout)
    return Shop(home, printed.read_text())


@dataclass
class DagsterDev:
    """`dagster dev` on a kept home, asked over GraphQL."""

    config: Path
    home: Path
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    log: Path = field(default_factory=Path)

    def __enter__(self) -> DagsterDev:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = self.home / "dev.log"
        command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "-w", "workspace.yaml"], cwd=PROJECT, stdout=log, stderr=subprocess.STDOUT,
                env=dagster_environment(dagster_home(self.home, self.config), self.config),
            )  # fmt: skip
        try:
            self.until(self._loaded, 240, "the code location is loaded")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        for member in family[1:]:
            if member.is_running():
                member.kill()
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, query: str, **variables: Any) -> Any:
        """A GraphQL query; an error of the server is an error of the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=90) as answer:
            found = json.loads(answer.read())
        assert "errors" not in found, found["errors"]
        return found["data"]

    def until(self, holds: Callable[[], Any], seconds: float, what: str) -> Any:
        """Ask again and again until something holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process is not None and self.process.poll() is None, self.log.read_text()[-3000:]
            found = holds()
            if found:
                return found
            time.sleep(1)
        raise AssertionError(f"after {seconds} s not yet: {what}\n{self.log.read_text()[-3000:]}")

    def _loaded(self) -> bool:
        try:
            nodes = self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
        except OSError:
            return False
        return bool(nodes["repositoriesOrError"].get("nodes"))


@pytest.fixture
def dagster_dev() -> Iterator[type[DagsterDev]]:
    """The class; a test enters it with its own config and home."""
    yield DagsterDev


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser of the system."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on this machine; install it (Debian: apt-get install chromium)")
    return found
