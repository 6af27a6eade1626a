"""Names of model families → classes, imported only when asked for, so that nobody pays for what they do not use."""

from __future__ import annotations

import importlib
from typing import cast

from mlcost_pipeline.errors import ModelError
from mlcost_pipeline.models.base import Family

FAMILIES: dict[str, str] = {
    "als": "mlcost_pipeline.models.als:Als",
    "sasrec": "mlcost_pipeline.models.sasrec:SasRec",
    "forest": "mlcost_pipeline.models.forest:Forest",
    "mlp": "mlcost_pipeline.models.mlp:Mlp",
}

_MEMBERS = ("name", "stepped", "start", "step", "state", "load_state", "save", "load")


def family(name: str) -> type[Family]:
    """The class of a registered family, or of a team's own given as ``module:Class``.

    >>> family("als").name
    'als'

    Raises:
        ModelError: no such name, module or class, or the class lacks a member of ``Family``.
    """
    target = FAMILIES.get(name, name)
    module_name, colon, class_name = target.partition(":")
    if not colon or not module_name or not class_name:
        raise ModelError(
            f"no model family {name!r}; there are: {', '.join(sorted(FAMILIES))}, or module:Class for one of your own"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(f"model family {name!r}: module {module_name!r} cannot be imported: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ModelError(f"model family {name!r}: module {module_name!r} has no class {class_name!r}")
    missing = [member for member in _MEMBERS if not hasattr(found, member)]
    if missing:
        raise ModelError(f"model family {name!r}: class lacks {', '.join(missing)} (see models.base.Family)")
    return cast(type[Family], found)
