"""The training loop, from top to bottom: start, resume, step, save, stop when asked, and leave a result last.

It steps any family and knows nothing of models; a family knows nothing of checkpoints.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlcost_pipeline.errors import JobError
from mlcost_pipeline.models.data_wait import waiting_for_data
from mlcost_pipeline.training.checkpoint import newest_valid, versions
from mlcost_pipeline.training.contract import (
    DONE,
    INTERRUPTED,
    AttemptFolder,
    attempt_folders,
    describe_files,
    write_json,
)
from mlcost_pipeline.training.job import TrainerJob
from mlcost_pipeline.training.losses import Losses
from mlcost_pipeline.training.order import Cursor, Order, step_seed
from mlcost_pipeline.training.pulse import Pulse
from mlcost_pipeline.training.saving import Saver


@dataclass(frozen=True)
class DataWait:
    """Wall seconds that an attempt waited for data, of all that it took from its start to its last step."""

    seconds: float
    of_seconds: float

    @property
    def share(self) -> float:
        return min(1.0, self.seconds / self.of_seconds) if self.of_seconds > 0 else 0.0

    @property
    def said(self) -> str:
        return f"{self.share:.1%} of {self.of_seconds:.1f} s spent waiting for data"


class Stop:
    """SIGTERM and SIGINT set a flag and nothing else: a save inside a handler could tear the state."""

    requested = False

    def listen(self) -> Stop:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True


def train(job: TrainerJob, family: Any, place: AttemptFolder, stop: Stop, say: Callable[[str], None] = print) -> int:
    """Train until done or asked to stop.

    Args:
        family: an instance of a model family (``models.base.Family``).
        place: this attempt's folder; checkpoints of all attempts of the job are looked at, only this one is written.

    Returns:
        the exit code: ``DONE`` with ``result.json`` written, or ``INTERRUPTED`` with a checkpoint written.

    Raises:
        CheckpointError: saving failed too often.
        JobError: samples seen differ from samples expected.
    """
    pulse, began = Pulse(place.heartbeat), time.monotonic()
    pulse.beat("starting", force=True)
    family.start(job.features, job.training_cut)
    stepped = bool(family.stepped)
    order = Order(job.seed, family.samples, family.batch_size, family.epochs)
    if not stepped:
        order = Order.whole(job.seed, family.samples)
    if order.total_steps == 0:
        raise JobError(f"job {job.job_id}: no sample to train on in {job.features}")
    cursor, losses = resume(job, family, place, order, say) if stepped else (Cursor(), Losses())
    resumed = cursor.steps
    saver = Saver(place, job.config_hash, job.checkpoint_seconds, say, durable_step=resumed)
    pulse.stepping_since = time.monotonic()

    while not order.finished(cursor):
        if stop.requested:
            if stepped and cursor.steps > saver.durable_step:
                saver.save(family.state(), cursor, losses.as_dict())
            _beat(pulse, "saved", order, cursor, resumed, saver)
            say(f"interrupted at step {cursor.steps} of {order.total_steps}, durable step {saver.durable_step}")
            return INTERRUPTED
        loss = family.step(_fetched(order, cursor), step_seed(job.seed, cursor.epoch, cursor.batch))
        cursor = order.after(cursor)
        losses = losses.add(float(loss), epoch_ended=cursor.batch == 0)
        if stepped and saver.due():
            saver.save(family.state(), cursor, losses.as_dict())
        _beat(pulse, "stepping", order, cursor, resumed, saver, force=saver.durable_step == cursor.steps)

    _require_all_seen(job, order, cursor)
    if stepped and cursor.steps > saver.durable_step:
        saver.save(family.state(), cursor, losses.as_dict())  # a kill from here on costs no step
    waited = DataWait(pulse.data_wait_seconds, time.monotonic() - began)
    write_result(job, family, place, cursor, losses, waited)
    _beat(pulse, "done", order, cursor, resumed, saver)
    say(f"done: {cursor.steps} steps, {cursor.samples_seen} samples, last loss {losses.last}; {waited.said}")
    return DONE


def resume(
    job: TrainerJob, family: Any, place: AttemptFolder, order: Order, say: Callable[[str], None]
) -> tuple[Cursor, Losses]:
    """Continue from the newest checkpoint of any attempt that is valid and loads; name all that are rejected."""
    refused: dict[Path, str] = {}
    while True:
        search = newest_valid(attempt_folders(place.job_folder), job.config_hash, refused)
        found, cursor, losses = search.found, Cursor(), Losses()
        if found is not None:
            try:
                cursor = order.cursor_from(found.cursor)
                losses = Losses.from_dict(found.cursor["losses"])
                family.load_state(found.load_state())
            except Exception as error:  # whatever a family's load_state raises, the one before may still do
                refused[found.path] = f"does not load: {error!r}"
                family.start(job.features, job.training_cut)  # nothing half loaded stays
                continue
        for rejected in search.rejected:
            say(f"rejected checkpoint {rejected.path}: {rejected.reason}")
        shown = [{"path": _relative(rejected.path, place), "reason": rejected.reason} for rejected in search.rejected]
        origin = None if found is None else _relative(found.path, place)
        write_json(place.resume, {"from": origin, "step": cursor.steps, "rejected": shown})
        say(f"starts at step {cursor.steps} of {order.total_steps} (checkpoint: {origin})")
        return cursor, losses


def write_result(
    job: TrainerJob, family: Any, place: AttemptFolder, cursor: Cursor, losses: Losses, waited: DataWait
) -> None:
    """Save the artefact, then the result that names each of its files with its hash: the commit of the attempt."""
    place.artefact.mkdir(parents=True, exist_ok=True)
    family.save(place.artefact)
    files = describe_files(place.artefact, durable=True)
    write_json(
        place.result,
        {
            "job_id": job.job_id,
            "attempt": place.number,
            "config_hash": job.config_hash,
            "artefact": files,
            "cursor": cursor.as_dict(),
            "losses": losses.as_dict(),
            "data_wait": {"seconds": waited.seconds, "of_seconds": waited.of_seconds, "share": waited.share},
            "versions": versions(),
        },
    )


@waiting_for_data()
def _fetched(order: Order, cursor: Cursor) -> NDArray[np.int64]:
    return order.indices(cursor)


def _require_all_seen(job: TrainerJob, order: Order, cursor: Cursor) -> None:
    if cursor.samples_seen != order.expected_samples:
        raise JobError(f"job {job.job_id}: {cursor.samples_seen} samples seen, {order.expected_samples} expected")


def _beat(pulse: Pulse, phase: str, order: Order, cursor: Cursor, resumed: int, saver: Saver, *,
          force: bool | None = None) -> None:  # fmt: skip
    pulse.beat(phase, step=cursor.steps, total=order.total_steps, samples=cursor.samples_seen, resumed=resumed,
               durable=saver.durable_step, force=phase != "stepping" if force is None else force)  # fmt: skip


def _relative(path: Path, place: AttemptFolder) -> str:
    return path.relative_to(place.job_folder).as_posix()
