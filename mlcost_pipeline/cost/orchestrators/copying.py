"""What another orchestrator ran → run records here, once; asked again only for what has changed since."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from mlcost_pipeline.cost.orchestrators.reading import pages, silent, source_of
from mlcost_pipeline.cost.runs_mirrored import mirror_steps, take_back_doubles
from mlcost_pipeline.settings import Orchestrator
from mlcost_pipeline.warehouse import Warehouse

#: Seconds by which two looks overlap: times of one second may be told in any order, and records are found again by id.
_OVERLAP_SECONDS = 5.0


@dataclass(frozen=True)
class Copied:
    """What one look at an orchestrator found: runs that have ended or changed, and records that were new."""

    name: str
    runs: int
    records: int

    @property
    def sentence(self) -> str:
        return f"{self.name}: {self.runs} runs have ended since the last look, {self.records} run records are new"


def copy_orchestrator(warehouse: Warehouse, orchestrator: Orchestrator) -> Copied:
    """Read everything that changed since the last look.

    Raises:
        SourceError: it cannot be read; what was read before is stored and the next look begins where this one did.
    """
    path = f"orchestrators/{orchestrator.name}"
    stored = warehouse.state.get(path)
    after = None if stored is None else stored.value.get("updated")
    if after is None and orchestrator.since is not None:
        after = orchestrator.since.timestamp()
    runs, records, seen = 0, 0, after
    for number, page in enumerate(pages(orchestrator, after)):
        records += len(mirror_steps(warehouse, page.facts))
        runs += page.runs
        if number == 0:  # a run of this page's range that ends while later pages are read is newer than all of these
            seen = max(after or 0.0, page.updated - _OVERLAP_SECONDS)
    for page in silent(orchestrator, datetime.now(UTC)):
        records += len(mirror_steps(warehouse, page.facts))
    take_back_doubles(warehouse, source_of(orchestrator))
    warehouse.state.update(path, lambda value: {**(value or {}), "updated": seen})
    return Copied(orchestrator.name, runs, records)
