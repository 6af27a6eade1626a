"""Dagster's way into the library: one resource that opens the project, and the wrapping of its reports.

Nothing is computed here. Assets ask `Project` for the warehouse, the settings, a model's clock and a run record,
and hand the finished document to `materialized`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import dagster as dg

from mlcost_pipeline.clock import Clock, model_clock
from mlcost_pipeline.cost.runs import RunHandle, record_run
from mlcost_pipeline.reports.document import Document
from mlcost_pipeline.reports.metadata import Plain, as_metadata
from mlcost_pipeline.settings import ModelSettings, Settings, load_settings
from mlcost_pipeline.settings_faults import PLATFORM as PLATFORM
from mlcost_pipeline.warehouse import Warehouse


@lru_cache(maxsize=4)
def _settings(path: str, _changed_ns: int) -> Settings:
    return load_settings(Path(path))


class Project(dg.ConfigurableResource[Any]):
    """One team's mlcost.yaml, and the warehouse that it names."""

    config_path: str

    @property
    def settings(self) -> Settings:
        """The validated settings; read again when the file has changed."""
        path = Path(self.config_path)
        return _settings(str(path), path.stat().st_mtime_ns if path.exists() else 0)

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse that the settings name."""
        settings = self.settings
        return Warehouse(settings.path(settings.warehouse))

    def model(self, name: str) -> ModelSettings:
        """The settings of one model."""
        return self.settings.model(name)

    def clock(self, model: str) -> Clock:
        """A model's clock; work for the whole platform reads the first model's."""
        return model_clock(self.warehouse, self.settings, model)

    @contextmanager
    def run(
        self,
        context: dg.AssetExecutionContext,
        model: str,
        *,
        stage: str,
        purpose: str,
        model_version: str | None = None,
        partition: str | None = None,
    ) -> Iterator[RunHandle]:
        """Record a stretch of this asset's work on the worker machine: opened before, closed after."""
        worker = self.settings.worker
        with record_run(
            self.warehouse,
            self.clock(model),
            model=model,
            stage=stage,
            purpose=purpose,
            asset=context.asset_key.to_user_string(),
            partition=partition,
            resource_id=worker.resource_id,
            share_milli=worker.share_milli,
            market="on_demand",
            price=worker.price_per_hour,
            model_version=model_version,
            orchestrator_run_id=context.run.run_id,
        ) as handle:
            yield handle


def materialized(document: Document, *, data_version: str | None = None) -> dg.MaterializeResult[Any]:
    """The document as the metadata of a materialisation."""
    metadata = {key: _wrapped(plain) for key, plain in as_metadata(document).items()}
    version = dg.DataVersion(data_version) if data_version else None
    return dg.MaterializeResult(metadata=metadata, data_version=version)


def _wrapped(plain: Plain) -> Any:
    wrap: dict[str, Any] = {
        "text": dg.MetadataValue.text,
        "md": dg.MetadataValue.md,
        "int": dg.MetadataValue.int,
        "float": dg.MetadataValue.float,
        "url": dg.MetadataValue.url,
        "path": dg.MetadataValue.path,
        "json": dg.MetadataValue.json,
    }
    return wrap[plain.kind](plain.value)
