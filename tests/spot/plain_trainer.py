"""A trainer of a team's own, without any framework and without importing the project: the contract and nothing else.

It adds up numbers, one a step. ``job.json`` may ask it to fail, to hang, or to be slow.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))


def write(path: Path, value: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("." + path.name)
    with aside.open("w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--deadline", required=True)
    given = parser.parse_args()
    params = json.loads((given.job / "job.json").read_text())["params"]
    mine = given.job / "attempts" / given.attempt
    if int(given.attempt) <= params.get("failures", 0):
        write(mine / "error.json", {"exit_code": params["exit"], "cause": params["cause"], "text": "as asked"})
        return int(params["exit"])
    saved = [json.loads(file.read_text()) for file in given.job.glob("attempts/*/checkpoints/*.json")]
    state = max(saved, key=lambda one: one["step"], default={"step": 0, "sum": 0})
    resumed = durable = state["step"]
    began = time.monotonic()

    def beat() -> None:
        write(mine / "heartbeat.json", {
            "phase": "stepping", "step": state["step"], "total_steps": params["steps"], "resumed_from": resumed,
            "durable_step": durable, "cpu_seconds": time.process_time(),
            "stepping_seconds": time.monotonic() - began, "monotonic": time.monotonic(),
        })  # fmt: skip

    while state["step"] < params["steps"]:
        if stop and not params.get("deaf"):
            write(mine / "checkpoints" / f"{state['step']}.json", state)
            durable = state["step"]
            beat()
            return 75
        if state["step"] == params.get("hang_at") and given.attempt == "1":
            time.sleep(3600)
        time.sleep(params["sleep"])
        state = {"step": state["step"] + 1, "sum": state["sum"] + state["step"] ** 2}
        if state["step"] % 5 == 0:
            write(mine / "checkpoints" / f"{state['step']}.json", state)
            durable = state["step"]
        beat()
    write(mine / "artefact" / "sum.json", {"sum": state["sum"]})
    data = (mine / "artefact" / "sum.json").read_bytes()
    described = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write(mine / "result.json", {"artefact": {"sum.json": described}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
