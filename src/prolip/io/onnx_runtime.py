"""ONNX Runtime, told to keep to itself: unless asked not to, it sends events about each use to its maker."""

import importlib
import os
from types import ModuleType


def onnx_runtime() -> ModuleType:
    """The library. Its own switch comes after the first event; the variable is read when it is loaded."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    return importlib.import_module("onnxruntime")
