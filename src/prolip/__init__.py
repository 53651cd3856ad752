"""Teach a CLIP-like model your own classes from a few images.

The names below are imported when they are first used, so that `import prolip` and `prolip --help` are quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

_HOMES = {  # of names that are not in `prolip.core`
    "AdaptedModel": "prolip.api.model",
    "FewShotClassifier": "prolip.api.classifier",
    "Recipe": "prolip.api.recipe",
}
_MODULES = ("data", "encoders", "evaluate", "features", "methods", "solvers")

__all__ = [
    "AdaptedModel",
    "FewShotClassifier",
    "Fitted",
    "Head",
    "InputError",
    "ModelError",
    "NotFittedError",
    "ProlipError",
    "Recipe",
    "SavedModelError",
    "Task",
    "Text",
    "UsageError",
    "__version__",
    "data",
    "encoders",
    "evaluate",
    "features",
    "methods",
    "solvers",
]

if TYPE_CHECKING:
    from prolip import data, encoders, evaluate, features, methods, solvers
    from prolip.api.classifier import FewShotClassifier
    from prolip.api.model import AdaptedModel
    from prolip.api.recipe import Recipe
    from prolip.core import (
        Fitted,
        Head,
        InputError,
        ModelError,
        NotFittedError,
        ProlipError,
        SavedModelError,
        Task,
        Text,
        UsageError,
    )


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"prolip.{name}")
    if name in __all__:
        return getattr(importlib.import_module(_HOMES.get(name, "prolip.core")), name)
    raise AttributeError(f"module 'prolip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
