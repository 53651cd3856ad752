"""Plain data types and errors. Knows no other part of the package."""

from prolip.core.errors import (
    InputError,
    ModelError,
    NotFittedError,
    ProlipError,
    SavedModelError,
    UsageError,
)
from prolip.core.fitted import Fitted, HeldOutPredictions, Projected, Settings
from prolip.core.head import Head
from prolip.core.task import Task, Text

__all__ = [
    "Fitted",
    "Head",
    "HeldOutPredictions",
    "InputError",
    "ModelError",
    "NotFittedError",
    "Projected",
    "ProlipError",
    "SavedModelError",
    "Settings",
    "Task",
    "Text",
    "UsageError",
]
