"""How good a model is, and what would make it better.

The names below are imported when they are first used.
"""

import importlib
from typing import Any

_HOMES = {
    "Confidence": "confidence",
    "Curve": "curve",
    "Figures": "figures",
    "OutOfDistribution": "out_of_distribution",
    "accuracy": "metrics",
    "balanced_accuracy": "metrics",
    "calibration_error": "metrics",
    "calibration_floor": "metrics",
    "confusion": "metrics",
    "extrapolate": "curve",
    "find_label_errors": "label_errors",
    "f1_scores": "metrics",
    "fit_temperature": "calibration",
    "learning_curve": "curve",
    "macro_f1": "metrics",
    "near_copies": "near_copies",
    "per_class_accuracy": "metrics",
    "suggest": "suggestions",
    "wilson": "metrics",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'prolip.evaluate' has no attribute {name!r}")
    return getattr(importlib.import_module(f"prolip.evaluate.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
