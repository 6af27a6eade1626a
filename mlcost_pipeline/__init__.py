"""What machine learning costs, and what it earns for that cost."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcost_pipeline.cost.plain import cost_per_outcome

__version__ = "0.1.0"
__all__ = ["__version__", "cost_per_outcome"]


def __getattr__(name: str) -> Any:
    """Loaded when first asked for, so that importing the package stays light."""
    if name == "cost_per_outcome":
        return import_module("mlcost_pipeline.cost.plain").cost_per_outcome
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
