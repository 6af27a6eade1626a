"""Where Dagster keeps its history: a folder that stays, with telemetry off, made if missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mlcost_pipeline.errors import SettingsError

PROJECT = Path(__file__).resolve().parents[1]


def dagster_home(home: Path | None, config: Path) -> Path:
    """DAGSTER_HOME: below `home` if given, else the environment's, else a folder beside mlcost.yaml."""
    if home is not None:
        place = home / "dagster"
    elif os.environ.get("DAGSTER_HOME"):
        place = Path(os.environ["DAGSTER_HOME"])
    else:
        place = config.parent / "dagster-home"
    place = place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    shipped, kept = PROJECT / "dagster.yaml", place / "dagster.yaml"
    if not kept.exists():
        if not shipped.exists():
            raise SettingsError(f"{shipped}: missing; run mlcost from a checkout, or put a dagster.yaml into {place}")
        shutil.copyfile(shipped, kept)
    return place


def dagster_environment(home: Path, config: Path) -> dict[str, str]:
    """The environment of every process of this project; a team's own modules may lie beside its mlcost.yaml."""
    return {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "MLCOST_CONFIG": str(config),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(PROJECT), str(config.parent), *_import_path()])),
    }


def _import_path() -> list[str]:
    return [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
