"""The seven questions in order. A lever more is a module more and its name here."""

from __future__ import annotations

import importlib
from typing import cast

from mlcost_pipeline.levers.question import Question

ORDER = (
    "simpler_model",
    "less_often",
    "precompute",
    "quantize",
    "cache",
    "busy_hardware",
    "cheaper_capacity",
)


def questions() -> list[Question]:
    """The modules of all levers, in the order in which they are asked."""
    return [cast(Question, importlib.import_module(f"mlcost_pipeline.levers.{name}")) for name in ORDER]
